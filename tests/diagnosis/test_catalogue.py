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
    with pytest.raises(CatalogueError, match=r"^a\.yaml:2: b\.yaml:2 has the id 'site-disk', too"):
        load_catalogue([("a.yaml", ENTRY), ("b.yaml", ENTRY)])
    with pytest.raises(CatalogueError, match=r"^a\.yaml:2: a\.yaml:\d+ has the id 'site-disk', too"):
        load_catalogue([("a.yaml", ENTRY + ENTRY)])
    with pytest.raises(CatalogueError, match=r"^a\.yaml:2: gpu_driver\.yaml:\d+ has the id 'xid-off-the-bus', too"):
        load_catalogue([("a.yaml", ENTRY.replace("site-disk", "xid-off-the-bus"))])


def test_a_line_that_means_nothing_is_never_fatal() -> None:
    with pytest.raises(CatalogueError, match="only a root or a cascade line can be fatal"):
        parse_signatures("site.yaml", ENTRY.replace("role: root", "role: noise\n  fatal: true"))


def test_every_packaged_entry_names_its_source() -> None:
    assert all(signature.source.startswith("https://") for signature in packaged_catalogue())


@pytest.mark.parametrize(
    ("line", "expected", "role", "fatal"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "xid-off-the-bus", Role.ROOT, True),
        ("NVRM: Xid (PCI:0000:3b:00): 63, pid=1, Row Remapper: New row", "xid-row-remap", Role.NOISE, False),
        ("mlx5_core 0000:9a:00.0: wait_func:1196:(pid 9): CREATE_MKEY(0x200) timeout. Will cause a leak of a command resource", "mlx5-command-timeout", Role.ROOT, False),
        ("infiniband efa_0: Failed to process command CREATE_QP (opcode 1) comp_status 1 err -12", "efa-command-failed", Role.ROOT, False),
        ("n1:1:2 [7] create_nccl_ofi_component:459 NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument", "nccl-ofi-setup", Role.ROOT, False),
        ("  Remote daemon: [[31211,0],2] on node mp03", "mpirun-daemon-lost", Role.ROOT, True),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "cuda-no-kernel-image", Role.ROOT, True),
        ("NVRM: Xid (PCI:0000:3b:00): 8, pid=1, Channel 00000018", "xid-idle-timeout", Role.ROOT, False),
        ("NVRM: Xid (PCI:0000:3b:00): 68, pid=1, NVDEC0 Exception", "xid-engine", Role.ROOT, False),
        ("NVRM: Xid (PCI:0000:3b:00): 54, Auxiliary power is not connected to the GPU board", "xid-power-cable", Role.ROOT, False),
        ("NVRM: Xid (PCI:0000:3b:00): 61, 0cec(3098) 00000000 00000000", "xid-pmu-breakpoint", Role.ROOT, False),
        ("NVRM: Xid (PCI:0000:3b:00): 139, pid=1, OFA1 Error", "xid-engine", Role.ROOT, False),
        ("NVRM: Xid (PCI:0000:3b:00): 141, pid=1, CUDA Fast Path Error", "xid-ignored", Role.NOISE, False),
        ("NVRM: Xid (PCI:0000:3b:00): 169, Internal micro-controller halt", "xid-pmu-breakpoint", Role.ROOT, False),
        ("NVRM: Xid (PCI:0000:3b:00): 66, pid=1, illegal access", "xid-ignored", Role.NOISE, False),
        ("slurmstepd: error: pyxis:     enroot-nsenter: failed to create user namespace: No space left on device", "user-namespaces-exhausted", Role.ROOT, True),
        ("slurmstepd: error: pyxis:     Write failed because No space left on device", "no-space-node-local", Role.ROOT, True),
        ("n1:1:2 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port error", "nccl-port-error", Role.ROOT, False),
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:1331, remote process exited or there was a network error, NCCL version 2.14.3", "torch-remote-error", Role.CASCADE, False),
        ("torch.OutOfMemoryError: CUDA out of memory. GPU 5 has a total capacity of 79.11 GiB of which 1.02 GiB is free. Process 77 has 78.01 GiB memory in use. Of the allocated memory 74.2 GiB is allocated by PyTorch", "cuda-out-of-memory", Role.ROOT, True),
        ("torch.OutOfMemoryError: CUDA out of memory. GPU 5 has a total capacity of 79.11 GiB of which 1.02 GiB is free. Including non-PyTorch memory, this process has 17.6 GiB memory in use. Process 77 has 60.01 GiB memory in use.", "cuda-out-of-memory-foreign", Role.ROOT, True),
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
        ("slurmstepd: error: pyxis:     [ERROR] No such file or directory: /images/pt-25.01.sqsh", "container-image-file-missing", Role.ROOT, True),
        ("slurmstepd: error: pyxis:     enroot-switchroot: failed to execute: /bin/sh: No such file or directory", "container-command-missing", Role.ROOT, True),
        ("slurmstepd: error: pyxis:     nvidia-container-cli: initialization error: nvml error: driver/library version mismatch", "container-driver-mismatch", Role.ROOT, True),
        ("slurmstepd: error: pyxis:     [ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1", "container-hook-failed", Role.ROOT, True),
        ("slurmstepd: error: pyxis:     mkdir: cannot create directory '/run/enroot': Permission denied", "container-runtime-failed", Role.ROOT, True),
        ("slurmstepd: error: pyxis: container start failed with error code: 1", "container-import-failed", Role.CONFIRMATION, False),
        ("amdgpu 0000:c6:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block", "amdgpu-uncorrectable", Role.ROOT, True),
        ("amdgpu 0000:c6:00.0: amdgpu: device lost from bus!", "amdgpu-lost", Role.ROOT, True),
        ("Memory access fault by GPU node-4 (Agent handle: 0x55) on address 0x7f00. Reason: Page not present or supervisor privilege.", "cuda-illegal-access", Role.ROOT, True),
        ("RuntimeError: HIP error: unspecified launch failure", "cuda-launch-failure", Role.ROOT, True),
        ("rcu: INFO: rcu_sched self-detected stall on CPU", "lockup", Role.ROOT, False),
        ("I/O error, dev nvme1n1, sector 4096 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2", "disk-failed", Role.ROOT, False),
        ("XFS (nvme0n1): Filesystem has been shut down due to log error (0x2). Shutting down filesystem.", "disk-failed", Role.ROOT, False),
        ("BUG: unable to handle page fault for address: ffffa30c80000000", "kernel-oops", Role.ROOT, True),
        ("OSError: [Errno 121] Remote I/O error: '/beegfs/ckpt/3.pt'", "os-error-remote", Role.ROOT, True),
        ("TimeoutError: [Errno 110] Connection timed out: '/mnt/data/0.bin'", "os-error-remote", Role.ROOT, True),
        ("TimeoutError: [Errno 110] Connection timed out", "connection-gone", Role.CASCADE, False),
        ("safetensors_rust.SafetensorError: I/O error: Stale file handle (os error 116)", "os-error-stale-handle", Role.ROOT, True),
        ("RuntimeError: Timed out initializing process group in store based barrier on rank: 3, for key: store_based_barrier_key:1 (world_size=16, worker_count=8, timeout=0:30:00)", "torch-store-barrier", Role.CASCADE, False),
        ("RuntimeError: [Rank 0]: Ranks 5, 6 failed to pass monitoredBarrier in 300000 ms", "torch-monitored-barrier", Role.ROOT, True),
        ("n1:1:2 [0] misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "nccl-memory-registration", Role.ROOT, True),
        ("n1:1:2 [0] misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr failed with error Bad address", "nccl-ibv-call", Role.CONFIRMATION, False),
        ("/job:jax_worker/replica:0/task:5", "jax-barrier-absent", Role.ROOT, False),
        ("subprocess.CalledProcessError: Command '['/usr/bin/python3', 'train.py', '--local_rank=7']' died with <Signals.SIGSEGV: 11>.", "python-child-failed", Role.CASCADE, False),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGKILL", "spawned-child-exited", Role.CASCADE, False),
        ("ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.", "ray-actor-died", Role.CASCADE, False),
        ("FloatingPointError: Loss became infinite or NaN at iteration=203!", "loss-not-finite", Role.ROOT, True),
        ("ValueError: The loss returned in `training_step` is nan.", "loss-not-finite", Role.ROOT, True),
        ("botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the GetObject operation: Please reduce your request rate.", "object-store-failing", Role.ROOT, True),
        ("botocore.errorfactory.NoSuchKey: An error occurred (NoSuchKey) when calling the GetObject operation: The specified key does not exist.", "object-store-refused", Role.ROOT, True),
        ("wandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec.", "tracker-failing", Role.ROOT, False),
        ("ImportError: libcudart.so.12: cannot open shared object file: No such file or directory", "library-mismatch", Role.ROOT, True),
        ("srun: error: Unable to create step for job 5: Memory required by task is not available", "slurm-step-request-invalid", Role.ROOT, True),
        ("slurmstepd: error: Exceeded step memory limit at some point.", "slurm-job-memory-limit", Role.ROOT, True),
        ("error: Setting node n2 state to INVAL with reason:gres/gpu count reported lower than configured (7 < 8)", "slurm-fewer-gpus", Role.ROOT, False),
        ("n1:1:2 [0] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'", "cuda-out-of-memory", Role.ROOT, True),
        ("n1:1:2 [0] enqueue.cc:99 NCCL WARN Cuda failure 'uncorrectable ECC error encountered'", "cuda-ecc", Role.ROOT, True),
        ("n1:1:2 [0] transport/nvls.cc:183 NCCL WARN Cuda failure 1 'invalid argument'", "nccl-nvls-fallback", Role.NOISE, False),
        ("n1:1:2 [0] include/shm.h:41 NCCL WARN Error while creating shared memory segment nccl-shm-recv-2fa0 (size 9637888)", "nccl-shm", Role.ROOT, True),
        ("RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU", "gpu-driver-unreachable", Role.ROOT, False),
        ("Failed to initialize NVML: Unknown Error", "gpu-driver-unreachable", Role.ROOT, False),
        ("Failed to initialize NVML: Driver/library version mismatch", "driver-api-mismatch", Role.ROOT, False),
        ("[Feb 27 2025 15:10:02] [ERROR] [tid 12727] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0", "fabric-manager-switch-fatal", Role.ROOT, True),
        ("{1}[Hardware Error]: event severity: fatal", "edac-uncorrected", Role.ROOT, True),
        ("pcieport 0000:40:01.1: DPC: containment event, status:0x1f01 source:0x0000", "pcie-containment", Role.ROOT, True),
        ("pcieport 0000:97:01.0: pciehp: Slot(9): Link Down", "pcie-containment", Role.ROOT, True),
        ("CPU12: Package temperature is above threshold, cpu clock is throttled (total events = 1204)", "cpu-throttled", Role.CONFIRMATION, False),
        ("/home/u/run.sh: line 31: 40221 Bus error               (core dumped) python train.py", "shell-child-killed", Role.CASCADE, False),
        ("Fatal Python error: Segmentation fault", "native-crash-handler", Role.CASCADE, True),
        ("Rank0: (1) segmentation fault: artificial segfault", "native-crash-handler", Role.CASCADE, True),
        ("n1:1:2 [0] bootstrap.cc:131 NCCL WARN Bootstrap Root : rank 1 of 8 ranks has already checked in", "nccl-rank-twice", Role.ROOT, True),
        ("double free or corruption (!prev)", "heap-corrupted", Role.CASCADE, False),
        ("malloc(): corrupted top size", "heap-corrupted", Role.CASCADE, False),
        ("  what():  std::bad_alloc", "cpu-out-of-memory", Role.ROOT, True),
        ("RuntimeError: NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at CUDACachingAllocator.cpp", "gpu-driver-unreachable", Role.ROOT, False),
        ("torch.cuda.DeferredCudaCallError: CUDA call failed lazily at initialization with error: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED", "cuda-device-missing", Role.ROOT, True),
        ("RuntimeError: NCCL Error 2: unhandled system error", "torch-system-error", Role.ROOT, True),
        ("RuntimeError: NCCL Error 6: remote process exited or there was a network error", "torch-remote-error", Role.CASCADE, False),
        ("RuntimeError: Timeout waiting for key: default_pg/0/0 after 1800000 ms", "torch-rendezvous", Role.CASCADE, False),
        ("lightning.fabric.utilities.exceptions.SIGTERMException", "elastic-told-to-stop", Role.CASCADE, False),
        ("[rank: 0] Received SIGTERM: 15", "elastic-told-to-stop", Role.CASCADE, False),
        ("NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out", "nic-hang", Role.ROOT, False),
        ("OSError: Unable to open file (truncated file: eof = 96, sblock->base_addr = 0, stored_eof = 2048)", "corrupt-data", Role.ROOT, True),
        ("torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([3, 19])", "checkpoint-failed-on-ranks", Role.CONFIRMATION, False),
        ("bash: line 1: /opt/envs/train/bin/torchrun: No such file or directory", "program-not-found", Role.ROOT, True),
        ("OSError: Corrupt snappy compressed data.", "corrupt-data", Role.ROOT, True),
        ("OSError: image file is truncated (17 bytes not processed)", "corrupt-data", Role.ROOT, True),
        ("ValueError: DATA_LOSS: Error reading params.kernel: CRC-32C checksum verification failed", "checkpoint-unreadable", Role.ROOT, True),
        ("jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: failed to connect to all addresses", "jax-peer-lost", Role.CASCADE, False),
        ("torch.distributed.DistNetworkError: failed to recv, got 0 bytes", "torch-rendezvous", Role.CASCADE, False),
        ("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, code: -98, name: EADDRINUSE", "torch-port-in-use", Role.ROOT, True),
        ("torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (n1, 29500). The IPv6 network addresses of (n1, 29500) cannot be retrieved (gai error: -2 - Name or service not known).", "torch-host-unresolved", Role.ROOT, True),
        ("[W socket.cpp:764] [c10d] The IPv4 network addresses of (n1, 29500) cannot be retrieved (gai error: -3 - Temporary failure in name resolution).", "torch-resolving", Role.NOISE, False),
    ],
)  # fmt: skip
def test_a_line_is_read_by_the_entry_that_is_meant_for_it(line: str, expected: str, role: Role, fatal: bool) -> None:
    match = packaged_catalogue().match(line)
    assert match is not None
    assert (match.signature.id, match.signature.role, match.signature.fatal) == (expected, role, fatal)


