"""Exports recoveries as OpenTelemetry traces over OTLP/HTTP.

A workflow lives for weeks, so its spans are not held open: when a recovery is over, its trace is built at once from the
milestones with their own times. All ids are derived from the recovery, so that an export that is tried again tells of
the same trace.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
from datetime import datetime

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from temporalio import activity
from temporalio.exceptions import ApplicationError

from recovery.model import MilestoneKind
from recovery.trace import RecoveryTrace

EXPORT_TIMEOUT_S = 10.0
_SCOPE = InstrumentationScope("relight")


class TraceExporter:
    """Sends traces to `otlp_endpoint`, the base address of an OTLP/HTTP receiver; with an empty one it sends nothing.

    Headers and certificates come from OpenTelemetry's own variables (``OTEL_EXPORTER_OTLP_HEADERS`` and so on).
    """

    def __init__(self, otlp_endpoint: str) -> None:
        self._exporter = (
            OTLPSpanExporter(endpoint=f"{otlp_endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_TIMEOUT_S)
            if otlp_endpoint
            else None
        )

    @activity.defn
    async def export_recovery_trace(self, trace: RecoveryTrace) -> None:
        """Export one recovery. Retryable ``TelemetryUnavailable`` when the receiver did not take it."""
        if self._exporter is None:
            return
        result = await asyncio.to_thread(self._exporter.export, spans_of(trace))
        if result is not SpanExportResult.SUCCESS:
            raise ApplicationError(
                f"the OTLP receiver did not take the trace of {trace.job} attempt {trace.attempt}; "
                "see telemetry.otlp_endpoint and the worker's log",
                type="TelemetryUnavailable",
            )

    def close(self) -> None:
        """Close the connections to the receiver."""
        if self._exporter is not None:
            self._exporter.shutdown()  # type: ignore[no-untyped-call]


def spans_of(trace: RecoveryTrace) -> list[ReadableSpan]:
    """Return the root span of a recovery and one child for each step of it."""
    root = _context(trace, "recovery")
    spans = [
        ReadableSpan(
            name=f"recover {trace.job}",
            context=root,
            kind=SpanKind.INTERNAL,
            resource=resource(),
            attributes={
                "relight.workflow_id": trace.job.workflow_id,
                "relight.cluster": trace.job.cluster,
                "relight.attempt": trace.attempt,
                "relight.generation": trace.generation,
                "slurm.job_id": trace.job.job_id,
                **{f"relight.{name}": value for name, value in trace.attributes.items()},
            },
            status=_status(trace),
            start_time=_nanoseconds(trace.milestones[0].at),
            end_time=_nanoseconds(trace.milestones[-1].at),
            instrumentation_scope=_SCOPE,
        )
    ]
    spans += [
        ReadableSpan(
            name=step.name,
            context=_context(trace, f"step {number} {step.name}"),
            parent=root,
            kind=SpanKind.INTERNAL,
            resource=resource(),
            attributes={"relight.detail": step.detail} if step.detail else {},
            start_time=_nanoseconds(step.start),
            end_time=_nanoseconds(step.end),
            instrumentation_scope=_SCOPE,
        )
        for number, step in enumerate(trace.steps)
    ]
    return spans


def _context(trace: RecoveryTrace, span: str) -> SpanContext:
    submitted = int(trace.job.submitted_at.timestamp())
    recovery = f"{trace.job.workflow_id}@{submitted}#{trace.attempt}.{trace.generation}"
    return SpanContext(
        trace_id=derived_id(recovery, 16),
        span_id=derived_id(f"{recovery}/{span}", 8),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


def derived_id(name: str, size_bytes: int) -> int:
    """Return the id that always belongs to `name`: a recovery's trace is named by the key of the advice followed."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:size_bytes], "big")


def _status(trace: RecoveryTrace) -> Status:
    back = any(each.kind in (MilestoneKind.RESUMED, MilestoneKind.COMPLETED) for each in trace.milestones)
    return Status(StatusCode.OK if back else StatusCode.UNSET)


def resource() -> Resource:
    """Return what sends: this release of relight."""
    return Resource.create({"service.name": "relight", "service.version": importlib.metadata.version("relight")})


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
