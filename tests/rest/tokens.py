"""Tokens as ``scontrol token`` prints them, and secrets that only look like it."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta


def made_token(*, lasts: timedelta | None = timedelta(hours=1), user: str = "relight", mark: str = "sig") -> str:
    """Return a token that ends after `lasts` from now; `mark` tells two of them apart."""
    claims: dict[str, object] = {"iat": 0, "sun": user}
    if lasts is not None:
        claims["exp"] = int((datetime.now(UTC) + lasts).timestamp())
    return f"{_part({'alg': 'HS256', 'typ': 'JWT'})}.{_part(claims)}.{mark}"


def _part(content: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
