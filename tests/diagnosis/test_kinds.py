"""Each kind of failure as real software words it: what happened, whose kind of fault, which node, what to do."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

from collections.abc import Callable

import pytest

from recovery.attribution.attribute import attribute
from recovery.attribution.incident import Incident
from recovery.model import Action, Category
from tests.diagnosis.stories import Story

_MIB = 1 << 20


def _xid(code: int, text: str, gpu: str = "0000:3b:00") -> str:
    return f"NVRM: Xid (PCI:{gpu}): {code}, pid='<unknown>', name=<unknown>, {text}"


def _after_fault(story: Story, node: int = 1, exit_code: int = -6) -> Incident:
    return story.wait(2).network_victims(node).agent_failed(node, exit_code).srun_exit(node, 0).incident()


def off_the_bus() -> Incident:
    return _after_fault(Story().bootstrap().iterations().wait(1).kernel(1, _xid(79, "GPU has fallen off the bus.")))


def double_bit_error() -> Incident:
    story = Story().bootstrap().iterations().wait(1)
    story.kernel(
        1,
        _xid(
            48,
            "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0x1 partition 6, subpartition 0.",
        ),
    )
    story.kernel(1, _xid(63, "Row Remapper: New row marked for remapping, reset gpu to activate."))
    story.kernel(1, _xid(45, "Ch 00000010"))
    return _after_fault(story.traceback(11, "RuntimeError: CUDA error: uncorrectable ECC error encountered"))


def row_remap_failure() -> Incident:
    return _after_fault(
        Story()
        .bootstrap()
        .iterations()
        .kernel(1, _xid(64, "Row Remapper Error: (0x00000012) - All reserved rows for bank are remapped"))
    )


def contained_ecc() -> Incident:
    return _after_fault(Story().bootstrap().iterations().kernel(1, _xid(94, "Contained: SM (0x1). RST: No, D-RST: No")))


def gsp_timeout_then_hang() -> Incident:
    story = Story().iterations().wait(1)
    story.kernel(
        1,
        _xid(
            119,
            "Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20803032 0x58c).",
        ),
    )
    story.wait(600).timeouts([0, 1, 2, 16, 17, 24])
    return story.agent_failed(0, -6).srun_exit(0).incident()


def gsp_timeout_by_nvidia_smi_only() -> Incident:
    story = Story().iterations().wait(1)
    story.kernel(1, _xid(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"))
    return _after_fault(story)


def nvlink5_fatal() -> Incident:
    return _after_fault(
        Story()
        .iterations()
        .kernel(1, _xid(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000): NVLink5"))
    )


def ecc_seen_by_process_only() -> Incident:
    return _after_fault(
        Story()
        .bootstrap()
        .iterations()
        .wait(1)
        .traceback(11, "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered")
    )


def memory_error_of_the_host() -> Incident:
    return _after_fault(
        Story().iterations().kernel(1, "EDAC MC1: 1 UE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0")
    )


def kernel_panic() -> Incident:
    return _after_fault(Story().bootstrap().iterations().kernel(1, "Kernel panic - not syncing: Fatal machine check"))


def soft_lockup() -> Incident:
    story = Story().iterations().wait(1)
    story.kernel(1, "watchdog: BUG: soft lockup - CPU#17 stuck for 23s! [pt_main_thread:4711]")
    return story.wait(600).timeouts([0, 5, 16, 24]).agent_failed(0, -6).incident()


def blocked_task_on_one_node() -> Incident:
    story = Story().iterations().wait(130)
    story.kernel(1, "INFO: task pt_data_worker:4711 blocked for more than 120 seconds.")
    return story.wait(500).timeouts([0, 5, 16, 24]).agent_failed(0, -6).incident()


def node_rebooted() -> Incident:
    story = Story().bootstrap().iterations().wait(30).network_victims(1)
    story.slurmctld("error: validate_node_specs: Node cn-022 unexpectedly rebooted boot_time=1 last response=2")
    return story.slurmctld("requeue job JobId=77 due to failure of node cn-022").incident()


def time_limit() -> Incident:
    story = Story().iterations(count=12).wait(2)
    story.say("slurmstepd: error: *** JOB 77 ON cn-021 CANCELLED AT 2025-06-01T12:30:00 DUE TO TIME LIMIT ***", 0)
    return story.say(
        "W0601 12:30:00.000000 1 torch/distributed/elastic/agent/server/api.py:741] Received 15 death signal, shutting down workers",
        0,
    ).incident()


def hang_until_the_time_limit() -> Incident:
    story = Story().iterations(count=12).wait(9_000)
    return story.say(
        "slurmstepd: error: *** JOB 77 ON cn-021 CANCELLED AT 2025-06-01T12:30:00 DUE TO TIME LIMIT ***", 0
    ).incident()


def link_down_on_one_node() -> Incident:
    story = Story().bootstrap().iterations()
    story.kernel(1, "mlx5_core 0000:c1:00.0: Port: 1 Link DOWN")
    return _after_fault(story)


def path_failed_silently() -> Incident:
    return Story(node_count=8).bootstrap().iterations().wait(30).network_victims(3).agent_failed(0, -6).incident()


def path_failed_and_addresses_unknown() -> Incident:
    return (
        Story(node_count=8)
        .iterations()
        .wait(30)
        .network_victims(3, reporters=(2, 4), named=False)
        .agent_failed(2, -6)
        .incident()
    )


def errors_in_all_directions() -> Incident:
    story = Story(node_count=4).bootstrap().iterations()
    for reporter in range(4):
        story.network_victims((reporter + 1) % 4, reporters=(reporter,))
    return story.agent_failed(0, -6).incident()


def cuda_out_of_memory_everywhere() -> Incident:
    story = Story().wait(20)
    for rank in (0, 3, 9, 17, 25):
        story.traceback(
            rank,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.15 GiB of which 1.02 GiB is free. Including non-PyTorch memory, this process has 78.12 GiB memory in use.",
        )
    return story.agent_failed(0).srun_exit(0, 1).incident()


def mismatched_collectives() -> Incident:
    story = Story(node_count=1).iterations().wait(600)
    story.timeouts([0, 1, 2, 3, 4, 5], op="ALLREDUCE", numel=100)
    return story.timeouts([6, 7], op="_ALLGATHER_BASE", numel=4096).agent_failed(0, -6).incident()


def one_rank_behind() -> Incident:
    story = Story().iterations().wait(600)
    story.timeouts([r for r in range(32) if r != 13], seq=700, enqueued=702)
    story.say(
        "[rank13]:[E601 12:30:01.000000000 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 13] Received a dump signal due to a collective timeout from  rank 4 and we will try our best to dump the debug info. Last enqueued NCCL work: 699, last completed NCCL work: 699.",
        1,
        13,
    )
    return story.agent_failed(0, -6).incident()


def one_node_never_came() -> Incident:
    return Story().iterations().wait(600).timeouts([*range(8), *range(16, 32)]).agent_failed(0, -6).incident()


def one_rank_prepares_data_for_all() -> Incident:
    story = Story()
    for done in range(1, 20):
        story.wait(30).say(f"Map:  {5 * done}%|█▏  | {done}/20 [{done // 2:02d}:30<09:30,  0.03 examples/s]", 0, 0)
    return story.timeouts([*range(1, 32)], seq=1).agent_failed(1, -6).incident()


def another_rank_prepares_data() -> Incident:
    story = Story()
    for done in range(1, 20):
        story.wait(30).say(f"Map:  {5 * done}%|█▏  | {done}/20 [{done // 2:02d}:30<09:30,  0.03 examples/s]", 0, 0)
    return story.timeouts([*range(1, 8), *range(16, 32)], seq=1).agent_failed(0, -6).incident()


def links_of_two_nodes_down_at_once() -> Incident:
    story = Story(node_count=8).bootstrap().iterations()
    story.kernel(1, "mlx5_core 0000:c1:00.0: Port: 1 Link DOWN")
    story.kernel(2, "mlx5_core 0000:c1:00.0: Port: 1 Link DOWN")
    return _after_fault(story)


def container_fails_on_one_node() -> Incident:
    return (
        Story()
        .say("slurmstepd: error: pyxis:     [ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1", 1)
        .srun_exit(1)
        .incident()
    )


def container_fails_everywhere() -> Incident:
    story = Story()
    for node in range(4):
        story.say(
            "slurmstepd: error: pyxis:     [ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1", node
        )
    return story.srun_exit(0, 1, 2, 3).incident()


def driver_too_old_on_one_node() -> Incident:
    return _too_old([1])


def driver_too_old_everywhere() -> Incident:
    return _too_old([0, 1, 2, 3])


def _too_old(nodes: list[int]) -> Incident:
    story = Story()
    for node in nodes:
        for rank in range(8 * node, 8 * node + 8):
            story.traceback(rank, "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).")
    return story.srun_exit(*nodes).incident()


def nobody_reaches_one_node() -> Incident:
    story = Story().bootstrap()
    for node in (0, 1, 3):
        why = f"socketStartConnect: Connect to {story.address(2)}<41077> failed : No route to host"
        story.say(f"{story.node(node)}:4:5 [0] misc/socket.cc:484 NCCL WARN {why}", node, 8 * node)
        story.say("ncclSystemError: System call (e.g. socket, malloc) or external library call failed.", node, 8 * node)
    return story.srun_exit(0, 1, 3).incident()


def program_missing_on_one_node() -> Incident:
    return _program_missing(1)


def program_missing_for_the_script() -> Incident:
    return _program_missing(0)


def _program_missing(node: int) -> Incident:
    story = Story().say("bash: line 1: /opt/envs/train/bin/torchrun: No such file or directory", node)
    return story.srun_exit(node, how="Exited with exit code 127").incident()


def _script_without_modules() -> Story:
    return Story().say("/var/spool/slurmd/job4711/slurm_script: line 9: module: command not found", 0).wait(200)


def missing_command_that_did_not_matter() -> Incident:
    return (
        _script_without_modules()
        .traceback(9, "RuntimeError: CUDA error: uncorrectable ECC error encountered")
        .incident()
    )


def missing_command_of_a_job_that_loads() -> Incident:
    return _script_without_modules().say("Loading checkpoint shards:  40%", 0, 0).incident()


def services_that_a_start_did_without() -> Incident:
    story = Story().say("fatal: unable to access 'https://github.com/o/r/': Could not resolve host: github.com", 0)
    story.say("Failed to initialize NVML: Unknown Error", 1)
    story.say("wandb: ERROR Failed to resolve 'api.wandb.ai' (Temporary failure in name resolution)", 0, 0)
    return story.wait(200).say("building index shard 4 of 40", 0, 0).incident()


def service_that_a_start_could_not_do_without() -> Incident:
    story = Story().traceback(0, "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub', port=443)")
    return story.wait(200).say("Exception ignored in atexit callback", 0, 0).srun_exit(0).incident()


def memory_limit_of_another_job() -> Incident:
    story = Story().iterations()
    story.kernel(
        1,
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg=/system.slice/slurmstepd.scope/job_99,task=R,pid=5012",
    )
    story.say(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=99.0. Some of the step tasks have been OOM Killed.", 1
    )
    return story.incident(job_id="4711")


def native_crash_and_its_echo() -> Incident:
    story = Story(node_count=8).bootstrap().iterations().wait(5)
    story.say("double free or corruption (!prev)", 2, 17).wait(1)
    return story.network_victims(2).srun_exit(2, 0).incident()


def native_crash_of_a_victim() -> Incident:
    story = Story(node_count=8).bootstrap().iterations().wait(5).network_victims(2).wait(1)
    return story.say("Fatal Python error: Segmentation fault", 0, 3).incident()


def cancelled_while_lightning_runs() -> Incident:
    story = Story().iterations()
    story.say(f"slurmstepd: error: *** JOB 4711 ON {story.node(0)} CANCELLED AT 2025-06-01T12:00:00 ***", 0).wait(1)
    for rank in (3, 17):
        story.say(f"[rank: {rank}] Received SIGTERM: 15", rank // 8, rank)
        story.traceback(rank, "lightning.fabric.utilities.exceptions.SIGTERMException")
    return story.incident()


def node_failure_that_only_peers_name() -> Incident:
    story = Story(node_count=6).bootstrap().iterations().wait(20).network_victims(3)
    return story.say(
        f"slurmstepd: error: *** JOB 4711 ON {story.node(0)} CANCELLED AT 2025-06-01T12:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
        0,
    ).incident()


def checkpoint_error_that_every_rank_repeats() -> Incident:
    story = Story().iterations()
    for rank in range(32):
        told = "CheckpointException ranks:dict_keys([11])"
        story.say(f"[rank{rank}]: torch.distributed.checkpoint.api.CheckpointException: {told}", rank // 8, rank)
        story.say(f"[rank{rank}]: Traceback (most recent call last): (RANK 11)", rank // 8, rank)
        story.say(f"[rank{rank}]: OSError: [Errno 5] Input/output error", rank // 8, rank)
    return story.srun_exit(0, 1, 2, 3).incident()


def requeued_while_well() -> Incident:
    story = Story().iterations()
    return story.say(
        f"slurmstepd: error: *** JOB 4711 ON {story.node(0)} CANCELLED AT 2025-06-01T12:00:00 DUE TO JOB REQUEUE ***", 0
    ).incident()


def timeouts_without_a_hint() -> Incident:
    return Story(node_count=8).iterations().wait(600).timeouts([0, 17, 42]).agent_failed(0, -6).incident()


def same_error_wanders_over_nodes() -> Incident:
    story = Story()
    for attempt, rank in enumerate((3, 18, 25)):
        node = rank // 8
        story.iterations(first=100 + attempt).kernel(
            node,
            _xid(
                31,
                "Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x2b57_b3000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
                f"0000:{attempt}b:00",
            ),
        )
        story.traceback(rank, "RuntimeError: CUDA error: an illegal memory access was encountered").agent_failed(
            node
        ).wait(60)
        if attempt < 2:
            story.slurmctld("Requeuing JobId=77")
    return story.incident()


def nan_loss_left_out() -> Incident:
    return Story().iterations().iterations(first=110, count=6, loss="", nan=1).incident()


def nan_in_one_ranks_gradients() -> Incident:
    story = Story().iterations()
    story.say(
        "[rank13]: ValueError: Rank 13, node cn-022, device 5, iteration 111: Unexpected result nan (message='found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication collective')",
        1,
        13,
    )
    return _after_fault(story, exit_code=1)


def loss_is_nan_exception() -> Incident:
    story = Story().iterations()
    for rank in (0, 9, 17):
        story.traceback(rank, "ValueError: loss is nan at step 111, stopping")
    return story.agent_failed(0).incident()


def jax_task_lost() -> Incident:
    story = Story(gpus=8)
    for node in range(4):
        if node != 2:
            story.say(
                "E0601 12:00:00.000000 4242 client.h:77] Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died; see the other task logs for more details. The following tasks are unhealthy (stopped sending heartbeats): /job:jax_worker/replica:0/task:2",
                node,
            )
    return story.srun_exit(0).incident()


def node_missing_at_rendezvous() -> Incident:
    story = Story().wait(600)
    for rank in (0, 3, 8, 24, 30):
        story.traceback(
            rank,
            "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 24/32 clients joined.",
        )
    return story.agent_failed(0).incident()


def local_disk_full() -> Incident:
    story = Story().bootstrap().iterations()
    story.traceback(9, "OSError: [Errno 28] No space left on device: '/tmp/torchinductor_u/ab.cubin'")
    return _after_fault(story, exit_code=1)


def shared_disk_full() -> Incident:
    story = Story().iterations()
    for rank in (0, 8, 24):
        story.traceback(rank, "OSError: [Errno 28] No space left on device: '/lustre/ckpt/iter_0000110/mp_rank_00.pt'")
    return story.agent_failed(0).incident()


def file_server_gone_for_all() -> Incident:
    story = Story().iterations()
    for node in range(4):
        story.kernel(node, "nfs: server fs1 not responding, still trying")
    story.wait(600).timeouts([0, 9, 17, 25])
    return story.agent_failed(0, -6).incident()


def all_clients_evicted() -> Incident:
    story = Story().iterations()
    for node in range(4):
        story.kernel(
            node,
            "LustreError: 167-0: work-OST0003-osc-ffff9a: This client was evicted by work-OST0003; in progress operations using this service will fail.",
        )
        story.traceback(node * 8, "OSError: [Errno 5] Input/output error: '/work/data/x.bin'")
    return story.agent_failed(0).incident()


def checkpoint_never_finished() -> Incident:
    story = Story().iterations()
    story.say("saving checkpoint at iteration     110 to /ckpt/run in torch_dist format", 0, 0, "stdout")
    return story.wait(600).timeouts([0, 9, 17, 25]).agent_failed(0, -6).incident()


def registry_unavailable() -> Incident:
    story = Story()
    for node in (0, 2):
        story.say("slurmstepd: error: pyxis: child 41000 failed with error code: 1", node)
        story.say(
            "slurmstepd: error: pyxis:     [ERROR] URL https://reg.example/v2/t/manifests/1 returned error code: 503 Service Unavailable",
            node,
        )
    return story.srun_exit(0).incident()


def shm_of_one_node_full() -> Incident:
    story = Story().wait(20)
    story.say(
        "cn-022:7001:7002 [3] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-x1 to 33030532 bytes, error: No space left on device (28)",
        1,
        11,
    )
    story.traceback(
        11,
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5",
    )
    return story.agent_failed(1).srun_exit(1, 0).incident()


def stale_process_in_node_memory() -> Incident:
    story = Story().iterations()
    story.kernel(
        1,
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/x,task=python,pid=4,uid=1",
    )
    story.kernel(
        1,
        "Out of memory: Killed process 4 (python) total-vm:1kB, anon-rss:1kB, file-rss:1kB, shmem-rss:0kB, UID:1 pgtables:1kB oom_score_adj:0",
    )
    return _after_fault(story, exit_code=-9)


def nvme_failed() -> Incident:
    story = Story().iterations()
    story.kernel(1, "nvme nvme2: I/O 128 QID 4 timeout, reset controller").kernel(
        1, "EXT4-fs (nvme2n1): Remounting filesystem read-only"
    )
    story.traceback(9, "OSError: [Errno 30] Read-only file system: '/local/cache/x'")
    return _after_fault(story, exit_code=1)


def segfault_in_nccl() -> Incident:
    story = Story().iterations()
    story.kernel(1, "pt_main_thread[4711]: segfault at 0 ip 00007f2 sp 00007f3 error 4 in libnccl.so.2[7f2+100]")
    return _after_fault(story, exit_code=-11)


def native_crash_without_a_word() -> Incident:
    return Story().iterations().srun_exit(2, how="Segmentation fault").incident()


def only_exit_codes() -> Incident:
    return Story().iterations().srun_exit(2, how="Exited with exit code 3").incident()


def shm_of_all_nodes_full() -> Incident:
    story = Story().wait(20)
    for node in range(4):
        story.say(
            f"{story.node(node)}:7001:7002 [3] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-x1 to 33030532 bytes, error: No space left on device (28)",
            node,
            node * 8,
        )
    return story.agent_failed(1).incident()


def file_server_hands_out_stale_handles() -> Incident:
    story = Story().iterations()
    for rank in (0, 9, 17, 25):
        story.traceback(rank, "OSError: [Errno 116] Stale file handle: '/home/data/x.bin'")
    return story.agent_failed(1).incident()


def retries_while_starting() -> Incident:
    story = Story()
    for text in (
        "'(ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out.\"))' thrown while requesting HEAD https://huggingface.co/x",
        "WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by 'NewConnectionError('<x>: Temporary failure in name resolution')': /simple/x/",
    ):
        story.say(text, 0, 0)
    return story.incident(state="RUNNING")


def peers_refused() -> Incident:
    story = Story().wait(20)
    for rank in (0, 9):
        story.traceback(rank, "ConnectionRefusedError: [Errno 111] Connection refused")
    return story.agent_failed(0).incident()


def blas_fails_on_a_gpu_with_trouble() -> Incident:
    story = Story().bootstrap().iterations().kernel(1, _xid(13, "Graphics SM Warp Exception on (GPC 1, TPC 0, SM 0)"))
    story.kernel(1, _xid(95, "Uncontained: LTC (0x1). RST: Yes, D-RST: No"))
    return _after_fault(
        story.traceback(9, "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx")
    )


def time_skewed_victim_first() -> Incident:
    story = Story().bootstrap().iterations()
    story.wait(-100).network_victims(1, reporters=(2,)).wait(100)
    story.kernel(1, _xid(79, "GPU has fallen off the bus."))
    return _after_fault(story)


def killed_by_rank_monitor() -> Incident:
    story = Story().iterations().wait(700)
    for rank in (0, 1, 2, 16, 24, 31):
        story.say(f"[Cycle 0] Did not get subsequent heartbeat. Waited 600.0 seconds. rank={rank}", rank // 8, rank)
    return story.agent_failed(0, -9).incident()


def straggler_by_clock() -> Incident:
    story = Story().iterations(count=8).iterations(first=108, count=12, step_s=7.5)
    for node in range(4):
        for gpu in range(8):
            story.gauge("DCGM_FI_DEV_SM_CLOCK", node, gpu, 900 if (node, gpu) == (2, 5) else 1950 + gpu)
    return story.incident()


def straggler_by_reports() -> Incident:
    story = Story().iterations(count=8).iterations(first=108, count=12, step_s=7.5)
    for _ in range(4):
        story.wait(30).say(
            "[2025-06-01 12:10:00] | MnRtt/Rnk: 4701.22ms/12 | MxRtt/Rnk: 7588.01ms/21 | MnPwr/Rnk: 302.11W/21 | MnEtpt/Rnk: 261.31TF/21 | MxEtpt/Rnk: 431.90TF/12",
            0,
            0,
            "stdout",
        )
    return story.incident()


def straggler_that_rotates() -> Incident:
    story = Story().iterations(count=8).iterations(first=108, count=12, step_s=7.5)
    for rank in (3, 9, 21, 30):
        story.say(
            f"[2025-06-01 12:10:00] | MnRtt/Rnk: 4701.22ms/12 | MxRtt/Rnk: 7588.01ms/{rank} | MnEtpt/Rnk: 261.31TF/{rank} | MxEtpt/Rnk: 431.90TF/12",
            0,
            0,
            "stdout",
        )
    return story.incident()


def clean_end_with_store_noise() -> Incident:
    story = Story().iterations()
    story.say("[after training is done] datetime: 2025-06-01 12:10:00", 0, 0, "stdout")
    for rank in (3, 9, 21):
        story.say(
            f"[rank{rank}]:[W601 12:10:01.000000000 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=87, addr=[cn-022]:34592, remote=[cn-021]:29500): Connection reset by peer",
            rank // 8,
            rank,
        )
        story.say(
            f'[rank{rank}]:[W601 12:10:01.000000000 ProcessGroupNCCL.cpp:1662] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe',
            rank // 8,
            rank,
        )
    return story.say(
        "WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL.", 0, 0
    ).incident()


def store_noise_without_an_end_marker() -> Incident:
    story = Story().iterations()
    return story.say(
        "[rank3]:[W601 12:10:01.000000000 TCPStore.cpp:125] [c10d] sendBytes failed on SocketImpl(fd=87, addr=[a]:1, remote=[b]:29500): Broken pipe",
        0,
        3,
    ).incident()


def stale_xid_gauge() -> Incident:
    story = Story().iterations(count=4)
    for _ in range(5):
        story.gauge("DCGM_FI_DEV_XID_ERRORS", 1, 3, 79).iterations(first=104, count=1)
    return story.iterations(first=105, count=4).incident()


def stale_xid_gauge_then_a_bug() -> Incident:
    story = Story().bootstrap().iterations(count=2)
    for _ in range(3):
        story.gauge("DCGM_FI_DEV_XID_ERRORS", 1, 3, 79).iterations(first=104, count=1)
    return _after_fault(story.traceback(9, "AttributeError: 'NoneType' object has no attribute 'shape'"), exit_code=1)


def killed_without_a_record() -> Incident:
    story = Story(node_count=6).bootstrap().iterations().srun_exit(3, how="Killed").network_victims(3)
    return story.srun_exit(0).incident()


def corrected_errors_only() -> Incident:
    story = Story().iterations(count=4)
    story.kernel(1, "EDAC MC1: 1 CE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0")
    story.kernel(2, "pcieport 0000:16:01.0: AER: Corrected error received: 0000:17:00.0")
    story.say(
        "cn-021:7001:7002 [3] transport/net_ib.cc:180 NCCL WARN NET/IB : mlx5_0:1 Got non-fatal async event: GID table change(18)",
        0,
        3,
    )
    story.say("cn-021:7001:7002 [3] transport/nvls.cc:157 NCCL WARN Cuda failure 1 'invalid argument'", 0, 3)
    return story.iterations(first=104, count=6).incident()


def corrected_errors_at_the_very_end() -> Incident:
    story = Story().iterations(count=10)
    story.kernel(1, "EDAC MC1: 1 CE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0")
    return story.kernel(1, _xid(63, "Row Remapper: New row marked for remapping, reset gpu to activate.")).incident()


def long_evaluation() -> Incident:
    story = Story().iterations(count=10)
    for n in range(1, 60):
        story.wait(30).say(f"Evaluating iter {n}/100", 3, 31, "stdout")
    return story.incident()


def hub_retry_that_succeeded() -> Incident:
    story = Story()
    story.say(
        "'(ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out.\"))' thrown while requesting HEAD https://huggingface.co/x",
        0,
        0,
    )
    story.say("Retrying in 1s [Retry 1/5].", 0, 0)
    return story.iterations().incident()


def nfs_pause_that_ended() -> Incident:
    story = Story().iterations(count=5)
    story.kernel(1, "nfs: server fs1 not responding, still trying").wait(20).kernel(1, "nfs: server fs1 OK")
    return story.iterations(first=105, count=6).incident()


def application_xid_of_a_neighbour() -> Incident:
    story = Story(gpus=4).iterations(count=5)
    story.kernel(1, _xid(13, "Graphics SM Warp Exception on (GPC 1, TPC 0, SM 0): Out Of Range Address", "0000:d1:00"))
    return story.iterations(first=105, count=6).incident()


def exception_in_a_caught_block() -> Incident:
    story = Story().iterations(count=5).traceback(3, "ValueError: could not parse sample 12, skipping")
    return story.iterations(first=105, count=6).incident()


def python_exception_on_one_rank() -> Incident:
    return _after_fault(
        Story().bootstrap().iterations().traceback(9, "IndexError: list index out of range"), exit_code=1
    )


def python_exception_everywhere() -> Incident:
    story = Story().wait(5)
    for rank in range(32):
        story.traceback(rank, "TypeError: forward() got an unexpected keyword argument 'mask'")
    return story.agent_failed(0).srun_exit(0, 1, 2, 3).incident()


def import_error_everywhere() -> Incident:
    story = Story().wait(5)
    for rank in range(0, 32, 4):
        story.traceback(rank, "ModuleNotFoundError: No module named 'flash_attn'")
    return story.agent_failed(0).incident()


def hca_internal_error_late_in_log() -> Incident:
    story = Story().bootstrap().iterations().network_victims(1).agent_failed(0, -6)
    story.wait(-5).kernel(
        1, "mlx5_core 0000:3b:00.0: mlx5_health_check_fatal_sensors:424:(pid 0): Fatal error reported"
    )
    return story.kernel(
        1, "mlx5_core 0000:3b:00.0: print_health_info:458:(pid 0): synd 0x1: firmware internal error"
    ).incident()


def gpu_missing_on_one_node() -> Incident:
    story = Story().wait(30)
    for rank in range(8, 16):
        story.traceback(rank, "RuntimeError: No CUDA GPUs are available")
    return story.agent_failed(1).incident()


def routing_broken_at_start() -> Incident:
    story = Story().bootstrap().wait(10)
    for rank in (0, 9, 17, 25):
        story.say(
            f"{story.node(rank // 8)}:7001:7002 [1] misc/ibvwrap.cc:160 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state RTR, local GID index 3, local GID ::1, remote GID ::2",
            rank // 8,
            rank,
        )
        story.traceback(
            rank,
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5",
        )
    return story.agent_failed(0).incident()


def transient_wrong_result() -> Incident:
    story = Story().iterations()
    story.say(
        "[rank13]: ERROR:megatron.core.rerun_state_machine:Rank 13, node cn-022, device 5, iteration #44101: Possible transient error!",
        1,
        13,
    )
    return story.agent_failed(1, 16).incident()


def user_cancelled_a_healthy_job() -> Incident:
    story = Story().iterations()
    story.slurmctld("_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=77 uid 2001")
    story.say("slurmstepd: error: *** JOB 77 ON cn-021 CANCELLED AT 2025-06-01T12:30:00 ***", 0)
    return story.traceback(
        3, "torch.distributed.elastic.multiprocessing.api.SignalException: Process 8800 got signal: 15"
    ).incident()


def cancelled_without_a_reason() -> Incident:
    story = Story().iterations()
    story.say("slurmstepd: error: *** JOB 77 ON cn-021 CANCELLED AT 2025-06-01T12:30:00 ***", 0)
    return story.traceback(
        3, "torch.distributed.elastic.multiprocessing.api.SignalException: Process 8800 got signal: 15"
    ).incident()


def adapter_dead_without_a_port_event() -> Incident:
    """The culprit complains about everybody, everybody complains about it."""
    story = Story(node_count=6).bootstrap().iterations().wait(30)
    for peer in (0, 1, 3):
        story.network_victims(peer, reporters=(2,))
    return story.network_victims(2).agent_failed(0, -6).srun_exit(2, 0).incident()


def summary_with_a_quoted_traceback() -> Incident:
    story = Story().iterations().wait(1)
    for text in (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2025-06-01_12:01:00",
        "  host      : cn-022",
        "  rank      : 12 (local_rank: 4)",
        "  exitcode  : 1 (pid: 30230)",
        "  error_file: /tmp/torchelastic_1/none_x/attempt_0/4/error.json",
        "  traceback : Traceback (most recent call last):",
        '    File "/workspace/train.py", line 205, in train',
        "      loss = head(x)",
        "  TypeError: head() missing 1 required positional argument",
    ):
        story.say(text, 1)
    return story.incident()


def old_fault_forwarded_late() -> Incident:
    story = Story().iterations(count=8)
    stamp = "Jun  1 11:13:20"
    story.say(f"{stamp} cn-022 kernel: [1.000000] {_xid(79, 'GPU has fallen off the bus.')}", 1, stream="syslog")
    return story.incident()


def fault_forwarded_late() -> Incident:
    story = Story().bootstrap().iterations(count=8).wait(10).network_victims(1).agent_failed(0, -6).srun_exit(0)
    story.wait(600).say(
        f"Jun  1 12:00:44 cn-022 kernel: [1.000000] {_xid(79, 'GPU has fallen off the bus.')}", 1, stream="syslog"
    )
    return story.incident()


def node_down_after_its_gpu_failed() -> Incident:
    story = Story().iterations().kernel(1, _xid(79, "GPU has fallen off the bus.")).wait(60)
    story.slurmctld("error: Nodes cn-022 not responding, setting DOWN")
    return story.say("srun: error: Node failure on cn-022", 0).incident()


def node_of_another_job_down() -> Incident:
    story = Story().iterations()
    story.slurmctld("error: Nodes zz-900 not responding, setting DOWN")
    return story.slurmctld("Killing JobId=4 on failed node zz-900").incident(job_id="77")


def other_job_cancelled() -> Incident:
    story = Story().iterations()
    return story.slurmctld("_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=4 uid 2001").incident(job_id="77")


def other_job_preempted_for_ours() -> Incident:
    story = Story()
    story.slurmctld("preempted JobId=4 has been requeued to reclaim resources for JobId=77")
    return story.iterations().incident(job_id="77")


def memory_error_on_a_node_with_ecc_history() -> Incident:
    story = Story().iterations(count=4).kernel(1, _xid(94, "Contained: SM (0x1). RST: No, D-RST: No"))
    story.iterations(first=104, count=6)
    return _after_fault(
        story.traceback(9, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."), exit_code=1
    )


def path_missing_on_one_node() -> Incident:
    story = Story().wait(9)
    for rank in range(8, 16):
        story.traceback(rank, "FileNotFoundError: [Errno 2] No such file or directory: '/data/vocab.json'")
    return story.agent_failed(1).srun_exit(1, 0).incident()


def path_missing_everywhere() -> Incident:
    story = Story().wait(9)
    for rank in range(0, 32, 2):
        story.traceback(rank, "FileNotFoundError: [Errno 2] No such file or directory: '/data/vocab.json'")
    return story.agent_failed(1).srun_exit(1, 0).incident()


def ranks_inside_a_group() -> Incident:
    """In a group of its own the rank in the text is not the global one: rank 5 of the group is global rank 21."""
    story = Story().iterations().wait(600)
    for global_rank in (16, 17, 18, 19, 20, 22, 23):
        inside = global_rank - 16
        head = (
            f"[rank{global_rank}]:[E601 12:30:00.123456789 ProcessGroupNCCL.cpp:1785] [PG ID 3 PG GUID 9 Rank {inside}]"
        )
        story.say(
            f"{head} Exception (either an error or timeout) detected by watchdog at work: 90, last enqueued NCCL work: 92, last completed NCCL work: 89.",
            2,
            global_rank,
        )
    story.say(
        "[rank21]:[E601 12:30:01.123456789 ProcessGroupNCCL.cpp:1785] [PG ID 3 PG GUID 9 Rank 5] Received a dump signal due to a collective timeout from  rank 1 and we will try our best to dump the debug info. Last enqueued NCCL work: 89, last completed NCCL work: 89.",
        2,
        21,
    )
    return story.agent_failed(2, -6).incident()


def groups_with_equal_sequence_numbers() -> Incident:
    """Two groups at the same sequence number with different calls are no mismatch."""
    story = Story().iterations().wait(600)
    story.timeouts([0, 1, 2], seq=50, op="ALLREDUCE", numel=10, group="PG ID 1 PG GUID 3")
    story.timeouts([8, 9], seq=50, op="_ALLGATHER_BASE", numel=99, group="PG ID 2 PG GUID 7")
    return story.agent_failed(0, -6).incident()


def model_output_then_a_real_crash() -> Incident:
    story = Story(node_count=1).iterations(count=4)
    story.say("Traceback (most recent call last):", 0, 0, "stdout").say("KeyError: 'x'", 0, 0, "stdout")
    story.iterations(first=104, count=4)
    return story.traceback(3, "ValueError: bad batch").agent_failed(0).srun_exit(0).incident()


def xid_seen_by_the_gauge_only() -> Incident:
    story = Story().bootstrap().iterations(count=4).gauge("DCGM_FI_DEV_XID_ERRORS", 1, 3, 0)
    story.iterations(first=104, count=4).gauge("DCGM_FI_DEV_XID_ERRORS", 1, 3, 79)
    return _after_fault(story)


def idle_gpus_during_a_timeout() -> Incident:
    story = Story().iterations().wait(300)
    for node in range(4):
        story.gauge("DCGM_FI_DEV_GPU_UTIL", node, 0, 0 if node == 2 else 100)
    return story.wait(300).timeouts([0, 8, 24]).agent_failed(0, -6).incident()


def nan_that_passes() -> Incident:
    return (
        Story()
        .iterations(count=5)
        .iterations(first=105, count=2, loss="", nan=1)
        .iterations(first=107, count=5)
        .incident()
    )


def loss_scale_warm_up() -> Incident:
    return Story().iterations(first=1, count=3, loss="", skipped=1).iterations(first=4, count=4).incident()


def agent_gives_up() -> Incident:
    story = Story().iterations(count=4).traceback(3, "ValueError: bad batch").agent_failed(0)
    story.say(
        "I0601 12:00:40.012000 9000 torch/distributed/elastic/agent/server/api.py:889] [default] Worker group FAILED. 1/3 attempts left; will restart worker group",
        0,
    )
    story.iterations(first=101, count=3).traceback(3, "ValueError: bad batch").agent_failed(0)
    return story.srun_exit(0).incident()


def memory_limit_on_one_node() -> Incident:
    story = Story().bootstrap().iterations()
    story.kernel(
        1,
        "Memory cgroup out of memory: Killed process 72952 (python) total-vm:5kB, anon-rss:2kB, file-rss:8kB, shmem-rss:0kB, UID:2001 pgtables:6kB oom_score_adj:0",
    )
    story.say(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of the step tasks have been OOM Killed.", 1
    )
    return _after_fault(story, exit_code=-9)


def registry_refuses() -> Incident:
    story = Story(node_count=2)
    story.say(
        "slurmstepd: error: pyxis:     [ERROR] URL https://reg.example/v2/t/manifests/1 returned error code: 401 Unauthorized",
        0,
    )
    return story.srun_exit(0).incident()


def names_not_resolved() -> Incident:
    story = Story().wait(3)
    for rank in (0, 9):
        story.traceback(
            rank,
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /api (Caused by NameResolutionError('Temporary failure in name resolution'))",
        )
    return story.agent_failed(0).incident()


def flap_survived_then_a_bug() -> Incident:
    story = Story().bootstrap().iterations(count=4).kernel(2, "mlx5_core 0000:3b:00.0: Port: 1 Link DOWN").wait(2)
    story.kernel(2, "mlx5_core 0000:3b:00.0: Port: 1 Link UP").iterations(first=104, count=6)
    return _after_fault(story.traceback(9, "AttributeError: 'NoneType' object has no attribute 'shape'"), exit_code=1)


def illegal_access_once() -> Incident:
    story = Story().bootstrap().iterations().kernel(1, _xid(31, "Ch 1, intr 0. MMU Fault: ENGINE GRAPHICS faulted"))
    return _after_fault(story.traceback(9, "RuntimeError: CUDA error: an illegal memory access was encountered"))


def file_server_gone_for_one() -> Incident:
    story = Story().iterations().kernel(1, "nfs: server fs1 not responding, still trying")
    return story.wait(600).timeouts([0, 17, 25]).agent_failed(0, -6).incident()


def two_nodes_lose_power_at_once() -> Incident:
    story = Story(node_count=6).bootstrap().iterations()
    story.kernel(1, _xid(79, "GPU has fallen off the bus.")).kernel(4, _xid(79, "GPU has fallen off the bus."))
    return story.agent_failed(0, -6).incident()


def contained_error_with_its_echo() -> Incident:
    story = Story()
    for rank in (9, 0, 17, 25):
        story.wait(0.3).say(
            f"jax.errors.JaxRuntimeError: INTERNAL: CUDA_ERROR_CONTAINED: Invalid access of peer GPU memory over nvlink or a hardware error rank {rank}",
            rank // 8,
            rank,
        )
    return story.srun_exit(1).incident()


def _on_networks(*networks: str) -> Incident:
    story = Story()
    for node, network in enumerate(networks):
        for rank in range(node * 8, node * 8 + 8):
            story.say(f"{story.node(node)}:41:52 [{rank % 8}] NCCL INFO Using network {network}", node, rank)
    return story.wait(600).timeouts(range(32)).incident()


def another_network_on_one_node() -> Incident:
    return _on_networks("IB", "IB", "Socket", "IB")


def two_networks_of_equal_standing() -> Incident:
    return _on_networks("IB", "IB", "Socket", "Socket")


def _store(*nodes: int) -> Story:
    story = Story().wait(600)
    for rank in (8 * node + local for node in nodes for local in range(8)):
        story.traceback(
            rank,
            "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (n1, 29500).",
        )
    return story


def a_node_that_does_not_reach_the_store() -> Incident:
    story = (
        _store(3)
        .wait(2)
        .traceback(
            0,
            "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 24/32 clients joined.",
        )
    )
    return story.agent_failed(3).srun_exit(3).incident()


def a_store_that_nobody_reaches() -> Incident:
    return _store(1, 2, 3).agent_failed(3).srun_exit(3).incident()


def slow_thread_that_woke() -> Incident:
    story = Story().iterations(count=4)
    story.say(
        "E0601 12:00:00.000000 1 rendezvous.cc:31] This thread has been waiting for `acquire clique` for 20 seconds and may be stuck.",
        0,
    )
    story.say(
        "E0601 12:00:10.000000 1 rendezvous.cc:36] Thread is unstuck! Warning above was a false-positive. Perhaps the timeout is too short.",
        0,
    )
    return story.iterations(first=104, count=3).incident()


Expected = tuple[str, str, tuple[int, ...], set[Action]]

R, X, S, W, N = Action.RESTART, Action.RESTART_EXCLUDE, Action.STOP, Action.WAIT, Action.NONE

KINDS: list[tuple[Callable[[], Incident], Expected]] = [
    (off_the_bus, ("crash", "hardware_gpu", (1,), {X})),
    (double_bit_error, ("crash", "hardware_gpu", (1,), {X})),
    (row_remap_failure, ("crash", "hardware_gpu", (1,), {X})),
    (contained_ecc, ("crash", "hardware_gpu", (1,), {R})),
    (gsp_timeout_then_hang, ("hang", "hardware_gpu", (1,), {X})),
    (gsp_timeout_by_nvidia_smi_only, ("crash", "hardware_gpu", (1,), {X})),
    (nvlink5_fatal, ("crash", "hardware_gpu", (1,), {X})),
    (ecc_seen_by_process_only, ("crash", "hardware_gpu", (1,), {X})),
    (memory_error_of_the_host, ("crash", "host", (1,), {X})),
    (kernel_panic, ("crash", "host", (1,), {X})),
    (soft_lockup, ("hang", "host", (1,), {X})),
    (blocked_task_on_one_node, ("hang", "host", (1,), {X})),
    (node_rebooted, ("crash", "host", (1,), {X})),
    (time_limit, ("crash", "scheduler", (), {R})),
    (hang_until_the_time_limit, ("hang", "unknown", (), {R})),
    (link_down_on_one_node, ("crash", "hardware_network", (1,), {X})),
    (path_failed_silently, ("crash", "hardware_network", (3,), {X})),
    (path_failed_and_addresses_unknown, ("crash", "hardware_network", (), {R})),
    (errors_in_all_directions, ("crash", "hardware_network", (), {R})),
    (cuda_out_of_memory_everywhere, ("crash", "user_code", (), {S})),
    (mismatched_collectives, ("hang", "user_code", (), {S})),
    (one_rank_behind, ("hang", "host", (1,), {X})),
    (one_node_never_came, ("hang", "host", (1,), {X})),
    (one_rank_prepares_data_for_all, ("hang", "user_code", (), {R})),
    (another_rank_prepares_data, ("hang", "host", (1,), {X})),
    (links_of_two_nodes_down_at_once, ("crash", "hardware_network", (), {R})),
    (container_fails_on_one_node, ("crash", "host", (1,), {X})),
    (container_fails_everywhere, ("crash", "software_stack", (), {S})),
    (driver_too_old_on_one_node, ("crash", "host", (1,), {X})),
    (driver_too_old_everywhere, ("crash", "software_stack", (), {S})),
    (nobody_reaches_one_node, ("crash", "host", (2,), {X})),
    (requeued_while_well, ("crash", "scheduler", (), {R})),
    (program_missing_on_one_node, ("crash", "storage", (1,), {X})),
    (program_missing_for_the_script, ("crash", "user_code", (), {S})),
    (missing_command_that_did_not_matter, ("crash", "hardware_gpu", (1,), {X})),
    (missing_command_of_a_job_that_loads, ("none", "none", (), {N})),
    (services_that_a_start_did_without, ("none", "none", (), {N})),
    (service_that_a_start_could_not_do_without, ("crash", "infra_transient", (), {W})),
    (memory_limit_of_another_job, ("none", "none", (), {N})),
    (native_crash_and_its_echo, ("crash", "software_stack", (), {R})),
    (native_crash_of_a_victim, ("crash", "hardware_network", (2,), {X})),
    (cancelled_while_lightning_runs, ("crash", "scheduler", (), {S})),
    (node_failure_that_only_peers_name, ("crash", "host", (3,), {X, R})),
    (checkpoint_error_that_every_rank_repeats, ("crash", "storage", (1,), {X})),
    (timeouts_without_a_hint, ("hang", "unknown", (), {R})),
    (same_error_wanders_over_nodes, ("crash", "user_code", (), {S})),
    (nan_loss_left_out, ("none", "numerical", (), {S})),
    (nan_in_one_ranks_gradients, ("crash", "numerical", (), {R})),
    (loss_is_nan_exception, ("crash", "numerical", (), {S})),
    (jax_task_lost, ("crash", "host", (2,), {X})),
    (node_missing_at_rendezvous, ("crash", "host", (2,), {X})),
    (local_disk_full, ("crash", "storage", (1,), {X})),
    (shared_disk_full, ("crash", "storage", (), {S})),
    (file_server_gone_for_all, ("hang", "storage", (), {W})),
    (all_clients_evicted, ("crash", "storage", (), {W})),
    (checkpoint_never_finished, ("hang", "storage", (), {R})),
    (registry_unavailable, ("crash", "infra_transient", (), {W})),
    (shm_of_one_node_full, ("crash", "host", (1,), {X})),
    (stale_process_in_node_memory, ("crash", "host", (1,), {X})),
    (nvme_failed, ("crash", "host", (1,), {X})),
    (segfault_in_nccl, ("crash", "software_stack", (), {R})),
    (native_crash_without_a_word, ("crash", "software_stack", (), {R})),
    (only_exit_codes, ("crash", "unknown", (), {R})),
    (shm_of_all_nodes_full, ("crash", "user_code", (), {S})),
    (file_server_hands_out_stale_handles, ("crash", "storage", (), {W})),
    (retries_while_starting, ("none", "none", (), {N})),
    (peers_refused, ("crash", "unknown", (), {R})),
    (blas_fails_on_a_gpu_with_trouble, ("crash", "hardware_gpu", (1,), {X})),
    (time_skewed_victim_first, ("crash", "hardware_gpu", (1,), {X})),
    (killed_by_rank_monitor, ("hang", "host", (1,), {X})),
    (straggler_by_clock, ("straggler", "hardware_gpu", (2,), {X})),
    (straggler_by_reports, ("straggler", "hardware_gpu", (2,), {X})),
    (straggler_that_rotates, ("straggler", "unknown", (), {W})),
    (clean_end_with_store_noise, ("none", "none", (), {N})),
    (store_noise_without_an_end_marker, ("none", "none", (), {N})),
    (stale_xid_gauge, ("none", "none", (), {N})),
    (stale_xid_gauge_then_a_bug, ("crash", "user_code", (), {S})),
    (killed_without_a_record, ("crash", "unknown", (), {R})),
    (corrected_errors_only, ("none", "none", (), {N})),
    (corrected_errors_at_the_very_end, ("none", "none", (), {N})),
    (long_evaluation, ("none", "none", (), {N})),
    (hub_retry_that_succeeded, ("none", "none", (), {N})),
    (nfs_pause_that_ended, ("none", "none", (), {N})),
    (application_xid_of_a_neighbour, ("none", "none", (), {N})),
    (exception_in_a_caught_block, ("none", "none", (), {N})),
    (python_exception_on_one_rank, ("crash", "user_code", (), {S})),
    (python_exception_everywhere, ("crash", "user_code", (), {S})),
    (import_error_everywhere, ("crash", "user_code", (), {S})),
    (hca_internal_error_late_in_log, ("crash", "hardware_network", (1,), {X})),
    (gpu_missing_on_one_node, ("crash", "hardware_gpu", (1,), {X})),
    (routing_broken_at_start, ("crash", "hardware_network", (), {S, R})),
    (transient_wrong_result, ("crash", "hardware_gpu", (1,), {R})),
    (user_cancelled_a_healthy_job, ("crash", "scheduler", (), {S})),
    (cancelled_without_a_reason, ("crash", "scheduler", (), {S})),
    (adapter_dead_without_a_port_event, ("crash", "hardware_network", (2,), {X})),
    (summary_with_a_quoted_traceback, ("crash", "user_code", (), {S})),
    (old_fault_forwarded_late, ("none", "none", (), {N})),
    (fault_forwarded_late, ("crash", "hardware_gpu", (1,), {X})),
    (node_down_after_its_gpu_failed, ("crash", "hardware_gpu", (1,), {X})),
    (node_of_another_job_down, ("none", "none", (), {N})),
    (other_job_cancelled, ("none", "none", (), {N})),
    (other_job_preempted_for_ours, ("none", "none", (), {N})),
    (memory_error_on_a_node_with_ecc_history, ("crash", "hardware_gpu", (1,), {X})),
    (path_missing_on_one_node, ("crash", "storage", (1,), {X})),
    (path_missing_everywhere, ("crash", "user_code", (), {S})),
    (ranks_inside_a_group, ("hang", "host", (2,), {X})),
    (groups_with_equal_sequence_numbers, ("hang", "unknown", (), {R})),
    (model_output_then_a_real_crash, ("crash", "user_code", (), {S})),
    (xid_seen_by_the_gauge_only, ("crash", "hardware_gpu", (1,), {X})),
    (idle_gpus_during_a_timeout, ("hang", "host", (2,), {X})),
    (nan_that_passes, ("none", "none", (), {N})),
    (loss_scale_warm_up, ("none", "none", (), {N})),
    (agent_gives_up, ("crash", "user_code", (), {S})),
    (memory_limit_on_one_node, ("crash", "user_code", (), {S})),
    (registry_refuses, ("crash", "user_code", (), {S})),
    (names_not_resolved, ("crash", "infra_transient", (), {W})),
    (flap_survived_then_a_bug, ("crash", "user_code", (), {S})),
    (illegal_access_once, ("crash", "user_code", (), {S})),
    (file_server_gone_for_one, ("hang", "storage", (1,), {X})),
    (two_nodes_lose_power_at_once, ("crash", "hardware_gpu", (1, 4), {X})),
    (contained_error_with_its_echo, ("crash", "hardware_gpu", (1,), {R})),
    (another_network_on_one_node, ("hang", "hardware_network", (2,), {X})),
    (two_networks_of_equal_standing, ("hang", "unknown", (), {R})),
    (a_node_that_does_not_reach_the_store, ("crash", "host", (3,), {X})),
    (a_store_that_nobody_reaches, ("crash", "host", (0,), {X})),
    (slow_thread_that_woke, ("none", "none", (), {N})),
]


@pytest.mark.parametrize(("kind", "expected"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])
def test_a_kind_of_failure_is_read_as_what_it_is(kind: Callable[[], Incident], expected: Expected) -> None:
    incident = kind()
    verdict = attribute(incident)
    outcome, category, culprits, actions = expected
    said = (verdict.symptom, verdict.category, verdict.culprits, verdict.suggested in actions)
    assert said == (outcome, category, tuple(incident.facts.nodes[i] for i in culprits), True), verdict


def test_links_that_several_nodes_lost_at_unknown_times_blame_none_of_them() -> None:
    incident = links_of_two_nodes_down_at_once()
    untimed = tuple(line.model_copy(update={"at": None}) for line in incident.lines)
    verdict = attribute(incident.model_copy(update={"lines": untimed}))
    assert (verdict.category, verdict.culprits, verdict.suggested) == (Category.HARDWARE_NETWORK, (), R)
