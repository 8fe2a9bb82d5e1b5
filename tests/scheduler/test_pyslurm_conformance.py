"""The suite and a whole recovery through a real pyslurm, where this host's Slurm has one: see CONTRIBUTING.md."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from activities.scheduler.command import LocalRunner
from activities.scheduler.protocol import JobState, Refused, Scheduler
from activities.scheduler.slurm_library import SlurmLibrary
from tests.endtoend.bad_node import comes_back_without_the_bad_node
from tests.endtoend.conftest import Servers
from tests.endtoend.service import Service
from tests.scheduler.conformance import Behaviour, ClusterUnderTest, SchedulerConformance, listed
from tests.scheduler.test_cli_conformance import RealCluster
from tests.slurm.cluster import SlurmCluster
from tests.slurm.release import OWN

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

if find_spec("pyslurm") is None:
    pytest.skip("tests with a real pyslurm skipped: it is not installed for this Python", allow_module_level=True)


class ClusterThroughPyslurm(RealCluster):
    """The same cluster, told what to do through pyslurm."""

    def __init__(self, slurm: SlurmCluster) -> None:
        super().__init__(slurm)
        self._library = SlurmLibrary(LocalRunner(slurm_conf=str(slurm.conf)))

    @property
    def scheduler(self) -> Scheduler:
        return self._library


class TestPyslurm(SchedulerConformance):
    @pytest.fixture
    def cluster(self, slurm: SlurmCluster) -> ClusterUnderTest:
        if slurm.release.name != OWN:
            pytest.skip("pyslurm is for this host's own Slurm only")
        return ClusterThroughPyslurm(slurm)

    async def test_an_empty_exclusion_list_clears_it(self, cluster: ClusterUnderTest) -> None:
        """It takes no empty list, and says so."""
        node = (await cluster.scheduler.nodes())[0].name
        job_id = await cluster.submit(Behaviour.RUNS, exclude=(node,), held=True)

        with pytest.raises(Refused, match="cannot be emptied"):
            await cluster.scheduler.constrain(job_id, exclude=())

        assert (await cluster.scheduler.job(job_id)).excluded_nodes == (node,)
        await cluster.scheduler.cancel(job_id)

    async def test_the_admin_comment_of_a_running_job_can_be_set_and_cleared(self, cluster: ClusterUnderTest) -> None:
        """It can be set."""
        job_id = await cluster.submit(Behaviour.RUNS)
        await cluster.until_running(job_id)

        await cluster.scheduler.constrain(job_id, admin_comment="noted")

        assert (await cluster.scheduler.job(job_id)).admin_comment == "noted"
        await cluster.scheduler.cancel(job_id)

    async def test_a_verb_on_one_array_task_leaves_its_siblings_alone(self, cluster: ClusterUnderTest) -> None:
        """Also where the task has the array's own number; only cancelling it is refused."""
        array_id = await cluster.submit_array(Behaviour.RUNS, tasks=2)
        first, second = f"{array_id}_1", f"{array_id}_2"
        await cluster.until_running(first)
        await cluster.until_running(second)

        await cluster.scheduler.requeue_hold(second)
        held = await cluster.until_held(second)
        await cluster.scheduler.constrain(second, admin_comment="this one")
        with pytest.raises(Refused, match="cancel all tasks"):
            await cluster.scheduler.cancel(second)
        sibling = await listed(cluster, first)

        assert (held.array_job_id, held.restart_count) == (array_id, 1)
        assert (sibling.state, sibling.restart_count, sibling.admin_comment) == (JobState.RUNNING, 0, "")
        await cluster.scheduler.cancel(array_id)


@pytest.fixture(scope="module")
def service(slurm: SlurmCluster, servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The worker process, serving the real cluster in act mode, through pyslurm."""
    service = servers.service(tmp_path_factory.mktemp("through-pyslurm"))
    service.configure({"kind": "pyslurm", "slurm_conf": str(slurm.conf)})
    service.start()
    yield service
    service.stop()


@pytest.mark.temporal
@pytest.mark.postgres
async def test_a_job_comes_back_without_the_bad_node(slurm: SlurmCluster, service: Service) -> None:
    await comes_back_without_the_bad_node(slurm, service)
