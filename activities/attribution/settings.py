"""What an operator says about an attribution service: which kind it is, where it is, how long to wait for it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from activities.stores.access import LocalPath, StoreAccess


class ServiceSettings(BaseModel):
    """What all services have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(default="", pattern=r"^([a-z][a-z0-9-]{0,31})?$")
    """What the service is called on record and in messages. Empty: its kind."""
    access: StoreAccess = StoreAccess()
    timeout_s: float = Field(default=10.0, ge=0.5, le=120)
    """For one answer."""
    slow_s: float = Field(default=180.0, ge=1, le=3_600)
    """How long an opinion is waited for, beside everything else."""

    @property
    def called(self) -> str:
        """The service's name."""
        return self.name or str(getattr(self, "kind", "service"))


class NvrxSettings(ServiceSettings):
    """nvidia-resiliency-ext's nvrx-attrsvc, release 0.6 or 0.7."""

    kind: Literal["nvrx"]
    url: str = Field(pattern=r"^https?://[^\s?#]+$")
    """Base address, before ``/logs``."""
    poll_interval_s: float = Field(default=2.0, ge=0.2, le=60)
    max_asks_per_min: float = Field(default=48.0, ge=1, le=6_000)
    """How often the service is asked for results in all; it refuses more than 60 a minute as it comes."""
    copy_dir: LocalPath | None = None
    """A directory under the service's ALLOWED_ROOT, where relight writes the output of each failed attempt into a file
    of its own. None: only attempts whose output file is theirs alone are asked about."""


class HttpSettings(ServiceSettings):
    """A service of the site's own: docs/attribution-services.md."""

    kind: Literal["http"]
    url: str = Field(pattern=r"^https?://[^\s?#]+$")
    """The address that questions are posted to."""
    fast_s: float = Field(default=2.0, ge=0, le=10)
    """For an opinion beside relight's own attribution, which is never kept waiting; 0: don't ask then."""
    poll_interval_s: float = Field(default=5.0, ge=0.5, le=120)
    """How soon it is asked again where it says that it still works."""


AttributionSettings = Annotated[NvrxSettings | HttpSettings, Field(discriminator="kind")]
