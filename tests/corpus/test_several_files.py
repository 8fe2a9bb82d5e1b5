"""An attempt whose output lies in several files is read like the same attempt in one: no file begins where one ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from activities.casefile import Case, read_cases
from recovery.attribution.attribute import attribute
from recovery.attribution.incident import Incident, JobFacts, LogLine
from recovery.model import Action, Verdict

CASES = [case for _, case in read_cases(Path(__file__).parent / "dev")]

LAID_OUT_BY: dict[str, Callable[[LogLine], str]] = {
    "host": lambda line: line.host or "job",
    "stream": lambda line: line.stream or "job",
    "host and stream": lambda line: f"{line.host or 'job'}-{line.stream}",
}
SEVERAL_ATTEMPTS = frozenset({"032", "097"})
"""Each file holds several attempts: without stamps nothing tells which of one file's belong to which of another's."""
FAULT_IN_THE_LAST_FILE = frozenset({"067", "081"})
"""What came first lies in another file than what followed: without stamps the file that is given first is believed."""


def _one_file_after_the_other(
    case: Case, name: Callable[[LogLine], str], *, stamped: bool, last_first: bool
) -> Verdict:
    incident = case.incident()
    files: dict[str, list[LogLine]] = defaultdict(list)
    for line in incident.lines:
        files[name(line)].append(line)
    lines = tuple(
        line.model_copy(update={"source": f"{file}.log", "at": line.at if stamped else None})
        for file in sorted(files, reverse=last_first)
        for line in files[file]
    )
    return attribute(incident.model_copy(update={"lines": lines}))


@pytest.mark.parametrize("last_first", [False, True], ids=["by name", "last first"])
@pytest.mark.parametrize("stamped", [True, False], ids=["stamped", "no stamps"])
@pytest.mark.parametrize("name", LAID_OUT_BY.values(), ids=LAID_OUT_BY.keys())
def test_a_verdict_does_not_hang_on_how_many_files_there_are(
    name: Callable[[LogLine], str], stamped: bool, last_first: bool
) -> None:
    untold = frozenset() if stamped else SEVERAL_ATTEMPTS | (FAULT_IN_THE_LAST_FILE if last_first else frozenset())
    for case in (case for case in CASES if case.id not in untold):
        merged = attribute(case.incident())
        apart = _one_file_after_the_other(case, name, stamped=stamped, last_first=last_first)
        assert (apart.symptom, apart.category, apart.culprits, apart.suggested) == (
            merged.symptom,
            merged.category,
            merged.culprits,
            merged.suggested,
        ), case.id


ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
EXIT = "srun: error: node02: task 1: Exited with exit code 1"
NODES = ("node01", "node02", "node03", "node04")


def _iteration(n: int, clock: str = "") -> str:
    return f"{clock} iteration {n:8d}/     100 | consumed samples: {n * 16:12d} | lm loss: 2.5E+00 |"


def _verdict(**files: list[str]) -> Verdict:
    hosts = {name: name if name in NODES else "" for name in files}
    lines = (LogLine(text=text, source=f"{name}.log", host=hosts[name]) for name in files for text in files[name])
    return attribute(Incident(lines=tuple(lines), facts=JobFacts(nodes=NODES, state="FAILED", exit_code=1)))


@pytest.mark.parametrize(
    "files",
    [
        {"node02": [*map(_iteration, range(1, 9)), ECC], "node03": [*map(_iteration, range(1, 9))]},
        {"err": [ECC, EXIT], "out": [*map(_iteration, range(1, 9))]},
        {"node02": [ECC], "job": [EXIT], "node04": [*map(_iteration, range(1, 9))]},
    ],
    ids=["a file a node", "errors apart", "progress elsewhere"],
)
def test_iterations_in_a_file_further_down_are_not_later_ones(files: dict[str, list[str]]) -> None:
    verdict = _verdict(**files)
    assert (verdict.culprits, verdict.suggested) == (("node02",), Action.RESTART_EXCLUDE)


def test_stamps_tell_that_training_went_on_in_another_file() -> None:
    error = f"2025-03-27T00:01:00 {ECC}"
    later = [_iteration(n, f"[2025-03-27 00:0{n}:00.000000]") for n in range(2, 9)]
    before = [_iteration(n, f"[2025-03-27 00:00:0{n}.000000]") for n in range(2, 9)]
    assert _verdict(node02=[error], node04=later).culprits == ()
    assert _verdict(node02=[error], node04=before).culprits == ("node02",)
