"""The files that a batch script sends the output of its steps to: ``srun --output`` and redirections.

Slurm tells where the batch script itself writes and nothing of its steps, in whose files most of a training's lines
stand. So the script is read as far as that can be done without running it: plain assignments, ``cd``, Slurm's own
variables and filename patterns. What only the shell knows (``$(date ...)``, a variable from elsewhere) may be anything;
a name with such a gap is looked for only where the job's own number stands in it, or it would match other jobs' files.
"""

from __future__ import annotations

import fnmatch
import glob
import posixpath
import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from activities.scheduler.filename_pattern import BatchFile, filled, letters_of
from recovery.model import Value

MAX_SCRIPT_CHARS = 64 * 1024
MAX_FILES = 8
GAP = "\x01"
"""Stands for what only the shell knows."""
PER_ATTEMPT = "SLURM_RESTART_COUNT"
"""Not set in the first attempt, and another one in each that follows."""
_PROGRAMS = re.compile(r"srun|mpirun|mpiexec|torchrun|deepspeed|accelerate|python[0-9.]*|bash|sh")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_ARRAY = re.compile(r"(?m)^([ \t]*(?:[a-z]+[ \t]+)?[A-Za-z_]\w*\+?=)\(([^()']*)\)")
_PWD = re.compile(r"\$\(\s*pwd\s*\)|`\s*pwd\s*`")
_COMMAND = re.compile(r"\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`")
_VARIABLE = re.compile(r"\$\{(\w+)(?:\[[@*]\])?(?::?-([^}]*))?\}|\$(\w+)|\$\{[^}]*\}")
_INTO_FILE = frozenset({">", ">>", "&>", "&>>", ">&", ">|"})
_FROM_FILE = frozenset({"<", "<<", "<<<"})
_OUTPUT = re.compile(r"--(?:output|error)(?:=(.*))?|-[oe](.*)", re.DOTALL)
_NO_FILE = re.compile(r"all|none|[0-9]+")
"""What ``srun --output`` takes instead of a file: whose lines come to the batch script's own output (srun's manual)."""
_PREFIXES = frozenset({"export", "readonly", "declare", "local", "typeset"})


class StepFile(Value):
    """One place where lines of a job may stand."""

    path: str
    """Absolute; with `GAP` for what is not known of it."""
    is_the_jobs: bool
    """The job's own number stands in it: no other job writes there."""

    is_by_node: bool = False
    """srun writes one for each node, with the node's name in its own (``%N``)."""

    @property
    def has_gaps(self) -> bool:
        """Whether it may be any of several files, such as one for each attempt."""
        return GAP in self.path

    @property
    def as_glob(self) -> str:
        """The path as a pattern for glob and fnmatch."""
        return "*".join(glob.escape(part) for part in re.split(f"{GAP}+", self.path))

    def may_be(self, path: str) -> bool:
        """Whether `path` is the file, or one of them."""
        return fnmatch.fnmatchcase(path, self.as_glob) if self.has_gaps else path == self.path


def step_files(script: str, job: BatchFile) -> tuple[StepFile, ...]:
    """Return what `script`, run as `job`, sends the output of its steps to, at most `MAX_FILES`. Never raises."""
    found = (_step_file(named.path, job, is_by_node=named.is_by_node) for named in _named(script, job))
    return tuple(dict.fromkeys(each for each in found if each is not None))[:MAX_FILES]


def untold_files(script: str, job: BatchFile) -> tuple[str, ...]:
    """Return what `script` sends the output of its steps to and is not looked for, since too little is known of it; as
    it is written there, at most `MAX_FILES`. Never raises."""
    somewhere = (named for named in _named(script, job) if not named.path.startswith("/dev/"))
    untold = (named.written for named in somewhere if _step_file(named.path, job) is None)
    return tuple(dict.fromkeys(re.sub(f"{GAP}+", "$(...)", name) for name in untold))[:MAX_FILES]


