"""An incident read once: every line with its node, rank, time, signature and progress marker, cut into attempts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.attribution.attempts import split_attempts
from recovery.attribution.clocks import Clock
from recovery.attribution.gauges import Gauge, read_gauges
from recovery.attribution.handled import handled
from recovery.attribution.incident import Incident, JobFacts, LogLine, MetricSample
from recovery.attribution.iterations import FinishedIterations
from recovery.attribution.ranks import RankMap, learn_ranks
from recovery.attribution.reading import Reading
from recovery.attribution.tracebacks import PythonException, read_exceptions
from recovery.detection.markers import IterationFinished, TrainingCompleted
from recovery.detection.progress import read_marker
from recovery.model import SymptomKind
from recovery.signatures.catalogue import Catalogue, Match, Role, Witness
from recovery.signatures.lines import LinePrefix, clean, parse_prefix

_ITERATIONS_THAT_PROVE_SURVIVAL = 2
_PROGRAMS = ("stdout", "stderr", "")
_OF_SLURM = ("srun: ", "slurmstepd: ")
_DONE_WITHOUT = frozenset({"program_not_found", "service_unavailable", "remote_file_missing", "gpu_driver_unreachable"})
"""What a script may miss and go on, unless it is the end of a traceback."""
_SCRIPTS_GO_ON = timedelta(minutes=1)
"""A script that ends because of such a line ends at once."""


@dataclass(frozen=True)
class Scene:
    """The last attempt's readings, with the earlier ones' as history."""

    readings: tuple[Reading, ...]
    earlier: tuple[tuple[Reading, ...], ...]
    """Earlier attempts, oldest first."""
    exceptions: tuple[PythonException, ...]
    """Uncaught Python exceptions of the last attempt, in order of appearance."""
    metrics: tuple[MetricSample, ...]
    ranks: RankMap
    facts: JobFacts
    now: datetime | None
    silence: timedelta | None
    detected: SymptomKind

    @functools.cached_property
    def iterations(self) -> tuple[Reading, ...]:
        """The lines that report a finished training iteration."""
        return tuple(r for r in self.readings if isinstance(r.marker, IterationFinished))

    @functools.cached_property
    def gauges(self) -> tuple[Gauge, ...]:
        """The samples of metrics, parsed."""
        return read_gauges(self.metrics, self.ranks, self.facts)

    @functools.cached_property
    def completed(self) -> bool:
        """Whether the program says that it trained as far as it was asked to, or Slurm that it completed."""
        return self.facts.state == "COMPLETED" or any(isinstance(r.marker, TrainingCompleted) for r in self.readings)

    @property
    def is_of_training(self) -> bool:
        """Whether anything tells of a job that trains: the scheduler, a gauge, or a line that a launcher, a training
        program or what they run on is known to print."""
        return bool(self.facts.state or self.metrics or self.exceptions) or any(
            r.match or r.marker or r.rank_printed or r.task is not None for r in self.readings
        )

    @property
    def nodes(self) -> tuple[str, ...]:
        """The allocation."""
        return self.ranks.nodes

    @functools.cached_property
    def last_at(self) -> datetime | None:
        """The time of asking: given, or the latest time that anything carries."""
        times = [r.at for r in self.readings if r.at] + [m.at for m in self.metrics if m.at]
        return self.now or max(times, default=None)

    def survived(self, reading: Reading) -> bool:
        """Whether training went on after this line: several iterations finished behind it. A line that was forwarded
        late counts from when it says that it happened. A command or a service that a script can do without is survived
        when programs say something much later; what a process caught, when it is at work much later or caught the same
        before."""
        if reading.order in self._handled:
            return True
        if reading.cause in _DONE_WITHOUT and self._script_went_on(reading):
            return True
        return self._outlived(reading)

    def _outlived(self, reading: Reading) -> bool:
        """Whether several iterations finished behind it."""
        if reading.forwarded_late and reading.at:
            return sum(1 for r in self.iterations if r.at and r.at > reading.at) >= _ITERATIONS_THAT_PROVE_SURVIVAL
        return self._finished.after(reading) >= _ITERATIONS_THAT_PROVE_SURVIVAL

    def _script_went_on(self, reading: Reading) -> bool:
        if reading.order in self._uncaught or not reading.at or not self._last_word_at:
            return False
        return self._last_word_at - reading.at > _SCRIPTS_GO_ON

    @functools.cached_property
    def _uncaught(self) -> frozenset[int]:
        return frozenset(e.last.order for e in self.exceptions)

    @functools.cached_property
    def _handled(self) -> frozenset[int]:
        return handled(self.exceptions, self.readings, self._outlived, self.facts.has_failed)

    @functools.cached_property
    def _last_word_at(self) -> datetime | None:
        """When a program last said something of its own."""
        own = (r.at for r in self.readings if r.line.stream in _PROGRAMS and not r.text.startswith(_OF_SLURM))
        return max((at for at in own if at), default=None)

    @functools.cached_property
    def _finished(self) -> FinishedIterations:
        return FinishedIterations(self.iterations)

    def roots(self, *witnesses: Witness) -> Iterator[Reading]:
        """Yield the lines that can be the first fault and that training did not survive, in order."""
        return (r for r in self.readings if r.is_a(Role.ROOT, *witnesses) and not self.survived(r))

    def where(self, matching: Callable[[Reading], bool]) -> tuple[Reading, ...]:
        """Return the last attempt's readings for which `matching` holds."""
        return tuple(r for r in self.readings if matching(r))

    def in_order(self, nodes: set[str] | frozenset[str]) -> tuple[str, ...]:
        """Return those of the allocation's nodes that are in `nodes`, in the allocation's order."""
        return tuple(node for node in self.nodes if node in nodes)


