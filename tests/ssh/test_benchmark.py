"""The benchmark of the transports runs: its smallest form, for its shape and never for its times."""

from __future__ import annotations

import pytest

from benchmarks.transports import compare
from tests.slurm.cluster import SlurmCluster
from tests.ssh.server import SshServer


@pytest.mark.slurm
async def test_both_ways_are_asked_the_same(slurm: SlurmCluster, sshd: SshServer) -> None:
    figures = await compare(slurm, sshd, calls=2, answer_bytes=100_000)
    assert [figure.name.partition(":")[0] for figure in figures] == ["cli"] * 2 + ["ssh, forced command"] * 2 + [
        "cli",
        "cli",
        "ssh",
        "ssh",
    ]
    assert all(figure.value > 0 for figure in figures)
