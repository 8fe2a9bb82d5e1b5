"""What metrics add to a verdict, and that they never make one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.attribution.attribute import attribute
from recovery.attribution.incident import Incident, MetricSample
from recovery.model import Action, Category, SymptomKind, Verdict
from tests.diagnosis.stories import START, Story
from tests.diagnosis.test_anything import INCIDENTS

UTIL, TENSOR = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
CLOCK, REASONS = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"
LINK_GENERATION, LINK_WIDTH = "DCGM_FI_DEV_PCIE_LINK_GEN", "DCGM_FI_DEV_PCIE_LINK_WIDTH"
OVER_POWER = "DCGM_FI_DEV_POWER_VIOLATION"
XID = "DCGM_FI_DEV_XID_ERRORS"
LINK_DOWNED = "node_infiniband_link_downed_total"
OOM_KILL = "node_vmstat_oom_kill"
NAMES = (UTIL, TENSOR, CLOCK, REASONS, XID, LINK_DOWNED, OOM_KILL, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")
NAMES += ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "node_filesystem_avail_bytes", LINK_GENERATION, OVER_POWER)


def silent(story: Story) -> Verdict:
    """The verdict on a job that stopped without a word, as the watch saw."""
    incident = story.incident().model_copy(
        update={"detected": SymptomKind.HANG, "now": story.clock, "silence": timedelta(hours=1)}
    )
    return attribute(incident)


def doing(utilisation: float, tensor: float, *, odd: tuple[float, float] | None = None) -> Story:
    """A silent job whose GPUs show this, and those of its third node `odd`."""
    story = Story().iterations().wait(3_600)
    for node in range(4):
        used, worked = odd if odd and node == 2 else (utilisation, tensor)
        for gpu in range(8):
            story.gauge(UTIL, node, gpu, used).gauge(TENSOR, node, gpu, worked)
    return story


def test_in_a_hang_the_node_that_idles_while_all_others_spin_is_the_culprit() -> None:
    verdict = silent(doing(100, 0.0, odd=(0, 0.0)))
    assert (verdict.culprits, verdict.suggested) == (("cn-023",), Action.RESTART_EXCLUDE)
    assert any(UTIL in evidence.text for evidence in verdict.evidence)


def test_a_node_that_idles_while_the_others_work_keeps_nobody_waiting() -> None:
    verdict = silent(doing(100, 0.4, odd=(0, 0.0)))
    assert (verdict.culprits, verdict.suggested) == ((), Action.RESTART)


@pytest.mark.parametrize(
    ("utilisation", "tensor", "says"),
    [(100, 0.0, "spin in a collective"), (100, 0.35, "still compute"), (0, 0.0, "all GPUs idle")],
)
def test_gpus_that_all_do_the_same_say_what_kind_of_hang_it_is(utilisation: float, tensor: float, says: str) -> None:
    verdict = silent(doing(utilisation, tensor))
    assert says in verdict.unlocated_because
    assert (verdict.culprits, verdict.suggested) == ((), Action.RESTART)
    assert any(TENSOR in evidence.text for evidence in verdict.evidence)


def slow_while(shown: Callable[[int, int], list[tuple[str, float]]]) -> Verdict:
    """The verdict on a job that slowed down while each GPU shows these samples, a minute apart."""
    story = Story().iterations(count=8).iterations(first=108, count=12, step_s=7.5)
    for node in range(4):
        for gpu in range(8):
            for minute, (name, value) in enumerate(shown(node, gpu)):
                story.gauge(name, node, gpu, value)
                sample = story.metrics[-1]
                story.metrics[-1] = sample.model_copy(update={"at": story.clock + timedelta(minutes=minute)})
    return attribute(story.incident())


def slow(*, reasons: int) -> Verdict:
    """The verdict where one GPU of the second node gives `reasons`, and no clock is known."""
    return slow_while(lambda node, gpu: [(REASONS, reasons if (node, gpu) == (1, 5) else 0)])


def test_a_gpu_that_alone_is_held_back_locates_a_straggler() -> None:
    assert (slow(reasons=0x40).culprits, slow(reasons=0x40).cause) == (("cn-022",), "gpu_thermal_throttle")
    assert (slow(reasons=0x88).culprits, slow(reasons=0x88).cause) == (("cn-022",), "gpu_power_brake")


def test_a_gpu_at_its_power_cap_or_idle_is_not_held_back_by_a_fault() -> None:
    assert slow(reasons=0x4 | 0x1).culprits == ()


@pytest.mark.parametrize(("name", "usual", "odd"), [(LINK_GENERATION, 5, 1), (LINK_WIDTH, 16, 8)])
def test_a_gpu_whose_pcie_link_is_worse_than_all_others_locates_a_straggler(name: str, usual: int, odd: int) -> None:
    verdict = slow_while(lambda node, gpu: [(name, odd if (node, gpu) == (1, 5) else usual)])
    assert (verdict.culprits, verdict.cause) == (("cn-022",), "gpu_pcie_degraded")
    assert slow_while(lambda *_: [(name, odd)]).culprits == ()


@pytest.mark.parametrize(
    ("name", "cause"), [(OVER_POWER, "gpu_power_brake"), ("DCGM_FI_DEV_THERMAL_VIOLATION", "gpu_thermal_throttle")]
)
def test_the_gpu_that_a_limit_holds_back_far_longer_than_the_others_locates_a_straggler(name: str, cause: str) -> None:
    def held(odd_us: float) -> Verdict:
        return slow_while(
            lambda node, gpu: [(name, 7_000_000), (name, 7_000_000 + (odd_us if (node, gpu) == (1, 5) else 900))]
        )

    assert (held(30e6).culprits, held(30e6).cause) == (("cn-022",), cause)
    assert held(20_000).culprits == ()


def host(story: Story, name: str, node: int, value: float) -> None:
    text = f'{name}{{Hostname="{story.node(node)}",device="mlx5_0",port="1"}} {value:g}'
    story.metrics.append(MetricSample(at=story.clock, host=story.node(node), text=text))


def broken_connections(*downed: int) -> Verdict:
    """Each node complains of an address that nobody maps, and the ports of `downed` went down."""
    story = Story().bootstrap().iterations()
    for node in range(4):
        host(story, LINK_DOWNED, node, 3)
    story.wait(60).network_victims(peer=9, named=False)
    for node in range(4):
        host(story, LINK_DOWNED, node, 4 if node in downed else 3)
    return attribute(story.incident(state="FAILED", exit_code=1))


def test_the_one_node_whose_port_went_down_is_the_culprit_of_broken_connections() -> None:
    verdict = broken_connections(1)
    assert (verdict.category, verdict.culprits) == (Category.HARDWARE_NETWORK, ("cn-022",))
    assert any(LINK_DOWNED in evidence.text for evidence in verdict.evidence)


def test_ports_of_several_nodes_going_down_blame_none_of_them() -> None:
    assert broken_connections(1, 2).culprits == ()


def test_a_counter_that_was_high_before_is_no_event() -> None:
    assert broken_connections().culprits == ()


def test_uncorrectable_memory_errors_that_are_new_name_their_node_where_no_kernel_log_does() -> None:
    story = Story().iterations().gauge("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 3, 1, 0)
    story.wait(30).gauge("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 3, 1, 2)
    verdict = attribute(story.incident(state="FAILED", exit_code=1))
    assert (verdict.cause, verdict.culprits) == ("gpu_ecc", ("cn-024",))


def test_an_oom_kill_that_was_only_counted_is_told_and_blames_nobody() -> None:
    story = Story().iterations()
    host(story, OOM_KILL, 1, 5)
    story.wait(30)
    host(story, OOM_KILL, 1, 6)
    verdict = attribute(story.incident(state="FAILED", exit_signal=9))
    assert "want of memory on cn-022" in verdict.summary
    assert (verdict.culprits, verdict.suggested) == ((), Action.RESTART)


SAMPLES = st.builds(
    lambda name, node, gpu, value, at: MetricSample(
        at=START + timedelta(seconds=at), host=node, text=f'{name}{{gpu="{gpu}",Hostname="{node}"}} {value:g}'
    ),
    st.sampled_from(NAMES),
    st.sampled_from(["n1", "n2", "n3"]),
    st.integers(0, 1),
    st.sampled_from([0.0, 1.0, 4.0, 48.0, 64.0, 79.0, 100.0, 900.0, 1_980.0]),
    st.integers(0, 3_000),
)


@given(INCIDENTS, st.lists(SAMPLES, max_size=30))
@settings(deadline=None, max_examples=100)
def test_metrics_alone_are_never_a_reason_to_act(incident: Incident, samples: list[MetricSample]) -> None:
    asked = incident.model_copy(update={"now": START + timedelta(hours=2), "metrics": ()})
    without = attribute(asked)
    if without.symptom is SymptomKind.NONE:
        seen = attribute(asked.model_copy(update={"metrics": tuple(samples)}))
        assert (seen.symptom, seen.suggested, seen.culprits) == (SymptomKind.NONE, without.suggested, ())
