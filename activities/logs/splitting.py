"""New bytes of a log file into lines, and the cursor behind them."""

from __future__ import annotations

import hashlib

from activities.logs.protocol import LogCursor, LogLine
from recovery.signatures.lines import MAX_LINE_BYTES, clean

FINGERPRINT_BYTES = 256
QUIET_S = 1.0


def fingerprint(before: bytes) -> str:
    """Return a digest of the last bytes of `before`; empty for none."""
    return hashlib.blake2b(before[-FINGERPRINT_BYTES:], digest_size=8).hexdigest() if before else ""


def take_lines(
    cursor: LogCursor, before: bytes, new: bytes, *, now: float, more: bool
) -> tuple[list[LogLine], LogCursor]:
    """Return the lines in `new`, and the cursor behind them.

    `before` are the bytes right before `cursor.offset`, `new` those from there on; `more` says that the file goes on
    behind `new`. The unfinished last line is kept back; it is delivered as incomplete when it has not grown for
    `QUIET_S`.
    """
    ended = max(new.rfind(b"\n"), new.rfind(b"\r")) + 1
    if cursor.skipping and not ended:
        return [], _moved(cursor, before, new, len(new), skipping=True)
    lines = complete_lines(new[:ended], cursor.line, skipping=cursor.skipping)
    line = None if cursor.line is None else cursor.line + new.count(b"\n", 0, ended)
    tail = new[ended:]
    behind = _moved(cursor, before, new, ended).model_copy(update={"line": line, "read_to": cursor.offset + len(new)})
    if len(tail) > MAX_LINE_BYTES:
        lines.append(LogLine(_after(line), _text(tail)))
        return lines, _moved(cursor, before, new, len(new), skipping=True).model_copy(update={"line": line})
    if tail and not more:
        behind = _wait_for_end(cursor, behind, len(tail), now)
        if now - behind.quiet_since >= QUIET_S and behind.shown_bytes != len(tail):
            lines += unfinished_line(tail, line)
            behind = behind.model_copy(update={"shown_bytes": len(tail)})
    return lines, behind


def complete_lines(ended: bytes, line: int | None, *, skipping: bool) -> list[LogLine]:
    """Split bytes that end with a line end. A carriage return ends a line too, but only newlines are counted."""
    if skipping and ended:
        ended = ended[min(end for end in (ended.find(b"\n"), ended.find(b"\r")) if end >= 0) :]
    lines: list[LogLine] = []
    for number, physical in enumerate(ended.split(b"\n"), start=(line or 0) + 1):
        texts = (_text(piece) for piece in physical.split(b"\r"))
        lines.extend(LogLine(None if line is None else number, text) for text in texts if text)
    return lines


def unfinished_line(tail: bytes, line: int | None) -> list[LogLine]:
    """Return what follows the last line end, if that is a line at all."""
    text = _text(tail)
    return [LogLine(_after(line), text, complete=False)] if text else []


def _wait_for_end(cursor: LogCursor, behind: LogCursor, tail_bytes: int, now: float) -> LogCursor:
    grew = cursor.offset != behind.offset or cursor.read_to - cursor.offset != tail_bytes or not cursor.quiet_since
    shown = 0 if cursor.offset != behind.offset else cursor.shown_bytes
    return behind.model_copy(update={"quiet_since": now if grew else cursor.quiet_since, "shown_bytes": shown})


def _moved(cursor: LogCursor, before: bytes, new: bytes, by: int, *, skipping: bool = False) -> LogCursor:
    return cursor.model_copy(
        update={
            "offset": cursor.offset + by,
            "read_to": cursor.offset + by,
            "fingerprint": fingerprint(before + new[max(0, by - FINGERPRINT_BYTES) : by]) if by else cursor.fingerprint,
            "skipping": skipping,
            "quiet_since": 0.0,
            "shown_bytes": 0,
        }
    )


def _after(line: int | None) -> int | None:
    return None if line is None else line + 1


def _text(piece: bytes) -> str:
    return clean(piece[:MAX_LINE_BYTES].decode("utf-8", "replace"))