class _Named(NamedTuple):
    """A file that a script names."""

    written: str
    """Its name there, with `GAP` for what other commands would say."""
    path: str
    """Absolute, with `GAP` for all that is not known of it."""
    is_by_node: bool = False


def _named(script: str, job: BatchFile) -> list[_Named]:
    reading = _Reading(job)
    for words, piped in _statements(_without_comments(script[:MAX_SCRIPT_CHARS])):
        reading.take(words, piped=piped)
    return reading.named


class _Reading:
    """What is known at one point of the script."""

    def __init__(self, job: BatchFile) -> None:
        self._job = job
        self._cwd = job.work_dir
        self._trains = False
        self._known = {
            "SLURM_JOB_ID": job.job_number,
            "SLURM_JOBID": job.job_number,
            "SLURM_ARRAY_JOB_ID": job.array_job_id,
            "SLURM_ARRAY_TASK_ID": job.array_task_id,
            "SLURM_JOB_NAME": job.name,
            "SLURM_JOB_USER": job.user,
            "SLURM_SUBMIT_DIR": job.work_dir,
            "USER": job.user,
        }
        self.named: list[_Named] = []

    def take(self, words: list[str], *, piped: bool) -> None:
        """Read one command; `piped`: its input is the output of the one before."""
        words, targets = _redirected(words)
        words = self._assign(words)
        if words[:1] == ["cd"]:
            self._cwd = self._path(words[1]) if len(words) > 1 else GAP
            return
        programs = [posixpath.basename(word) for word in words]
        trains = any(_PROGRAMS.fullmatch(program) for program in programs)
        if trains or words[:1] == ["exec"]:
            self.named += [_Named(target, self._path(target)) for target in targets]
        if "srun" in programs:
            options = list(self._split(words[programs.index("srun") + 1 :]))
            written = [name for name in _written_by_srun(options) if not _NO_FILE.fullmatch(name)]
            self.named += [self._of_srun(name) for name in written]
        if piped and self._trains and targets and programs[:1] == ["tee"]:
            # Otherwise the same lines stand in the batch script's own output.
            self.named += [_Named(word, self._path(word)) for word in words[1:] if not word.startswith("-")]
        self._trains = trains or (piped and self._trains)

    def _of_srun(self, name: str) -> _Named:
        pattern = self._expanded(name)
        path = self._absolute(_filled(pattern, self._job))
        return _Named(name, path, is_by_node="N" in letters_of(pattern))

    def _assign(self, words: list[str]) -> list[str]:
        """Take the assignments before a command, or those that are one, and return the rest."""
        rest = words[1:] if words[:1] and words[0] in _PREFIXES else words
        while rest and (assigned := _ASSIGNMENT.fullmatch(rest[0])):
            name, more, value = assigned.groups()
            before = f"{self._known.get(name, '')} " if more else ""
            self._known[name] = before + self._expanded(value)
            rest = rest[1:]
        return rest

    def _split(self, words: list[str]) -> Iterator[str]:
        """Yield the words with those in the place of variables that stand for several."""
        for word in words:
            several = self._expanded(word) if word.startswith("$") else GAP
            yield from (word,) if several.startswith(GAP) else _words_of(several)

    def _path(self, name: str) -> str:
        return self._absolute(self._expanded(name))

    def _absolute(self, name: str) -> str:
        """Where `name` is; `GAP` where that can't be told, since what is not known of it may begin with a slash."""
        return GAP if name.startswith(GAP) else posixpath.normpath(posixpath.join(self._cwd, name))

    def _expanded(self, word: str) -> str:
        return _VARIABLE.sub(self._value, word)

    def _value(self, match: re.Match[str]) -> str:
        braced, default, plain = match.groups()
        name = braced or plain or ""
        if name == "PWD":
            return self._cwd
        if name == PER_ATTEMPT:
            return GAP
        return self._known.get(name) or (self._expanded(default) if default else GAP)


