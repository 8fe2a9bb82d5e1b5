"""The suite through slurmrestd, on a real cluster."""

from __future__ import annotations

import pytest

from activities.scheduler.rest import SlurmRest
from activities.scheduler.rest_api import RestApi
from tests.rest.lent import RestCluster
from tests.scheduler.conformance import ClusterUnderTest, SchedulerConformance
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


class TestSlurmRest(SchedulerConformance):
    @pytest.fixture
    async def cluster(self, slurm: SlurmCluster, rest_api: RestApi) -> ClusterUnderTest:
        return RestCluster(slurm, SlurmRest(rest_api), await rest_api.version())
