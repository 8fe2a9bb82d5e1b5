"""What an operator says about a log store: where it is, how to get in, and what its labels are called."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from activities.stores.access import StoreAccess

_LABEL = r"^[A-Za-z_][A-Za-z0-9_.:-]{0,127}$"
_OPTIONAL_LABEL = r"^([A-Za-z_][A-Za-z0-9_.:-]{0,127})?$"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LabelNames(_Section):
    """How a store's labels (VictoriaLogs: fields) are called. Empty: there is none."""

    job_id: str = Field(default="slurm_job_id", pattern=_LABEL)
    """Holds the job id as squeue prints it; of an array task ``123_4``."""
    node: str = Field(default="host", pattern=_OPTIONAL_LABEL)
    rank: str = Field(default="rank", pattern=_OPTIONAL_LABEL)
    file: str = Field(default="filename", pattern=_OPTIONAL_LABEL)
    stream: str = Field(default="stream", pattern=_OPTIONAL_LABEL)
    """``stdout`` or ``stderr``."""
    cluster: str = Field(default="", pattern=_OPTIONAL_LABEL)
    """Holds the cluster's name as in these settings. Needed where several clusters share a store: job ids repeat."""


class StoreSettings(_Section):
    """What all stores have in common."""

    name: str = Field(default="", pattern=r"^([a-z][a-z0-9-]{0,31})?$")
    """What the store is called in evidence and messages. Empty: its kind."""
    url: str = Field(pattern=r"^https?://[^\s?#]+$")
    """Base address, before ``/loki/api/v1`` or ``/select/logsql``."""
    access: StoreAccess = StoreAccess()
    labels: LabelNames = LabelNames()
    tail: bool = True
    """Let the store push new lines, and ask for them only now and then; if not, ask every `poll_interval_s`."""
    poll_interval_s: float = Field(default=5.0, ge=0.5, le=300)
    late_s: float = Field(default=15.0, ge=1, le=600)
    """How much later than its time a line may arrive at the store and still be heard."""
    stale_after_s: float = Field(default=60.0, ge=5, le=3_600)
    """Without a new line of any job for so long the store's silence says nothing: blind, never a hang."""
    max_jobs_per_query: int = Field(default=400, ge=1, le=1_000)
    timeout_s: float = Field(default=15.0, gt=0, le=120)

    @property
    def called(self) -> str:
        """The store's name."""
        return self.name or str(getattr(self, "kind", "store"))


class LokiSettings(StoreSettings):
    """Grafana Loki, or what speaks its HTTP API."""

    kind: Literal["loki"]
    tenant: str = Field(default="", max_length=150, pattern=r"^[A-Za-z0-9!_.*'()|-]*$")
    """``X-Scope-OrgID``; empty: the header is left out."""
    selector: str = Field(default="", pattern=r"^(\{.+\})?$")
    """A stream selector such as ``{app="slurm"}`` that all jobs' streams match, which makes queries cheaper."""
    canary: str = Field(default="", pattern=r"^(\{.+\})?$")
    """A selector of lines that never stop while the store receives anything, such as syslog. Empty: all jobs' lines."""


class VictoriaLogsSettings(StoreSettings):
    """VictoriaLogs."""

    kind: Literal["victorialogs"]
    tenant: str = Field(default="", pattern=r"^([0-9]{1,10}:[0-9]{1,10})?$")
    """``AccountID:ProjectID``; empty: 0:0."""
    selector: str = Field(default="", max_length=2_000)
    """A LogsQL filter such as ``{app="slurm"}`` that all jobs' lines match, which makes queries cheaper."""
    canary: str = Field(default="", max_length=2_000)
    """A LogsQL filter of lines that never stop while the store receives anything. Empty: all jobs' lines."""
