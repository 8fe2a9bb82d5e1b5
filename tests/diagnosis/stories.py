"""Builds what a job says: progress, victims' noise and one fault, in the formats of the real software."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from recovery.attribution.incident import Incident, JobFacts, LogLine, MetricSample

START = datetime(2025, 6, 1, 12, 0, 0, tzinfo=UTC)


@dataclass
class Story:
    """A job of `node_count` nodes whose lines are added in the order of time."""

    node_count: int = 4
    gpus: int = 8
    stem: str = "cn-"
    lines: list[LogLine] = field(default_factory=list)
    metrics: list[MetricSample] = field(default_factory=list)
    clock: datetime = START

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(f"{self.stem}{index + 21:03d}" for index in range(self.node_count))

    def node(self, index: int) -> str:
        return self.nodes[index]

    def address(self, index: int) -> str:
        return f"172.20.7.{index + 100}"

    def wait(self, seconds: float) -> Story:
        self.clock += timedelta(seconds=seconds)
        return self

    def say(
        self, text: str, node: int | None = None, rank: int | None = None, stream: str = "stderr", host: str = ""
    ) -> Story:
        name = host or ("" if node is None else self.node(node))
        self.lines.append(LogLine(text=text, at=self.clock, host=name, rank=rank, stream=stream, source="job"))
        return self

    def kernel(self, node: int, text: str) -> Story:
        stamp = self.clock.strftime("%b %e %H:%M:%S")
        return self.say(f"{stamp} {self.node(node)} kernel: [{8123.25:.6f}] {text}", node, stream="syslog")

    def slurmctld(self, text: str) -> Story:
        return self.say(f"[{self.clock:%Y-%m-%dT%H:%M:%S}.123] {text}", stream="slurm", host="head1")

    def bootstrap(self) -> Story:
        for index in range(self.node_count):
            self.say(
                f"{self.node(index)}:{4000 + index}:{5000 + index} [0] NCCL INFO Bootstrap : "
                f"Using eno1:{self.address(index)}<0>",
                index,
                index * self.gpus,
            )
        return self

    def iterations(
        self,
        first: int = 100,
        count: int = 10,
        step_s: float = 5.0,
        loss: str = "2.41E+00",
        nan: int = 0,
        skipped: int = 0,
    ) -> Story:
        last = self.node_count * self.gpus - 1
        for n in range(first, first + count):
            self.wait(step_s)
            shown = f" lm loss: {loss} |" if loss else ""
            self.say(
                f" [{self.clock:%Y-%m-%d %H:%M:%S}.000000] iteration {n:8d}/   90000 | consumed samples: {n * 512:12d} | "
                f"elapsed time per iteration (ms): {step_s * 1000:.1f} | learning rate: 1.5E-04 | global batch size:   512 |"
                f"{shown} loss scale: 1.0 | grad norm: 0.31 | number of skipped iterations: {skipped:3d} | "
                f"number of nan iterations: {nan:3d} |",
                self.node_count - 1,
                last,
                "stdout",
            )
        return self

    def network_victims(self, peer: int, reporters: tuple[int, ...] | None = None, named: bool = True) -> Story:
        for index in reporters if reporters is not None else range(self.node_count):
            if index == peer:
                continue
            rank = index * self.gpus + 3
            where = self.address(peer) if named else "10.99.0.1"
            error = (
                f"NET/IB : Got completion from peer {where}<41234> with status=12 opcode=0 len=0 vendor err 129 (Recv)"
            )
            self.wait(0.2)
            self.say(f"{self.node(index)}:7001:7002 [3] transport/net_ib.cc:1807 NCCL WARN {error}", index, rank)
            self.say(
                f"[rank{rank}]:[E601 12:01:00.123456789 ProcessGroupNCCL.cpp:1515] [PG 0 (default_pg) Rank {rank}] Process "
                "group watchdog thread terminated with exception: NCCL error: remote process exited or there was a network "
                "error, NCCL version 2.21.5",
                index,
                rank,
            )
            self.say(
                "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
                index,
                rank,
            )
            self.say("Last error:", index, rank)
            self.say(error, index, rank)
        return self

    def timeouts(
        self,
        ranks: list[int],
        seq: int = 700,
        op: str = "ALLREDUCE",
        numel: int = 4096,
        enqueued: int | None = None,
        group: str = "PG ID 0 PG GUID 0(default_pg)",
    ) -> Story:
        for rank in ranks:
            node = rank // self.gpus
            self.wait(0.01)
            stamp = f"[rank{rank}]:[E601 12:30:00.123456789 ProcessGroupNCCL.cpp"
            self.say(
                f"{stamp}:616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, "
                f"NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) ran for 600044 milliseconds before timing out.",
                node,
                rank,
            )
            self.say(
                f"{stamp}:1785] [{group} Rank {rank}] Exception (either an error or timeout) detected by watchdog at work: "
                f"{seq}, last enqueued NCCL work: {seq if enqueued is None else enqueued}, last completed NCCL work: {seq - 1}.",
                node,
                rank,
            )
        return self

    def traceback(self, rank: int, error: str, file: str = "/workspace/train.py", function: str = "step") -> Story:
        node = rank // self.gpus
        for text in (
            "Traceback (most recent call last):",
            f'  File "{file}", line 77, in {function}',
            "    run(x)",
            error,
        ):
            self.say(f"[rank{rank}]: {text}", node, rank)
        return self

    def agent_failed(self, node: int, exit_code: int = 1) -> Story:
        return self.wait(3).say(
            f"E0601 12:31:00.000000 9039 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {exit_code}) "
            "local_rank: 0 (pid: 4242) of binary: /usr/bin/python",
            node,
        )

    def srun_exit(self, *indexes: int, how: str = "Exited with exit code 1") -> Story:
        for index in indexes:
            self.wait(0.3).say(f"srun: error: {self.node(index)}: task {index}: {how}", 0)
        return self

    def gauge(self, name: str, node: int, gpu: int, value: float) -> Story:
        text = (
            f'{name}{{gpu="{gpu}",UUID="GPU-x{node}{gpu}",pci_bus_id="00000000:3B:00.0",device="nvidia{gpu}",'
            f'modelName="NVIDIA H100 80GB HBM3",Hostname="{self.node(node)}",hpc_job="77"}} {value:g}'
        )
        self.metrics.append(MetricSample(at=self.clock, host=self.node(node), text=text))
        return self

    def incident(self, **facts: object) -> Incident:
        job = JobFacts.model_validate({"nodes": self.nodes, "gpus_per_node": self.gpus, **facts})
        return Incident(lines=tuple(self.lines), metrics=tuple(self.metrics), facts=job)


def in_whole_seconds(incident: Incident) -> Incident:
    """As a collector tells it whose stamps have no fractions."""
    lines = [line.model_copy(update={"at": line.at and line.at.replace(microsecond=0)}) for line in incident.lines]
    return incident.model_copy(update={"lines": tuple(lines)})
