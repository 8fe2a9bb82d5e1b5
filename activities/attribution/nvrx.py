"""nvrx-attrsvc, the attribution service of nvidia-resiliency-ext, releases 0.7 and 0.6.

A log file is submitted and its result asked for until it is there: 0.7.0 takes at least 15 s. Which release it is shows
in what it answers: 0.7 recommends, 0.6 has only a state, and keeps a question waiting for as long as it works. Nothing
but a completed analysis with the action STOP is a stop. Both keep all they know in memory, so that a file may have to
be submitted again.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

from activities.attribution.answers import no_opinion, opinion
from activities.attribution.copies import copied
from activities.attribution.nvrx_api import Analysis, NvrxApi, Submission
from activities.attribution.patience import patiently
from activities.attribution.protocol import AskPhase, Question
from activities.attribution.settings import NvrxSettings
from activities.scheduler.pace import Pace
from recovery.opinion import Heard, Hint, NoOpinion

_HINTS_07 = {"STOP": Hint.STOP, "RESTART": Hint.RESTART, "CONTINUE": Hint.CONTINUE}
_HINTS_06 = {"STOP": Hint.STOP, "CONTINUE": Hint.CONTINUE}


class NvrxService:
    """Asks one nvrx-attrsvc."""

    fast_s = 0.0
    """Its analysis takes longer than relight's own."""

    def __init__(self, settings: NvrxSettings) -> None:
        self._settings = settings
        self._api = NvrxApi(settings)
        self._pace = Pace(settings.max_asks_per_min / 60)

    @property
    def name(self) -> str:
        """What it is called on record."""
        return self._settings.called

    @property
    def slow_s(self) -> float:
        """How long an analysis is waited for."""
        return self._settings.slow_s

    async def ask(self, question: Question, phase: AskPhase) -> Heard:
        """Submit the attempt's output and wait for the result. Raises nothing."""
        if phase is AskPhase.FAST or not question.failed:
            # One file is analysed once: what it says while the attempt runs may be a quotation, and would stay.
            return self._none("it is asked when an attempt has failed beyond doubt")
        try:
            async with AsyncExitStack() as stack:
                path = await self._file_of(question, stack)
                if isinstance(path, NoOpinion):
                    return path
                return await patiently(self.name, self.slow_s, partial(self._analysed, question, path))
        except OSError as error:
            return self._none(f"the output can't be copied to `copy_dir`: {error}")

    async def close(self) -> None:
        """Give up the connections."""
        await self._api.close()

    async def _file_of(self, question: Question, stack: AsyncExitStack) -> str | NoOpinion:
        if self._settings.copy_dir is not None:
            if not question.lines:
                return self._none("nothing of the attempt's output could be read")
            return str(await stack.enter_async_context(copied(question, self._settings.copy_dir)))
        if not question.own_files:
            return self._none("the attempt has no output file of its own: set `copy_dir`")
        return question.own_files[0]

    async def _analysed(self, question: Question, path: str) -> Heard:
        # Slurm reuses job ids, and the service counts a job's earlier failures.
        job_id = f"{question.job.job_id}@{int(question.job.submitted_at.timestamp())}"
        user = question.user or "unknown"
        await self._api.submit(Submission(log_path=path, user=user, job_id=job_id, cycle_id=question.attempt))
        while True:
            await self._pace.turn()
            analysis = await self._api.look_up(path)
            if not analysis.runs:
                return self._heard(analysis)
            await asyncio.sleep(self._settings.poll_interval_s)

    def _heard(self, analysis: Analysis) -> Heard:
        if analysis.status != "completed":
            return self._none(f"the analysis ended as {analysis.status[:40]!r}")
        result, told = analysis.result, analysis.recommendation
        if told is not None:
            hint = _HINTS_07.get(told.action, Hint.UNKNOWN)
            return opinion(self.name, told.reason or told.action, hint=hint, cause=result.cause)
        hint = _HINTS_06.get(result.state, Hint.UNKNOWN)
        return opinion(self.name, result.words or result.state, hint=hint, cause=result.cause)

    def _none(self, reason: str) -> NoOpinion:
        return no_opinion(self.name, reason)
