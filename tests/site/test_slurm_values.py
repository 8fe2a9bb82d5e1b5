"""Single values as Slurm prints them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.scheduler.slurm_values import exit_told, moment, span, state_told, whole_number


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("3-00:00:00", timedelta(days=3)),
        ("14-00:00:00", timedelta(days=14)),
        ("48:13", timedelta(minutes=48, seconds=13)),
        ("00:31.654", timedelta(seconds=31)),
        ("6:03:26", timedelta(hours=6, minutes=3, seconds=26)),
        ("300 sec", timedelta(seconds=300)),
        ("2000 usec", timedelta(microseconds=2000)),
        ("60 min", timedelta(hours=1)),
        ("600", timedelta(minutes=10)),
        ("UNLIMITED", None),
        ("infinite", None),
    ],
)
def test_a_span_of_time_is_understood(text: str, told: timedelta | None) -> None:
    assert span(text) == told


def test_a_time_is_told_in_seconds_or_in_the_hosts_own_zone() -> None:
    noon = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

    assert moment("1772366400", UTC) == moment("2026-03-01T12:00:00", UTC) == noon
    assert moment("0", UTC) is None
    assert moment("Unknown", UTC) is None


@given(st.text(max_size=30) | st.text(alphabet="0123456789-:.T+Z ", max_size=30))
def test_any_text_is_a_value_or_an_error_that_says_so(text: str) -> None:
    for read in (span, whole_number, exit_told, lambda told: moment(told, UTC)):
        try:
            read(text)
        except ValueError:
            continue
    assert not state_told("ODD" + text).state.ended
