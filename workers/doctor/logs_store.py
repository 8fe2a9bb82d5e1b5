"""One log store looked at: reach, tenant, labels, freshness, clocks, limits. Asks only what the watch may ask too."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

from activities.logs.stores.protocol import Sample, SurveyedStore, Window
from activities.logs.stores.settings import LokiSettings, VictoriaLogsSettings
from activities.scheduler.protocol import JobRecord
from activities.stores.errors import NoAccess, NoTrust, StoreBusy, StoreError, TooMuch
from workers.doctor.checks import Check, failed, ok, unknown, warning
from workers.doctor.logs_labels import ALIASES, Labels
from workers.log_sources import make_log_store

SKEW_S = 5.0
HOUR_NS = 3_600 * 1_000_000_000
AHEAD_NS = 14 * HOUR_NS
"""Further than any time zone is ahead of UTC."""
_SAMPLES = 300
_MOST_TENANTS = 200
_MOST_JOBS = 50
_LONG_CHARS = 1_000
_CUT_LINES = 3


class StoreVisit:
    """The checks of one store; each may be the last."""

    def __init__(
        self,
        store: SurveyedStore,
        settings: LokiSettings | VictoriaLogsSettings,
        cluster: str,
        running: Sequence[JobRecord],
    ) -> None:
        self._store = store
        self._settings = settings
        self._cluster = cluster
        self._running = running[:_MOST_JOBS]
        self._now_ns = time.time_ns()
        self._window = Window(self._now_ns - HOUR_NS, self._now_ns + AHEAD_NS)

    async def checks(self) -> AsyncIterator[Check]:
        """Yield what the store comes to. Raises `StoreError` for the first question that gets no answer."""
        there = await self._store.label_names(self._window)
        yield ok("reach", self._store.shown)
        yield clock_check(self._store.server_time)
        if not there:
            yield await self._nothing_here()
            return
        yield ok("tenant", self._settings.tenant or "none")
        by = (self._settings.labels.job_id, *ALIASES["job_id"])
        samples = await self._store.survey(self._window, _SAMPLES, labels=tuple(dict.fromkeys(by)))
        labels = Labels(samples, self._settings.labels, self._cluster, self._settings.selector)
        yield await self._jobs(labels)
        for check in labels.others():
            yield check
        yield await self._newest()
        yield length_check(samples)
        yield await self._limits()

    async def _nothing_here(self) -> Check:
        mine = self._settings.tenant or "none"
        says = f"no line of the last hour for tenant {mine}"
        if other := await tenant_with_lines(self._store, self._settings, self._cluster, self._window):
            return failed("tenant", f"{says}, and there are some for {other}", f'set tenant: "{other}"')
        return failed("tenant", says, "check `tenant`, and that collectors ship to this store")

    async def _jobs(self, labels: Labels) -> Check:
        if not self._running:
            return labels.of_nobody()
        ids = [job.job_id for job in self._running]
        found = {entry.job_id for entry in await self._store.page(ids, self._window, _SAMPLES, newest_first=True)}
        if not found:
            return labels.of_running(self._running)
        says = f"{self._settings.labels.job_id} tells the job: {len(found)} of {len(ids)} running jobs have lines"
        return ok("labels.job_id", says)

    async def _newest(self) -> Check:
        canary = self._settings.canary
        newest_ns = await self._store.newest_ns(self._window)
        if newest_ns is None:
            if canary:
                return failed("newest line", f"{canary} selects no line of the last hour", "correct `canary`")
            return self._stale("no line of any job within an hour")
        age_s = (self._now_ns - newest_ns) / 1e9
        if age_s < -SKEW_S:
            remedy = "run chrony or ntpd on nodes and here, and see that collectors send times in UTC"
            return failed("newest line", f"it is {-age_s:.0f} s ahead of this host's clock", remedy)
        if age_s > self._settings.stale_after_s:
            return self._stale(f"it is {age_s:.0f} s old, and past stale_after_s the store counts as blind")
        return ok("newest line", f"it is {max(0.0, age_s):.0f} s old")

    def _stale(self, says: str) -> Check:
        if self._running or self._settings.canary:
            return failed("newest line", says, "see that collectors run and the store takes in what they send")
        return warning("newest line", says, "no job runs: set `canary` to lines that never stop, such as syslog")

    async def _limits(self) -> Check:
        recent = Window(self._now_ns - HOUR_NS // 12, self._now_ns)
        try:
            await self._store.page((), recent, self._store.most_entries)
        except TooMuch as error:
            says = f"the store gives less than {self._store.most_entries} lines at once: {error}"
            return warning("limits", says, "raise its limit (Loki: max_entries_limit_per_query); relight asks for less")
        return ok("limits", f"{self._store.most_entries} lines at once")


async def tenant_with_lines(
    store: SurveyedStore,
    settings: LokiSettings | VictoriaLogsSettings,
    cluster: str,
    window: Window,
    containing: str = "",
) -> str:
    """Return another tenant that has lines in `window`, with the text `containing`; empty when none is known."""
    try:
        tenants = await store.tenants(window)
    except StoreError:
        return ""
    for tenant in tenants[:_MOST_TENANTS]:
        if tenant == settings.tenant:
            continue
        other = make_log_store(settings.model_copy(update={"tenant": tenant}), cluster)
        try:
            if await other.survey(window, 1, containing=containing):
                return tenant
        except StoreError:
            continue
        finally:
            await other.close()
    return ""


def refused(error: StoreError) -> Check:
    """Return the check that an error of a store fails, with the remedy that its message ends with."""
    what, _, remedy = str(error).rpartition("; ")
    if not what:
        what, remedy = str(error), "check `url` and `access`"
    if isinstance(error, NoAccess):
        if "no org id" in what:
            return failed("tenant", what, "set `tenant`: this Loki keeps several apart")
        return failed("access", what, remedy)
    if isinstance(error, NoTrust):
        return failed("TLS", what, remedy)
    if isinstance(error, StoreBusy | TooMuch):
        return failed("limits", what, remedy)
    return failed("reach", what, remedy)


def clock_check(told: datetime | None) -> Check:
    """Compare the store's clock, which tells whole seconds, cut, with this host's."""
    if told is None:
        return unknown("clock", "the store's answers carry no date")
    ahead_s = (told - datetime.now(UTC)).total_seconds()
    if -SKEW_S - 1 < ahead_s < SKEW_S:
        return ok("clock", "as here")
    says = f"the store's is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this host's"
    return failed("clock", says, "run chrony or ntpd on both: lines are asked for by time")


def length_check(samples: Sequence[Sample]) -> Check:
    """Say whether lines seem to be cut: several that are exactly as long as the longest."""
    lengths = Counter(len(sample.text) for sample in samples)
    longest = max(lengths, default=0)
    if longest >= _LONG_CHARS and lengths[longest] >= _CUT_LINES:
        says = f"{lengths[longest]} of the newest lines are exactly {longest} characters long: they seem to be cut"
        return warning("line length", says, "raise the limit of the collector or the store: evidence is lost")
    return ok("line length", f"up to {longest} characters")
