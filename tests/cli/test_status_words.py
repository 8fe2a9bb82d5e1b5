"""What `relight status` says of a cluster in words."""

from __future__ import annotations

from datetime import UTC, datetime

from activities.blindness import blind
from recovery.policy import PolicySettings
from recovery.suspects import Suspicion
from workers.cli.looking import blind_in_words, sources_in_words, suspects_in_words
from workflows.cluster_state import ClusterStanding

SEEN = {"job": "alpha/1", "blind_since": ""}
BLIND = {"job": "alpha/2", "blind_since": "2026-03-01T12:34:56Z"}
BLIND_LATER = {"job": "alpha/3", "blind_since": "2026-03-01T12:35:00Z"}
ELSEWHERE = {"job": "alphabet/2", "blind_since": "2026-03-01T00:00:00Z"}


def test_the_jobs_of_a_cluster_that_cannot_be_seen_are_counted_with_the_first_ones_time() -> None:
    said = blind_in_words([SEEN, BLIND_LATER, BLIND, ELSEWHERE], "alpha")
    assert said == "2 of 3 jobs blind, the first since 2026-03-01T12:34:56Z"


def test_of_a_cluster_whose_jobs_are_all_in_sight_nothing_is_said() -> None:
    assert blind_in_words([SEEN, ELSEWHERE], "alpha") == ""


def test_each_source_that_cannot_be_seen_is_named_with_its_time_and_reason_and_no_secret() -> None:
    since = datetime(2026, 3, 1, 12, 34, 56, tzinfo=UTC)
    gone = blind("prometheus", since, "no answer to https://relight:hunter22@metrics; check `url`")
    standing = ClusterStanding(pause=None, restarts=0, excluded_nodes=0, tripped=None, blind=(gone,))
    assert sources_in_words(standing) == [
        "prometheus blind since 2026-03-01 12:34:56 UTC: no answer to https://relight:[redacted]@metrics; check `url`"
    ]
    assert sources_in_words(None) == []


def test_each_node_that_several_jobs_point_at_is_named_with_them() -> None:
    now = datetime.now(UTC)
    told = [Suspicion(node=f"node0{n}", job=f"alpha/{job}", weight=1, at=now) for n, job in ((2, 7), (2, 9), (3, 9))]
    standing = ClusterStanding(pause=None, restarts=0, excluded_nodes=0, tripped=None, suspicions=tuple(told))
    assert suspects_in_words(standing, PolicySettings()) == ["node02 is under suspicion by jobs 7, 9"]
    assert suspects_in_words(None, PolicySettings()) == []
