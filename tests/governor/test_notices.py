"""One message for many failures, in bounded size."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from recovery.notices import (
    NAMED_JOBS,
    NAMED_WORDS,
    QUIET,
    WAITING_NOTICES,
    FailureSeen,
    Notice,
    NoticeBoard,
    NoticeKind,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def failure(number: int, partition: str = "gpu", category: str = "storage") -> FailureSeen:
    return FailureSeen(
        job=f"alpha/{number}", partition=partition, category=category, what="the filesystem is gone.", advice="restart"
    )


def board_with(*failures: FailureSeen) -> NoticeBoard:
    board = NoticeBoard()
    for each in failures:
        board = board.with_failure(each)
    return board


def test_the_first_failure_is_told_at_once_and_by_itself() -> None:
    board = board_with(failure(1)).summed_up("alpha", NOW)

    [notice] = board.waiting
    assert notice.text == "job alpha/1 failed: the filesystem is gone. Advice: restart"
    assert (notice.kind, notice.failures, notice.jobs) == (NoticeKind.FAILURES, 1, ("alpha/1",))
    assert board.gathered.count == 0


def test_all_that_fail_within_a_minute_of_a_message_are_told_in_one_more() -> None:
    board = board_with(failure(1)).summed_up("alpha", NOW)
    for number in range(2, 201):
        board = board.with_failure(failure(number, "gpu" if number % 4 else "debug"))
        board = board.summed_up("alpha", NOW + timedelta(seconds=1))
    assert len(board.waiting) == 1
    assert board.quiet_for(NOW + timedelta(seconds=1)) == QUIET - timedelta(seconds=1)

    board = board.summed_up("alpha", NOW + QUIET)

    storm = board.waiting[1]
    assert storm.failures == 199
    assert storm.partitions == {"gpu": 149, "debug": 50}
    assert storm.text.startswith(
        "199 more jobs failed on alpha (partitions: gpu 149, debug 50; causes: storage 199): alpha/2, alpha/3, "
    )
    assert storm.text.endswith(f"and {199 - NAMED_JOBS} others")


def test_a_failure_after_a_quiet_time_is_no_more_of_the_same() -> None:
    board = board_with(failure(1)).summed_up("alpha", NOW)
    later = NOW + timedelta(hours=1)

    board = board.with_failure(failure(2)).with_failure(failure(3)).summed_up("alpha", later)

    assert board.waiting[1].text.startswith("2 jobs failed on alpha ")


def test_a_message_and_the_board_are_bounded_whatever_fails() -> None:
    board = NoticeBoard()
    for number in range(1_000):
        board = board.with_failure(failure(number, partition=f"p{number}" * 20, category=f"c{number}" * 50))
    board = board.summed_up("alpha", NOW)

    [notice] = board.waiting
    assert len(notice.text) <= 2_000
    assert len(notice.partitions) == NAMED_WORDS + 1
    assert sum(notice.partitions.values()) == notice.failures == 1_000


def test_messages_that_nobody_takes_do_not_pile_up() -> None:
    board = NoticeBoard()
    for number in range(100):
        board = board.with_notice(Notice(kind=NoticeKind.PAUSED, cluster="alpha", at=NOW, text=str(number)))

    assert [notice.text for notice in board.waiting] == [str(number) for number in range(100 - WAITING_NOTICES, 100)]
    assert len(board.without(board.waiting[0]).waiting) == WAITING_NOTICES - 1


def test_a_failure_that_is_reported_again_counts_once() -> None:
    again = failure(1).model_copy(update={"attempt": 1})
    board = board_with(failure(1), failure(2), failure(1), again)
    assert board.gathered.count == 3