def _without_comments(script: str) -> str:
    """The script with one line a command, and with `GAP` for what other commands would say."""
    lines = [line for line in script.replace("\\\n", " ").splitlines() if not line.lstrip().startswith("#")]
    text = _COMMAND.sub(GAP, _PWD.sub("${PWD}", "\n".join(map(_without_comment, lines))))
    return _ARRAY.sub(lambda match: f"{match[1]}'{' '.join(match[2].split())}'", text)


def _without_comment(line: str) -> str:
    code, mark, _ = line.partition(" #")
    closed = code.count("'") % 2 == 0 and code.count('"') % 2 == 0
    return code if mark and closed else line


def _statements(script: str) -> Iterator[tuple[list[str], bool]]:
    """Yield the words of each command with its redirections, and whether it reads from the one before."""
    try:
        tokens = _tokens(script)
    except ValueError:  # a quote that is open to the end: each line for itself, but for those that it makes unreadable
        tokens = [token for line in script.splitlines() for token in _tokens_or_none(f"{line}\n")]
    words: list[str] = []
    piped = False
    for token in (*tokens, "\n"):
        if token.strip("();<>|&\n") or token in _INTO_FILE or token in _FROM_FILE:
            words.append(token)
            continue
        if words:
            yield words, piped
        words, piped = [], token in ("|", "|&")


def _tokens(text: str) -> list[str]:
    reader = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    reader.whitespace, reader.whitespace_split, reader.commenters = " \t\r", True, ""
    return list(reader)


def _tokens_or_none(line: str) -> list[str]:
    try:
        return _tokens(line)
    except ValueError:
        return ["\n"]


def _words_of(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()


def _redirected(words: list[str]) -> tuple[list[str], list[str]]:
    """Part a command from the files that its output goes to."""
    plain: list[str] = []
    targets: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in _INTO_FILE:
            if plain and plain[-1] in ("1", "2"):
                plain.pop()
            target = next(rest, "")
            targets += [target] if target and not target.isdigit() else []
        elif word in _FROM_FILE:
            next(rest, "")
        else:
            plain.append(word)
    return plain, targets


def _written_by_srun(words: list[str]) -> Iterator[str]:
    """Yield the values of srun's ``--output`` and ``--error``. Its options end at the first word that can't be the
    value of the one before."""
    before = "-"
    for word in words:
        if not word.startswith("-") and (not before.startswith("-") or "=" in before):
            return
        option = _OUTPUT.fullmatch(before)
        if option and not any(option.groups()) and not word.startswith("-"):
            yield word
        option = _OUTPUT.fullmatch(word)
        if option and any(option.groups()):
            yield option[1] or option[2]
        before = word


def _filled(name: str, job: BatchFile) -> str:
    """Expand Slurm's filename pattern as far as it is the same for all steps and tasks."""
    known = {
        "A": job.array_job_id or job.job_number,
        "a": job.array_task_id or GAP,
        "j": job.job_number,
        "u": job.user,
        "x": job.name,
    }
    return filled(name, known, unknown=GAP)


def _step_file(name: str, job: BatchFile, *, is_by_node: bool = False) -> StepFile | None:
    """The place that `name` stands for; None where it says too little to look for it, or is no file."""
    *folders, last = name.split("/")
    unknown = [part for part in (*folders, last) if GAP in part]
    # To look into every folder of a file system is no way to find one file.
    lost = any(GAP in folder and not _is_the_jobs(folder, job) for folder in folders)
    own = _is_the_jobs(name, job)
    if not name.startswith("/") or name.startswith("/dev/") or lost or (unknown and not own):
        return None
    return StepFile(path=name, is_the_jobs=own, is_by_node=is_by_node)


def _is_the_jobs(name: str, job: BatchFile) -> bool:
    numbers = re.findall(r"[0-9]+", name)
    task = [job.array_job_id, job.array_task_id]
    return job.job_number in numbers or (all(task) and all(number in numbers for number in task))
