"""The fixtures ``slurm`` and ``accounted``: one real cluster each for the whole test session.

``--slurm`` chooses the release of the first.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.slurm.accounting import AccountedCluster, why_no_accounts
from tests.slurm.cluster import SlurmCluster, why_unavailable
from tests.slurm.release import IN_FOLDERS, OWN, SlurmRelease

_SHARED: list[SlurmCluster] = []
"""The cluster of this test run, once a test has asked for it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let ``pytest --slurm 24.11`` run every test on a real cluster with that release."""
    parser.addoption(
        "--slurm", choices=(OWN, *IN_FOLDERS), default=OWN, help="release of the real Slurm that tests run on"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what the cluster's controller did: another machine's failure may never come again."""
    report = yield
    clusters = [cluster for cluster in getattr(item, "funcargs", {}).values() if isinstance(cluster, SlurmCluster)]
    if report.failed and clusters:
        report.sections.append(("slurmctld's log", clusters[0].log_tail("slurmctld", lines=80)))
    return report


@pytest.fixture(scope="session")
def slurm(request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    """A real 8-node Slurm cluster. A test that uses it is skipped where none can run, with one plain line."""
    release = SlurmRelease(request.config.getoption("--slurm"))
    reason = why_unavailable(release)
    if reason is not None:
        pytest.skip(f"real Slurm tests skipped: {reason}")
    cluster = SlurmCluster(release)
    cluster.start()
    _SHARED.append(cluster)
    try:
        yield cluster
    finally:
        _SHARED.remove(cluster)
        cluster.stop()


@pytest.fixture(scope="module", autouse=True)
def _leave_no_jobs() -> Iterator[None]:
    """Let no file's jobs stand in the way of the next one's, whose faults strike on certain nodes."""
    yield
    for cluster in _SHARED:
        cluster.clear()


@pytest.fixture(scope="session")
def accounted() -> Iterator[AccountedCluster]:
    """A real cluster of this host's own release that keeps accounts; skipped where none can run."""
    reason = why_unavailable() or why_no_accounts()
    if reason is not None:
        pytest.skip(f"tests with accounting skipped: {reason}")
    cluster = AccountedCluster()
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()
