"""How long a recovery takes once a worker is back is told from the trail and the time of its return."""

from __future__ import annotations

from tests.chaos.interruptions import completions_s
from tests.chaos.records import Outage, Party
from tests.chaos.test_oracle import after, clean


def away(party: Party, since_s: float, until_s: float, *, fatal: bool = True) -> Outage:
    return Outage(party=party, since=after(since_s), until=after(until_s), fatal=fatal)


def test_it_counts_from_the_last_return_before_the_outcome() -> None:
    assert list(completions_s(clean(), [away(Party.WORKER, 11.5, 12), away(Party.WORKER, 12.2, 13)])) == [2.0]


def test_a_recovery_without_a_death_is_not_among_them() -> None:
    assert not list(completions_s(clean(), []))
    assert not list(completions_s(clean(), [away(Party.WORKER, 3, 5), away(Party.WORKER, 12, 13, fatal=False)]))


def test_another_worker_may_have_it_done_before_the_killed_one_is_back() -> None:
    assert list(completions_s(clean(), [away(Party.WORKER, 12, 30)])) == [0.0]


def test_what_another_party_lengthened_is_left_out() -> None:
    assert not list(completions_s(clean(), [away(Party.WORKER, 12, 13), away(Party.TEMPORAL, 13.5, 14)]))