@pytest.mark.parametrize(
    ("line", "job"),
    [
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.", "12"),
        ("slurmstepd: error: Detected 2 oom_kill events in StepId=12_3.batch. Some of the step tasks have been OOM Killed.", "12_3"),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,oom_memcg=/slurmstepd.scope/job_15/step_0,task=python", "15"),
    ],
)  # fmt: skip
def test_an_out_of_memory_record_names_its_job(line: str, job: str) -> None:
    match = packaged_catalogue().match(line)
    assert match is not None
    assert (match.signature.cause, match.fields.get("job")) == ("host_oom_cgroup", job)


@pytest.mark.parametrize(
    "line",
    [
        " [2025-06-01 12:00:00.0] iteration      10/   50000 | consumed samples: 5120 | number of nan iterations:   0 |",
        "{'loss': 1.31, 'grad_norm': 1.69, 'learning_rate': 7.4e-06, 'epoch': 0.0}",
        "  successfully saved checkpoint from iteration     270 to /ckpt/run [ t 1/8, p 1/2 ]",
        "FutureWarning: You are using `torch.load` with `weights_only=False`",
        "amdgpu 0000:c6:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block",
        "pyxis: imported docker image: docker://nvcr.io/nvidia/pytorch:25.01-py3",
        "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
        "The first task at the barrier: /job:jax_worker/replica:0/task:0. Some timed out task names:",
        "loss is 2.31 and the information is complete",
        "[rank0]: I/O errors are retried on this device",
        "Rank 0 failed to improve the monitoredBarrier example",
        "rcu: Hierarchical RCU implementation.",
        "INFO: a segmentation fault in the tokenizer was fixed in 4.2",
        "segmentation faults of the previous build are gone",
        "Segmentation fault (core dumped)",
        "{1}[Hardware Error]: event severity: corrected",
        "pcieport 0000:40:01.1: DPC: enabled with IRQ 62",
        "pcieport 0000:97:01.0: pciehp: Slot(9): Card present",
        "CPU12: Package temperature/speed normal (total events = 1204)",
        "INFO: 3 images were truncated to 512 tokens",
        "ls: cannot access '/data/old': No such file or directory",
        "node n2 state set to DRAIN with reason: kernel update",
    ],
)
def test_healthy_lines_are_nobodys_business(line: str) -> None:
    assert packaged_catalogue().match(line) is None


@given(st.text(max_size=500))
def test_any_text_can_be_matched(line: str) -> None:
    packaged_catalogue().match(line)
