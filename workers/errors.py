"""What goes wrong for the person who starts relight: one line of what happened, and a hint of what to do next."""

from __future__ import annotations


class OperatorError(Exception):
    """An error that its reader can mend. The command line prints `message`, then `hint`, and no traceback."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message
