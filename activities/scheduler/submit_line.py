"""The command line that a job was submitted with, as accounting keeps it (SubmitLine): the words joined by blanks.

Which words there were can't be told for sure, since a blank may have been part of one. The two values that hold blanks,
the comment and the name, stand in columns of their own and are taken out first; what is still not a plain option of
sbatch is not guessed at: such a job is not submitted again.
"""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

from activities.scheduler.submission import Irrecoverable
from recovery.model import JobId

MAX_CHARS = 20_000
_OPTION = re.compile(r"--([a-z][a-z-]{1,40})(?:=(\S*))?", re.ASCII)
_SHORT = {
    "A": "account", "B": "extra-node-info", "b": "begin", "C": "constraint", "c": "cpus-per-task", "D": "chdir",
    "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "i": "input", "J": "job-name",
    "k": "no-kill", "L": "licenses", "m": "distribution", "N": "nodes", "n": "ntasks", "O": "overcommit",
    "o": "output", "p": "partition", "Q": "quiet", "q": "qos", "S": "core-spec", "s": "oversubscribe", "t": "time",
    "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude",
}  # fmt: skip


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KEPT = _names(
    "account constraint cpus-per-gpu cpus-per-task distribution error extra-node-info gpu-bind gpu-freq gpus"
    " gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input licenses mail-type mail-user mem"
    " mem-bind mem-per-cpu mem-per-gpu network nodelist nodes ntasks ntasks-per-core ntasks-per-gpu"
    " ntasks-per-node ntasks-per-socket output partition priority profile qos reservation signal sockets-per-node"
    " switches threads-per-core time time-min tmp tres-per-task wckey core-spec cores-per-socket mincpus"
    " thread-spec prefer delay-boot container"
)
"""Options with a value, which are given again as they are."""
_KEPT_FLAGS = _names("contiguous exclusive nice no-kill overcommit oversubscribe spread-job use-min-nodes")
_DROPPED = _names("begin chdir comment deadline dependency exclude gid job-name open-mode uid wait-all-nodes")
"""With a value, and either over by now or given by relight itself."""
_DROPPED_FLAGS = _names("get-user-env hold ignore-pbs no-requeue parsable quiet requeue verbose wait")


_WHOLE_ENVIRONMENT = "--export=ALL"
"""The default. The environment itself is kept by nobody."""


class SubmitLine(NamedTuple):
    """What is left of a submission's words."""

    options: tuple[str, ...]
    """To be given again, one word each."""
    arguments: tuple[str, ...]
    """Of the script."""


def read_submit_line(line: str, *, job_id: JobId, comment: str, name: str) -> SubmitLine:
    """Return the options and arguments of a job from its SubmitLine. Raises `Irrecoverable` for what can't be told."""
    if len(line) > MAX_CHARS:
        raise _unclear(job_id, f"its command line is {len(line)} characters long")
    words = deque(_without(line, comment=comment, name=name).split())
    if not words or words.popleft().rpartition("/")[2] != "sbatch":
        raise _unclear(job_id, "accounting keeps no command line of sbatch for it")
    options = []
    while words and words[0].startswith("-"):
        if words[0] == _WHOLE_ENVIRONMENT:
            words.popleft()
            continue
        option, value = _next_option(words, job_id)
        if option in _KEPT:
            options.append(f"--{option}={value}")
        elif option in _KEPT_FLAGS:
            options.append(f"--{option}={value}" if value else f"--{option}")
    return SubmitLine(tuple(options), tuple(words)[1:])


def _without(line: str, *, comment: str, name: str) -> str:
    given = [f"{option}{comment}" for option in ("--comment=", "--comment ") if comment]
    given += [f"{option}{name}" for option in ("--job-name=", "--job-name ", "-J", "-J ") if name]
    line += " "
    for words in given:
        line = line.replace(f" {words} ", " ", 1)
    return line


def _next_option(words: deque[str], job_id: JobId) -> tuple[str, str]:
    """Take the next option off `words`, with the value that stands after it where it has one."""
    word = words.popleft()
    if not word.startswith("--"):
        name = _SHORT.get(word[1:2])
        if name is None:
            raise _unclear(job_id, f"relight does not know sbatch's option {word[:40]!r}")
        return name, _value_of(name, word[2:], words, job_id)
    found = _OPTION.fullmatch(word)
    if found is None or found[1] not in _KEPT | _KEPT_FLAGS | _DROPPED | _DROPPED_FLAGS:
        raise _unclear(job_id, f"it was submitted with {word[:60]!r}, which relight can't give again")
    return found[1], found[2] if found[2] is not None else _value_of(found[1], "", words, job_id)


def _value_of(name: str, joined: str, words: deque[str], job_id: JobId) -> str:
    if name not in _KEPT | _DROPPED or joined:
        return joined
    if not words:
        raise _unclear(job_id, f"its command line ends with --{name}")
    return words.popleft()


def _unclear(job_id: JobId, why: str) -> Irrecoverable:
    return Irrecoverable(f"job {job_id} can't be submitted as it was: {why}")