def read_scene(incident: Incident, catalogue: Catalogue) -> Scene:
    """Read every line of `incident` once."""
    nodes = frozenset(incident.facts.nodes)
    lines = _in_order(_sent_once(incident.lines))
    texts = [clean(line.text) for line in lines]
    prefixed = [(line, parse_prefix(text, nodes)) for line, text in zip(lines, texts, strict=True)]
    matches = [catalogue.match(text) for text in texts]
    ranks = learn_ranks(prefixed, incident.facts, _named_hosts(matches, incident.metrics))
    clock = Clock.learn(prefixed, incident.now)
    readings = [
        _read(order, line, prefix, None if _is_anothers(match, ranks, incident.facts) else match, text, ranks, clock)
        for order, ((line, prefix), match, text) in enumerate(zip(prefixed, matches, texts, strict=True))
    ]
    *earlier, last = split_attempts(readings)
    return Scene(
        readings=tuple(last),
        earlier=tuple(tuple(attempt) for attempt in earlier),
        exceptions=read_exceptions(last, catalogue),
        metrics=incident.metrics,
        ranks=ranks,
        facts=incident.facts,
        now=incident.now,
        silence=incident.silence,
        detected=incident.detected,
    )


def _sent_once(lines: Sequence[LogLine]) -> list[LogLine]:
    """Leave out what a collector sent again: the very line, of the same process and moment, further up. Read twice, the
    end of an attempt would look like two attempts that ended alike. Within one burst a line may be there twice, as
    frames of a traceback are."""
    bursts: dict[tuple[object, ...], int] = {}
    burst, begun_by = 0, None
    once = []
    for line in lines:
        if line.at is not None:
            moment = (line.source, line.host, line.rank, line.stream, line.at)
            if moment != begun_by:
                burst, begun_by = burst + 1, moment
            if bursts.setdefault((*moment, line.text), burst) != burst:
                continue
        once.append(line)
    return once


def _in_order(lines: Sequence[LogLine]) -> list[LogLine]:
    """Merge several sources by time, keeping each source's own order: a line without time stays behind its
    forerunner. Where a source begins without any time, the order given stands."""
    if len({line.source for line in lines}) < 2:
        return list(lines)
    latest: dict[str, float] = {}
    keyed = []
    for line in lines:
        if line.at:
            latest[line.source] = max(line.at.timestamp(), latest.get(line.source, 0.0))
        if line.source not in latest:
            return list(lines)
        keyed.append((latest[line.source], line))
    return [line for _, line in sorted(keyed, key=lambda pair: pair[0])]


def _named_hosts(matches: Iterable[Match | None], metrics: Iterable[MetricSample]) -> set[str]:
    """The nodes that the scheduler's messages and the gauges name."""
    named = {m.fields.get(name, "") for m in matches if m for name in ("node", "nodes") if m.signature.culprit == name}
    return {name for names in named for name in names.split(",") if "[" not in names} | {m.host for m in metrics}


def _is_anothers(match: Match | None, ranks: RankMap, facts: JobFacts) -> bool:
    """Daemons speak of all jobs and nodes: whether a line names another job, or only nodes that are not ours."""
    if match is None:
        return False
    job = match.fields.get("job", "")
    if job and not facts.is_named(job):
        return True
    culprit = match.signature.culprit
    names = match.fields.get(culprit, "") if culprit in ("node", "nodes") and ranks.allocation_known else ""
    return bool(names) and "[" not in names and not any(ranks.node(name) for name in names.split(","))


def _read(
    order: int,
    line: LogLine,
    prefix: LinePrefix,
    match: Match | None,
    text: str,
    ranks: RankMap,
    clock: Clock,
) -> Reading:
    rank = prefix.rank if prefix.rank is not None else line.rank
    at, forwarded_late = clock.time_of(line, prefix)
    return Reading(
        order=order,
        line=line,
        text=prefix.rest,
        node=_node_of(line, prefix, rank, ranks),
        rank=rank,
        task=prefix.task,
        rank_printed=prefix.rank is not None,
        at=at,
        forwarded_late=forwarded_late,
        match=match,
        marker=read_marker(text),
    )


def _node_of(line: LogLine, prefix: LinePrefix, rank: int | None, ranks: RankMap) -> str:
    """Whoever is most specific: the line itself, then its source, then the rank or task it belongs to."""
    named = prefix.host or line.host
    if named:
        return ranks.node(named)
    return ranks.of_rank(rank) or ranks.of_task(prefix.task)
