"""Slurm's job dependencies, as squeue and slurmrestd tell of them: ``afterok:12(unfulfilled),singleton(unfulfilled)``.

Seen on 22.05.8: terms that must all hold are joined by a comma, terms of which one is enough by a question mark; what
is fulfilled is left out; an array stands as ``12_*`` and one task as ``12_3``. **A term that failed stays failed**:
once slurmctld saw a job FAILED, ``afterok`` of it can never be fulfilled again, also when the job is requeued and
completes. ``scontrol update Dependency=`` of the waiting job begins anew.
"""

from __future__ import annotations

import re

from recovery.model import Value

MAX_CHARS = 4_000
"""Longer texts are read up to here."""
_TERM = re.compile(r"([a-z]+)(?::([0-9]+(?:_(?:\*|[0-9]+))?))?(?:\+[0-9]+)?(?:\(([a-z]+)\))?")
_ONLY_ON_SUCCESS = ("afterok", "aftercorr")


class Term(Value):
    """One condition."""

    kind: str
    """Slurm's word, such as ``afterok``, ``afterany``, ``singleton``."""
    job: str = ""
    """The job it is about: an id, ``<array>_<task>``, or ``<array>_*``; empty for ``singleton``."""
    failed: bool = False
    """It can never be fulfilled any more, by Slurm's own word."""

    def needs_success_of(self, job_id: str) -> bool:
        """Whether this needs that job, or the array that it is a task of, to complete."""
        ours = self.job == job_id or self.job == f"{job_id.partition('_')[0]}_*"
        return self.kind in _ONLY_ON_SUCCESS and ours


class Dependency(Value):
    """What a pending job waits for; without terms: for nothing."""

    terms: tuple[Term, ...] = ()
    one_is_enough: bool = False

    def is_lost(self, job_id: str, *, for_good: bool) -> bool:
        """Whether this can't be fulfilled any more because that job failed. `for_good`: it will not come back, so that
        also what Slurm has not given up yet is lost; otherwise only what it has."""
        by_it = [term for term in self.terms if term.needs_success_of(job_id) and (term.failed or for_good)]
        lost = [term.failed or term in by_it for term in self.terms]
        return bool(by_it) and (all(lost) or not self.one_is_enough)


NO_DEPENDENCY = Dependency()


def read_dependency(text: str) -> Dependency:
    """Return what `text` asks for. A term that can't be read is kept as a kind of its own: it may yet be fulfilled."""
    text = text[:MAX_CHARS]
    return Dependency(terms=tuple(map(_term, re.split(r"[,?]", text))), one_is_enough="?" in text)


def _term(text: str) -> Term:
    found = _TERM.fullmatch(text.strip())
    if found is None:
        return Term(kind=text.strip())
    return Term(kind=found[1], job=found[2] or "", failed=found[3] == "failed")
