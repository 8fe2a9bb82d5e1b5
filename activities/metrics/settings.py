"""What an operator says about a store of metrics: where it is, how to get in, what its labels and series are called."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from activities.stores.access import LocalPath, StoreAccess

Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$")]
HeaderValue = Annotated[str, StringConstraints(pattern=r"^[ -~]{0,500}$")]
LabelValue = Annotated[str, StringConstraints(max_length=200)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MetricLabels(_Section):
    """How the store's labels are called. A node's name may stand there with a domain and a port."""

    gpu_node: Label = "Hostname"
    """The node of a GPU's series: ``Hostname``, ``hostname``, ``instance``, ``kubernetes_node``."""
    host_node: Label = "instance"
    """The node of node_exporter's series: ``instance``, ``node``, ``nodename``."""
    gpu: Label = "gpu"
    job_id: Label = "hpc_job"
    """The job that a GPU works for, where the exporter knows; series without it count for every job of the node."""


class PrometheusSettings(_Section):
    """Prometheus, or what speaks its HTTP API: VictoriaMetrics, Thanos, Mimir."""

    kind: Literal["prometheus"]
    name: str = Field(default="prometheus", pattern=r"^[a-z][a-z0-9-]{0,31}$")
    """What the store is called in messages."""
    url: str = Field(pattern=r"^https?://[^\s?#]+$")
    """Base address, before ``/api/v1``; a tenant's path belongs to it, as in ``https://host/select/7/prometheus``."""
    access: StoreAccess = StoreAccess()
    headers: dict[HeaderName, HeaderValue] = Field(default={}, max_length=16)
    """Sent along, such as ``X-Scope-OrgID``."""
    labels: MetricLabels = MetricLabels()
    matchers: dict[Label, LabelValue] = Field(default={}, max_length=8)
    """What all series of the cluster carry, such as ``cluster: alpha``; needed where clusters share node names."""
    names_file: LocalPath | None = None
    """More names of the known metrics: a YAML file of the form of ``activities/metrics/names.yaml``."""
    window_s: float = Field(default=600.0, ge=60, le=3_600)
    """How long before an attempt's end is looked at."""
    stale_after_scrapes: int = Field(default=4, ge=2, le=60)
    """A value that is older than so many of its series' own intervals says nothing any more."""
    canary_s: float = Field(default=15.0, ge=1, le=300)
    """How often the store is asked for its newest sample of any node, in one query."""
    stale_after_s: float = Field(default=120.0, ge=10, le=3_600)
    """Without a newer sample of any node for so long the store is shown as blind."""
    timeout_s: float = Field(default=4.0, ge=0.5, le=8)
    """For everything that is asked about one attempt; after it the verdict is made without metrics."""
