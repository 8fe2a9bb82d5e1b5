"""A log store is lost."""

from __future__ import annotations

import pytest

from tests.drills.few_jobs import DRILLED, assert_unbroken, drilled
from tests.stores.servers import NoStore

pytestmark = DRILLED


@pytest.mark.parametrize("name", ["Loki never answers", "VictoriaLogs is gone"])
async def test_losing_a_log_store_blinds_every_job_and_no_line_is_lost(name: str) -> None:
    try:
        assert_unbroken(await drilled([name]))
    except NoStore as missing:
        pytest.skip(str(missing))
