"""What every section of the settings is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A part of the settings: frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Port = Annotated[int, Field(ge=0, le=65_535)]
