"""One node of four loses its GPU; all that is there is the job's single output file, in every form it may have."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.attribution.attribute import attribute
from recovery.attribution.incident import Incident, JobFacts, LogLine
from recovery.model import Action, Category, Confidence, SymptomKind, Verdict

NODES = ("node01", "node02", "node03", "node04")
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
EXITS = ("srun: error: node03: task 2: Exited with exit code 1", "srun: error: node01: task 0: Exited with exit code 1")
STYLES = ["label", "rank", "node", "label and rank"]


def _prefix(style: str, rank: int) -> str:
    return {
        "label": f"{rank}: ",
        "rank": f"[rank{rank}]: ",
        "node": f"{NODES[rank]}: ",
        "label and rank": f"{rank}: [rank{rank}]: ",
        "none": "",
    }[style]


def _iteration(n: int) -> str:
    counts = f" iteration {n:8d}/     100 | consumed samples: {n * 16:12d} | "
    return counts + "elapsed time per iteration (ms): 200.0 | lm loss: 2.5E+00 |"


def _victim(rank: int, *, named: bool = True) -> str:
    peer = NODES[2] if named else "10.0.0.3"
    return (
        f"{NODES[rank]}:123:456 [0] transport/net_ib.cc:1807 NCCL WARN NET/IB : Got completion from peer {peer}<40197> "
        "with status=12 opcode=0 len=0 vendor err 129 (Send)"
    )


def _verdict(texts: list[str], state: str, **facts: object) -> Verdict:
    lines = tuple(LogLine(text=text, source="slurm-7.out", number=i) for i, text in enumerate(texts, 1))
    return attribute(Incident(lines=lines, facts=JobFacts.model_validate({"nodes": NODES, "state": state, **facts})))


def _story(style: str) -> list[str]:
    progress = [_prefix(style, 3) + _iteration(n) for n in range(1, 5)]
    victims = [_prefix(style, rank) + _victim(rank) for rank in (0, 1, 3)]
    return [*progress, _prefix(style, 2) + XID, *victims, *EXITS]


@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
@pytest.mark.parametrize("style", STYLES)
def test_a_prefix_on_the_line_itself_locates_it(style: str, state: str) -> None:
    lines = _story(style)
    for seen in (lines[:5], lines):
        verdict = _verdict(seen, state)
        assert verdict.culprits == ("node03",)
        assert (verdict.symptom, verdict.category) == (SymptomKind.CRASH, Category.HARDWARE_GPU)
        assert (verdict.suggested, verdict.confidence) == (Action.RESTART_EXCLUDE, Confidence.ESTABLISHED)
        assert not set(verdict.victims) & {"node03"}


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param([_victim(0), _victim(1), _victim(3)], id="all others complain"),
        pytest.param([_victim(0), _victim(1), *EXITS], id="its task exits first"),
        pytest.param(list(EXITS), id="exits alone"),
        pytest.param([_victim(0, named=False), *reversed(EXITS)], id="a victim's exit is listed first"),
        pytest.param([_victim(0), _victim(1)], id="the victims name it"),
    ],
)
@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
def test_without_any_prefix_exits_and_victims_locate_it(rest: list[str], state: str) -> None:
    verdict = _verdict([_iteration(1), _iteration(2), XID, *rest], state)
    assert verdict.culprits == ("node03",)
    assert verdict.confidence is Confidence.LIKELY


@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
def test_what_cannot_be_located_is_not_guessed(state: str) -> None:
    verdict = _verdict([_iteration(1), _iteration(2), XID], state)
    assert verdict.culprits == ()
    assert verdict.unlocated_because
    assert verdict.suggested is Action.RESTART
    assert verdict.category is Category.HARDWARE_GPU


def test_the_evidence_names_file_and_line() -> None:
    verdict = _verdict(_story("label"), "FAILED")
    first = verdict.evidence[0]
    assert (first.source, first.line, first.host, first.signature) == ("slurm-7.out", 5, "node03", "xid-off-the-bus")
    assert XID in first.text


@given(style=st.sampled_from(STYLES), doubled=st.sets(st.integers(0, 9)), cut=st.integers(5, 10))
@settings(deadline=None)
def test_prefix_style_and_lines_delivered_twice_change_nothing(style: str, doubled: set[int], cut: int) -> None:
    lines = _story(style)[:cut]
    again = [text for i, line in enumerate(lines) for text in [line] * (2 if i in doubled else 1)]
    verdict, once = _verdict(again, "FAILED"), _verdict(_story("label"), "FAILED")
    assert (verdict.symptom, verdict.cause, verdict.culprits) == (once.symptom, once.cause, once.culprits)
    assert (verdict.suggested, verdict.fingerprint) == (once.suggested, once.fingerprint)


def _key_error(prefix: str) -> list[str]:
    return [
        prefix + "Traceback (most recent call last):",
        prefix + '  File "/work/train.py", line 10, in main',
        prefix + "    loss = batch['weights']",
        prefix + "KeyError: 'weights'",
    ]


@pytest.mark.parametrize("style", [*STYLES, "none"])
def test_an_exception_on_every_rank_is_the_programs(style: str) -> None:
    verdict = _verdict([line for rank in range(4) for line in _key_error(_prefix(style, rank))], "FAILED")
    assert (verdict.category, verdict.suggested, verdict.culprits) == (Category.USER_CODE, Action.STOP, ())
    assert verdict.fingerprint == "user_code/python_exception/KeyError@train.py:main"


def test_an_exception_on_one_rank_does_not_make_its_node_bad() -> None:
    verdict = _verdict([*_key_error("2: "), *(_victim(rank) for rank in (0, 1, 3)), *EXITS], "FAILED")
    assert (verdict.category, verdict.suggested, verdict.culprits) == (Category.USER_CODE, Action.STOP, ())
    assert any("node03" in text for text in verdict.ruled_out)


def test_the_same_failure_elsewhere_has_the_same_fingerprint() -> None:
    here = _verdict(_story("label"), "FAILED")
    there = _verdict([line.replace("3b:00", "c1:00").replace("node03", "node02") for line in _story("node")], "FAILED")
    assert here.culprits != there.culprits
    assert here.fingerprint == there.fingerprint


@pytest.mark.parametrize(
    ("state", "category", "action"),
    [
        ("NODE_FAIL", Category.HOST, Action.RESTART),
        ("TIMEOUT", Category.SCHEDULER, Action.RESTART),
        ("PREEMPTED", Category.SCHEDULER, Action.RESTART),
        ("CANCELLED", Category.SCHEDULER, Action.STOP),
        ("OUT_OF_MEMORY", Category.USER_CODE, Action.STOP),
        ("FAILED", Category.UNKNOWN, Action.RESTART),
    ],
)
def test_without_any_log_the_state_alone_is_read(state: str, category: Category, action: Action) -> None:
    verdict = _verdict([], state)
    assert (verdict.symptom, verdict.category, verdict.suggested) == (SymptomKind.CRASH, category, action)


def test_a_node_is_the_same_with_and_without_its_domain() -> None:
    nodes = tuple(f"{node}.cluster.example" for node in NODES)
    assert _verdict(_story("node"), "FAILED", nodes=nodes).culprits == ("node03.cluster.example",)
    longer = [line.replace("node03", "node03.cluster.example") for line in _story("node")]
    assert _verdict(longer, "FAILED").culprits == ("node03",)


def test_nothing_known_is_a_guess_and_a_restart() -> None:
    verdict = _verdict([], "FAILED")
    assert (verdict.confidence, verdict.suggested) == (Confidence.GUESS, Action.RESTART)
    assert verdict.unlocated_because


def test_the_node_that_slurm_names_as_failed_is_excluded() -> None:
    verdict = _verdict([], "NODE_FAIL", failed_node="node02")
    assert (verdict.culprits, verdict.suggested) == (("node02",), Action.RESTART_EXCLUDE)


def test_exit_code_93_asks_not_to_be_started_again() -> None:
    assert _verdict([], "FAILED", exit_code=93).suggested is Action.STOP


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_a_job_without_trouble_is_left_alone(state: str) -> None:
    verdict = _verdict([_iteration(n) for n in range(1, 9)], state)
    assert (verdict.symptom, verdict.category, verdict.suggested) == (SymptomKind.NONE, Category.NONE, Action.NONE)
