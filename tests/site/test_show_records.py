"""Partitions and reservations as scontrol prints them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.scheduler.protocol import SchedulerUnavailable
from activities.scheduler.show_records import read_partitions, read_reservations
from tests.site.answers import answer

RESERVED = (
    "ReservationName=maint1 StartTime=2026-11-29T18:31:05 EndTime=2026-11-29T19:31:05 Duration=01:00:00 "
    "Nodes=node[01-02] NodeCnt=2 CoreCnt=8 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES "
    "TRES=cpu=8 Users=root,ops Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null)"
)


def test_the_partitions_of_another_site_are_read() -> None:
    partitions = {partition.name: partition for partition in read_partitions(answer("partitions.txt"))}

    assert len(partitions) == 8
    second = partitions["partition2"]
    assert (second.state, len(second.nodes), second.preempt_mode) == ("UP", 1631, "REQUEUE")
    assert (second.max_time, second.grace_time) == (timedelta(days=3), timedelta(minutes=10))
    assert (second.max_nodes, second.priority_tier, second.is_default) == (None, 20, False)


def test_a_reservation_covers_its_nodes_while_it_lasts() -> None:
    (reservation,) = read_reservations(RESERVED + "\n", UTC)

    assert reservation.flags == {"MAINT", "IGNORE_JOBS", "SPEC_NODES"}
    assert (reservation.users, reservation.accounts, reservation.state) == (("root", "ops"), (), "INACTIVE")
    during = datetime(2026, 11, 29, 19, 0, tzinfo=UTC)
    assert reservation.covers("node02", during)
    assert not reservation.covers("node03", during)
    assert not reservation.covers("node02", during + timedelta(hours=1))


def test_no_reservation_is_an_answer() -> None:
    assert read_reservations("No reservations in the system\n", UTC) == ()


@pytest.mark.parametrize("said", ["", "\n", "Unable to contact slurm controller", "ReservationName=x", "A=1 B=2"])
def test_what_is_no_list_of_reservations_is_no_answer(said: str) -> None:
    with pytest.raises(SchedulerUnavailable):
        read_reservations(said, UTC)


@given(st.binary(max_size=200), st.text(alphabet="StateNodes=[]-1 ,\n", max_size=120))
def test_any_bytes_are_records_or_no_answer(noise: bytes, fields: str) -> None:
    for said in (noise.decode(errors="replace"), f"PartitionName=a State=UP {fields}", f"{RESERVED} {fields}"):
        for read in (read_partitions, lambda text: read_reservations(text, UTC)):
            try:
                read(said)
            except SchedulerUnavailable:
                continue
