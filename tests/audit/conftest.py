from collections.abc import AsyncIterator

import asyncpg
import pytest

from activities.audit import AuditTrail
from tests.embedded.places import open_directory
from workers.embedded.postgres import EmbeddedPostgres


@pytest.fixture(scope="session")
async def postgres() -> AsyncIterator[EmbeddedPostgres]:
    with open_directory() as directory:
        async with EmbeddedPostgres(directory / "postgres") as server:
            yield server


@pytest.fixture
async def trail(postgres: EmbeddedPostgres) -> AsyncIterator[AuditTrail]:
    """A trail over an empty database."""
    connection = await asyncpg.connect(postgres.dsn)
    await connection.execute("DROP SCHEMA IF EXISTS relight CASCADE")
    await connection.close()
    trail = AuditTrail(postgres.dsn)
    yield trail
    await trail.close()
