"""The catalogue as data: validated at load, extended by a site, and true to what it says of single lines."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.signatures.catalogue import CatalogueError, Role, load_catalogue, packaged_catalogue, parse_signatures

ENTRY = """
- id: site-disk
  pattern: 'disk of (?P<node>[\\w-]+) is tired'
  component: site monitor
  category: host
  cause: tired_disk
  role: root
  witness: host
  culprit: node
  action: restart_exclude
  source: https://example.org/runbook
"""


def test_a_sites_entry_comes_before_the_packaged_ones() -> None:
    overruling = ENTRY.replace("disk of (?P<node>[\\w-]+) is tired", "Xid .*79, .* on (?P<node>[\\w-]+)")
    match = load_catalogue([("site.yaml", overruling)]).match("NVRM: Xid (PCI:0000:3b:00): 79, pid=1 on n7")
    assert match is not None
    assert match.signature.id == "site-disk"
    assert match.fields == {"node": "n7"}


@pytest.mark.parametrize(
    ("change", "line", "says"),
    [
        (("is tired'", "is (tired'"), 3, "not an RE2 pattern"),
        (("culprit: node", "culprit: rank"), 2, "neither reporter, none, nor a captured field (node)"),
        (("category: host", "category: hots"), 5, "category"),
        (("role: root", "rule: root"), 2, "unknown key 'rule'"),
        (("- id: site-disk", "- id: Site Disk"), 2, "id"),
        (("pattern: 'disk", "pattern: 'disk' '"), 3, "not YAML"),
        (("is tired'", "(?=is) tired'"), 3, "not an RE2 pattern"),
    ],
)
def test_a_mistake_is_named_with_file_and_line(change: tuple[str, str], line: int, says: str) -> None:
    with pytest.raises(CatalogueError) as caught:
        parse_signatures("site.yaml", ENTRY.replace(*change))
    assert str(caught.value).startswith(f"site.yaml:{line}: ")
    assert says in str(caught.value)


def test_one_id_names_one_entry() -> None:
    with pytest.raises(CatalogueError, match="site-disk"):
        load_catalogue([("a.yaml", ENTRY), ("b.yaml", ENTRY)])


def test_a_fatal_line_is_a_root_line() -> None:
    with pytest.raises(CatalogueError, match="only a root line can be fatal"):
        parse_signatures("site.yaml", ENTRY.replace("role: root", "role: noise\n  fatal: true"))


def test_every_packaged_entry_names_its_source() -> None:
    assert all(signature.source.startswith("https://") for signature in packaged_catalogue())


@pytest.mark.parametrize(
    ("line", "expected", "role", "fatal"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "xid-off-the-bus", Role.ROOT, True),
        ("NVRM: Xid (PCI:0000:3b:00): 63, pid=1, Row Remapper: New row", "xid-row-remap", Role.NOISE, False),
        ("NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "xid-recovery-action", Role.ROOT, True),
        ("NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "xid-recovery-action-none", Role.NOISE, False),
        ("NVRM: Xid (PCI:0000:3b:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x1): NVLink5", "xid-nvlink5-nonfatal", Role.CASCADE, False),
        ("nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error", "sxid-other", Role.NOISE, False),
        ("[rank3]:[E1 ProcessGroupNCCL.cpp:1] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802212 milliseconds before timing out.", "torch-collective-timeout", Role.CASCADE, False),
        ("x:1:2 [0] transport/net_ib.cc:2358 NCCL WARN NET/IB: Got completion from peer 10.0.0.1<4> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129  localGid x hca mlx5_0", "nccl-completion", Role.CASCADE, False),
        ("slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2025-01-01T00:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***", "slurm-cancelled-node-failure", Role.ROOT, True),
        ("srun: error: Slurm controller not responding, sleeping and retrying.", "slurm-controller-silent", Role.NOISE, False),
        ("pcieport 0000:16:01.0: AER: Corrected error received: 0000:17:00.0", "aer-other", Role.NOISE, False),
        ("pcieport 0000:95:01.0: AER: Uncorrected (Fatal) error received: 0000:97:00.0", "aer-fatal", Role.ROOT, True),
    ],
)  # fmt: skip
def test_a_line_is_read_by_the_entry_that_is_meant_for_it(line: str, expected: str, role: Role, fatal: bool) -> None:
    match = packaged_catalogue().match(line)
    assert match is not None
    assert (match.signature.id, match.signature.role, match.signature.fatal) == (expected, role, fatal)


@pytest.mark.parametrize(
    "line",
    [
        " [2025-06-01 12:00:00.0] iteration      10/   50000 | consumed samples: 5120 | number of nan iterations:   0 |",
        "{'loss': 1.31, 'grad_norm': 1.69, 'learning_rate': 7.4e-06, 'epoch': 0.0}",
        "  successfully saved checkpoint from iteration     270 to /ckpt/run [ t 1/8, p 1/2 ]",
        "FutureWarning: You are using `torch.load` with `weights_only=False`",
    ],
)
def test_healthy_lines_are_nobodys_business(line: str) -> None:
    assert packaged_catalogue().match(line) is None


@given(st.text(max_size=500))
def test_any_text_can_be_matched(line: str) -> None:
    packaged_catalogue().match(line)
