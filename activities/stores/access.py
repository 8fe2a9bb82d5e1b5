"""What an operator says about how to get into a store, whatever it holds."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from recovery.redaction import redact

LocalPath = Annotated[Path, AfterValidator(Path.expanduser)]


def shown_address(url: str) -> str:
    """Return the address for people: without the account and the password that may stand in it."""
    scheme, _, rest = url.rstrip("/").partition("://")
    authority, slash, path = rest.partition("/")
    return redact(f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}")


class StoreAccess(BaseModel):
    """How to get into a store. Secrets stand in files of their own, which are read again when they change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    username: str = ""
    password_file: LocalPath | None = None
    bearer_token_file: LocalPath | None = None
    ca_file: LocalPath | None = None
    """PEM bundle that the store's certificate is checked against; none: the system's."""
    client_cert_file: LocalPath | None = None
    client_key_file: LocalPath | None = None

    @model_validator(mode="after")
    def _is_one_way(self) -> StoreAccess:
        if bool(self.username) != (self.password_file is not None):
            raise ValueError("username and password_file belong together")
        if self.username and self.bearer_token_file is not None:
            raise ValueError("either username or bearer_token_file")
        if self.client_key_file is not None and self.client_cert_file is None:
            raise ValueError("client_key_file needs client_cert_file")
        return self

    def authorization(self) -> dict[str, str]:
        """Return the header that tells who we are; none where no secret is set. Reads the secret anew. Raises `OSError`
        and `UnicodeError` where its file can't be read."""
        if self.bearer_token_file is not None:
            return {"Authorization": f"Bearer {self.bearer_token_file.read_text().strip()}"}
        if self.password_file is not None:
            password = self.password_file.read_text().rstrip("\r\n")
            pair = base64.b64encode(f"{self.username}:{password}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}
