"""Asking a cluster's governor, which lives in the cluster's workflow: an update of it, in batches.

A workflow takes ten updates at a time. So a worker process sends one after the other, and what is asked meanwhile goes
along with the next: two hundred jobs that fail within a second cost a handful of updates.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pydantic import Field
from temporalio import activity
from temporalio.client import Client, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from recovery.governor import GovernorSettings, GrantRequest, Ruling
from recovery.model import Value

ASK_UPDATE = "ask"
ANSWER_TIMEOUT_S = 8.0
MAX_BATCH = 100


def cluster_workflow_id(cluster: str) -> str:
    """Return the id of the cluster's workflow."""
    return f"cluster/{cluster}"


class Asked(Value):
    """What a worker asks: for several jobs at once, under the limits that it was started with."""

    requests: tuple[GrantRequest, ...] = Field(max_length=MAX_BATCH)
    settings: GovernorSettings


class Ruled(Value):
    """The rulings, in the order of the requests."""

    rulings: tuple[Ruling, ...]


@dataclass(eq=False)
class _Ticket:
    request: GrantRequest
    ruling: Ruling | None = None


class GovernorDesk:
    """Where the jobs of one cluster ask, as a Temporal activity."""

    def __init__(self, client: Client, cluster: str, settings: GovernorSettings) -> None:
        self._client = client
        self._cluster = cluster
        self._settings = settings
        self._waiting: list[_Ticket] = []
        self._sending = asyncio.Lock()

    @activity.defn
    async def ask_governor(self, request: GrantRequest) -> Ruling:
        """Return the governor's ruling on `request`.

        Raises a retryable `ApplicationError` of type ``GovernorUnavailable`` where the cluster's workflow gives no
        answer; to ask again is always safe.
        """
        ticket = _Ticket(request)
        self._waiting.append(ticket)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S), self._sending:
                return ticket.ruling or await self._rule_on_a_batch_with(ticket)
        except (RPCError, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError) as error:
            raise ApplicationError(
                f"the workflow {cluster_workflow_id(self._cluster)} gives no answer"
                f" ({str(error)[:200] or type(error).__name__}); where it is not running, restart the worker",
                type="GovernorUnavailable",
            ) from error
        finally:
            if ticket in self._waiting:
                self._waiting.remove(ticket)

    async def _rule_on_a_batch_with(self, ticket: _Ticket) -> Ruling:
        others = [other for other in self._waiting if other is not ticket]
        batch = (ticket, *others[: MAX_BATCH - 1])
        asked = Asked(requests=tuple(each.request for each in batch), settings=self._settings)
        handle = self._client.get_workflow_handle(cluster_workflow_id(self._cluster))
        ruled: Ruled = await handle.execute_update(ASK_UPDATE, asked, result_type=Ruled)
        for each, ruling in zip(batch, ruled.rulings, strict=True):
            each.ruling = ruling
            if each in self._waiting:
                self._waiting.remove(each)
        return ruled.rulings[0]
