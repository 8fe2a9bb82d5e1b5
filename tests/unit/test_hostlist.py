"""Slurm's host lists, both ways."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.scheduler.hostlist import MAX_NODES, HostlistError, compress, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("node1", ("node1",)),
        ("ml-[001-002]", ("ml-001", "ml-002")),
        ("n[9-11]", ("n9", "n10", "n11")),
        ("n[09-11]", ("n09", "n10", "n11")),
        ("b2u[05,02]n3", ("b2u05n3", "b2u02n3")),
        ("rack[0-1]_blade[0-1]", ("rack0_blade0", "rack0_blade1", "rack1_blade0", "rack1_blade1")),
        ("gpu-a,node[1,3-4],login.site", ("gpu-a", "node1", "node3", "node4", "login.site")),
        ("[1-2]x", ("1x", "2x")),
    ],
)
def test_a_host_list_is_expanded_in_its_order(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "node[1-2",
        "node1]",
        "node[[1-2]]",
        "node[1-2]]",
        "node[]",
        "node[1-]",
        "node[-2]",
        "node[3-1]",
        "node[a-c]",
        "node[1-2-3]",
        "node1,,node2",
        "node1,",
        "node 1",
        "node1;reboot",
        "--help",
        "node[١-٣]",
    ],
)
def test_what_is_no_host_list_is_an_error(text: str) -> None:
    with pytest.raises(HostlistError):
        expand(text)


@pytest.mark.parametrize(
    "text",
    [
        "n[0-999999999999999999]",
        "n[0-999][0-999][0-999]",
        ",".join(["n[0-99999]"] * 3),
        "n" + "[0-9]" * 2_000,
        f"n[0-{MAX_NODES}]",
        "n[" + "9" * 5_000 + "]",
        "n" * 5_000_000,
    ],
)
def test_a_list_that_would_grow_without_bound_is_refused_before_it_grows(text: str) -> None:
    with pytest.raises(HostlistError):
        expand(text)


def test_the_largest_list_is_still_expanded() -> None:
    assert len(expand(f"n[1-{MAX_NODES}]")) == MAX_NODES


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("node1",), "node1"),
        (("node01", "node02", "node03", "node05"), "node[01-03,05]"),
        (("n9", "n10", "n11"), "n[9-11]"),
        (("n09", "n10"), "n[09-10]"),
        (("n09", "n10", "n8"), "n[09-10,8]"),
        (("b2u05n3", "b2u05n4", "b2u02n3"), "b2u05n[3-4],b2u02n3"),
        (("gpu-a", "gpu-b"), "gpu-a,gpu-b"),
        (("n1-ib", "n2-ib"), "n[1-2]-ib"),
    ],
)
def test_names_are_folded_into_ranges(names: tuple[str, ...], text: str) -> None:
    assert compress(names) == text


node_names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
numbered = st.builds(
    lambda stem, number, width: f"{stem}{number:0{width}}", node_names, st.integers(0, 30), st.integers(1, 4)
)


@given(st.lists(node_names | numbered, max_size=40))
def test_compressed_names_expand_to_the_same_names_in_the_same_order(names: list[str]) -> None:
    assert expand(compress(names)) == tuple(names)


@given(st.text(alphabet="n[],-0129 ä", max_size=60))
def test_any_text_is_a_list_of_safe_names_or_an_error(text: str) -> None:
    try:
        names = expand(text)
    except HostlistError:
        return
    assert len(names) <= MAX_NODES
    assert not any(name.startswith("-") or " " in name for name in names)


brackets = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=3).map(
    lambda ranges: "[" + ",".join(f"{first:0{width}}-{first + more:0{width}}" for first, more, width in ranges) + "]"
)
stems = st.sampled_from(["n", "rack", "b2u", "gpu-a."])
one_bracket = st.tuples(stems, brackets).map("".join)
two_brackets = st.tuples(stems, brackets, st.sampled_from(["", "node", "_"]), brackets).map("".join)
host_lists = st.lists(one_bracket | two_brackets, min_size=1, max_size=4).map(",".join)


@pytest.mark.skipif(shutil.which("scontrol") is None, reason="Slurm is not installed: scontrol is not asked")
def test_slurm_expands_host_lists_to_the_same_names(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=x\nSlurmctldHost=localhost\n")

    @settings(max_examples=40, deadline=None)
    @given(host_lists)
    def same(text: str) -> None:
        said = subprocess.run(
            ["scontrol", "show", "hostnames", text],
            env={"PATH": os.environ["PATH"], "SLURM_CONF": str(conf)},
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        assert tuple(said.stdout.split()) == expand(text)

    same()
