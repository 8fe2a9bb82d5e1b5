"""What is kept of an attempt before it is killed, as the operator wants it."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints

from recovery.model import Value

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./{}=:@,+-]{1,200}$")]


class EvidenceSettings(Value):
    """The end of its output is always kept; the stacks of its processes where `stacks` says so."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stacks: bool = False
    """Ask the job's Python processes for their stacks, with py-spy, in a job step of its own."""
    py_spy: str = Field(default="py-spy", pattern=r"^[A-Za-z0-9_./+-]{1,200}$")
    """py-spy's name or path on the nodes. Where it is missing there are no stacks, and that is noted."""
    as_owner: tuple[Word, ...] = Field(default=(), max_length=10)
    """What goes before ``srun`` to run it as the job's owner, with ``{user}`` for their name, such as ``[runuser, -u,
    "{user}", --]``: Slurm starts steps for nobody else. Empty: under relight's own account, which then is the owner."""
