"""What happens in one run: which jobs there are and which blows fall when. Drawn from a seed and from nothing else."""

from __future__ import annotations

import random

from activities.scheduler.simulated_wire import Fault
from recovery.model import Value
from tests.chaos.blows import ON_JOBS, ON_THE_HOUSE, Blow, BlowKind, HitsJob
from tests.chaos.kinds import JobKind

WARM_UP_S = 4.0
"""The jobs train before the first blow falls."""
LIFE_S = (0.3, 9.0)
"""The shortest and the longest life of a worker. What one of them watched is taken over 20 s after its death."""
WAVE_EVERY_S = 60.0
"""In a dense run the jobs come in waves, one of each kind."""
MAX_SHARE = 0.5
"""Of all calls that go wrong."""


class PlannedJob(Value):
    """One job."""

    place: int
    """In the plan; it names the job."""
    kind: JobKind
    nodes: int
    fault_iteration: int
    at_s: float = 0.0
    """When it is submitted."""

    @property
    def name(self) -> str:
        return f"{self.kind.name.lower()}-{self.place}"


class Plan(Value):
    """One run."""

    seed: int
    jobs: tuple[PlannedJob, ...]
    blows: tuple[Blow, ...]
    faults: dict[Fault, float]
    """The share of the scheduler's calls that each fault happens to while the blows fall."""
    delay_s: float
    """How late delayed requests and answers are."""
    window_s: float
    """How long the blows fall."""
    lives_s: tuple[tuple[float, ...], ...]
    """For each worker process of the house, how long it serves before it is killed, life after life; when they are all
    over, or the window is, the next one lives."""
    ambushes: tuple[int, ...]
    """Numbers of our calls right after which all workers are killed: so every step of an act is the last one once."""
    options: str = ""
    """What `command` adds."""

    @property
    def command(self) -> str:
        """What does this run again."""
        return f"python -m tests.chaos --seed {self.seed} --runs 1 --window-s {self.window_s:g}{self.options}"


def make_plan(
    seed: int,
    *,
    window_s: float = 30.0,
    every_kind: bool = False,
    dense: int = 0,
    kinds: tuple[JobKind, ...] = tuple(JobKind),
) -> Plan:
    """Return the run of `seed`. Each kind of blow on the house is in or out by seed; `every_kind`: all are in.

    `dense`: so many workers, killed again and again, and new jobs all the time. With a single one few recoveries would
    get anywhere. `kinds`: of the jobs, one of each in a wave.
    """
    draw = random.Random(seed)
    waves = max(1, int(window_s / WAVE_EVERY_S)) if dense else 1
    jobs = _jobs(draw, waves, kinds)
    blows = [blow for kind in ON_THE_HOUSE for blow in _on_the_house(draw, kind, window_s, every_kind=every_kind)]
    blows += [blow for job in jobs for blow in _on_job(draw, job)]
    faulty = every_kind or draw.random() < 0.7
    rates = {fault: round(draw.uniform(0.01, MAX_SHARE / len(Fault) / 1.3), 3) for fault in Fault}
    killed = every_kind or bool(dense) or draw.random() < 0.9
    lie_in_wait = every_kind or bool(dense) or draw.random() < 0.6
    words = {"--every-kind": every_kind, f"--dense {dense}": bool(dense)}
    return Plan(
        seed=seed,
        jobs=jobs,
        blows=tuple(sorted(blows, key=lambda blow: blow.at_s)),
        faults=rates if faulty else {},
        delay_s=round(draw.uniform(0.2, 3.0), 2),
        window_s=window_s,
        lives_s=tuple(_lives(draw, window_s if killed else 0.0) for _ in range(dense or 1)),
        ambushes=tuple(sorted(draw.sample(range(1, 30 * waves), 3 * waves))) if lie_in_wait else (),
        options="".join(f" {word}" for word, there in words.items() if there),
    )


def _jobs(draw: random.Random, waves: int, of_kinds: tuple[JobKind, ...]) -> tuple[PlannedJob, ...]:
    jobs: list[PlannedJob] = []
    for wave in range(waves):
        kinds = list(of_kinds)
        draw.shuffle(kinds)
        jobs += [
            PlannedJob(
                place=len(jobs) + number,
                kind=kind,
                nodes=draw.choice((1, 1, 2)) if kind is not JobKind.HANG else 2,
                fault_iteration=draw.randint(8, 40),
                at_s=round(wave * WAVE_EVERY_S + (draw.uniform(0, WAVE_EVERY_S / 2) if wave else 0), 2),
            )
            for number, kind in enumerate(kinds)
        ]
    return tuple(jobs)


def _lives(draw: random.Random, window_s: float) -> tuple[float, ...]:
    lives: list[float] = []
    while sum(lives) < window_s:
        lives.append(round(draw.uniform(*LIFE_S), 2))
    return tuple(lives)


def _on_the_house(draw: random.Random, kind: BlowKind, window_s: float, *, every_kind: bool) -> list[Blow]:
    hits = ON_THE_HOUSE[kind]
    times = [round(draw.uniform(WARM_UP_S, window_s), 2) for _ in range(draw.randint(1, 2))]
    longest_s = min(hits.lasts_at_most_s, window_s / 4)
    lasting = [round(draw.uniform(0.0, longest_s), 2) for _ in times]
    in_it = every_kind or draw.random() < hits.chance
    return [Blow(at_s=at_s, kind=kind, lasts_s=s) for at_s, s in zip(times, lasting, strict=True) if in_it]


def _on_job(draw: random.Random, job: PlannedJob) -> list[Blow]:
    """What people and hardware do to the job while it trains, or while it recovers."""
    hits: HitsJob | None = ON_JOBS.get(job.kind)
    if hits is None:
        return []
    at_s = job.at_s + draw.uniform(2.0, hits.within_s)
    return [
        Blow(
            at_s=round(at_s, 2),
            kind=hits.blow,
            lasts_s=hits.lasts_s,
            job=job.place,
            in_recovery=hits.in_recovery,
        )
    ]
