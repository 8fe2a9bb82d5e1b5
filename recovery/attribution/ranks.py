"""Which node a rank, a task or a network address is on: learned from the log itself, completed by the allocation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import re2

from recovery.attribution.incident import JobFacts, LogLine
from recovery.attribution.layout import NOT_IN_BLOCKS, Layout, between, learn_layout
from recovery.signatures.lines import LinePrefix

_ADDRESS = re2.compile(r"(?:Bootstrap *: Using|OOB) [\w.-]+:([0-9a-fA-F.:]+)<\d+>")
_INIT_RANK = re2.compile(r"\brank (\d{1,7}) nranks (\d{1,7}) ")
_AGENT_HOST = re2.compile(r"^\s*host +: ([\w.-]+)")
_AGENT_RANK = re2.compile(r"^\s*rank +: (\d{1,7}) \(local_rank: \d+\)")
_SRUN_TASK = re2.compile(r"srun: error: ([\w.-]+): tasks? (\d{1,7})(?:[\d,-]*?(\d{1,7}))?: ")
_LAST_RANKS_LINE = re2.compile(r"\biteration +\d+/ *\d+ \| consumed samples:")
"""Megatron-LM's training log, which its last rank alone prints (``print_rank_last``, megatron/training/training.py)."""


@dataclass(frozen=True)
class RankMap:
    """Knows the nodes of ranks, Slurm tasks and addresses. An empty string means: it does not know."""

    nodes: tuple[str, ...]
    """The allocation in rank order; when nobody told, the names learned from the log, whose order says nothing."""
    names: NodeNames
    allocation_known: bool
    rank_layout: Layout
    task_layout: Layout
    by_rank: Mapping[int, str]
    by_task: Mapping[int, str]
    by_address: Mapping[str, str]

    def of_rank(self, rank: int | None) -> str:
        """Return the node of a global rank."""
        if rank is None:
            return ""
        return self.by_rank.get(rank) or self._block(rank, self.rank_layout)

    @property
    def ranks_per_node(self) -> int:
        """How many ranks each node holds in block distribution; 0 when that is unknown or not so."""
        return self.rank_layout.per_node

    def of_task(self, task: int | None) -> str:
        """Return the node of a Slurm task, as ``srun --label`` numbers them."""
        if task is None:
            return ""
        return self.by_task.get(task) or self._block(task, self.task_layout)

    def of_peer(self, peer: str) -> str:
        """Return the node behind a host name or an address that a process named."""
        return self.node(peer) or self.by_address.get(peer, "")

    def node(self, name: str) -> str:
        """Return the allocation's spelling of a host name; empty for a machine outside of it."""
        return self.names.spelled(name)

    def _block(self, number: int, layout: Layout) -> str:
        index = layout.index_of(number) if self.allocation_known else None
        return self.nodes[index] if index is not None and index < len(self.nodes) else ""


class NodeNames(dict[str, str]):
    """Host names to the allocation's spelling of them, with or without a domain on either side."""

    def __init__(self, nodes: Iterable[str]) -> None:
        """Index the allocation's names."""
        for node in nodes:
            self.setdefault(node.split(".", 1)[0], node)
            self[node] = node

    def spelled(self, name: str) -> str:
        """Return the allocation's name of a host; empty when it is none of its nodes."""
        return self.get(name) or self.get(name.split(".", 1)[0], "")


def learn_ranks(
    lines: Sequence[tuple[LogLine, LinePrefix]], facts: JobFacts, also_named: Iterable[str] = ()
) -> RankMap:
    """Read all pairs of rank, task, address and host that the lines hold and complete them by block distribution where
    that agrees with every pair. `also_named` are hosts that something else names: they count where nobody tells the
    allocation."""
    nodes = facts.nodes or _nodes_of(lines, also_named)
    names = NodeNames(nodes)
    pairs = _Pairs(names)
    for line, prefix in lines:
        pairs.learn(line, prefix)
    return RankMap(
        nodes=nodes,
        names=names,
        allocation_known=bool(facts.nodes),
        rank_layout=_rank_layout(facts, pairs, nodes),
        task_layout=_task_layout(facts, pairs, nodes),
        by_rank=pairs.by_rank,
        by_task=pairs.by_task,
        by_address=pairs.by_address,
    )


@dataclass
class _Pairs:
    """What single lines tell."""

    names: NodeNames
    by_rank: dict[int, str] = field(default_factory=dict)
    by_task: dict[int, str] = field(default_factory=dict)
    by_address: dict[str, str] = field(default_factory=dict)
    highest_rank: int = -1
    highest_task: int = -1
    last_ranks: set[int] = field(default_factory=set)
    """The ranks that print what only the last one prints."""
    last_tasks: set[int] = field(default_factory=set)
    _agent_host: dict[tuple[str, str], str] = field(default_factory=dict)

    def learn(self, line: LogLine, prefix: LinePrefix) -> None:
        """Take what one line says of who is where."""
        host = self.names.spelled(prefix.host or line.host)
        if host and prefix.rest.startswith("NCCL INFO"):
            self._learn_nccl(prefix.rest, host)
        self._learn_prefix(line, prefix, host)
        self._learn_summary(line, prefix.rest)

    def _learn_prefix(self, line: LogLine, prefix: LinePrefix, host: str) -> None:
        rank = prefix.rank if prefix.rank is not None else line.rank
        if rank is not None:
            self.highest_rank = max(self.highest_rank, rank)
            if host:
                self.by_rank.setdefault(rank, host)
        if prefix.task is not None:
            self.highest_task = max(self.highest_task, prefix.task)
            if host:
                self.by_task.setdefault(prefix.task, host)
        if "consumed samples:" in prefix.rest and _LAST_RANKS_LINE.search(prefix.rest):
            self.last_ranks.update(() if rank is None else (rank,))
            self.last_tasks.update(() if prefix.task is None else (prefix.task,))

    def _learn_nccl(self, text: str, host: str) -> None:
        address = _ADDRESS.search(text)
        if address:
            self.by_address.setdefault(address.group(1), host)
        init = _INIT_RANK.search(text)
        if init:
            self.by_rank[int(init.group(1))] = host
            self.highest_rank = max(self.highest_rank, int(init.group(2)) - 1)

    def _learn_summary(self, line: LogLine, text: str) -> None:
        """In torchrun's failure summary host and rank follow each other; srun's exit lines name node and task."""
        agent = (line.source, line.host)
        if "host" in text and (host := _AGENT_HOST.match(text)):
            self._agent_host[agent] = self.names.spelled(host.group(1))
        elif "rank" in text and (rank := _AGENT_RANK.match(text)):
            if self._agent_host.get(agent):
                self.by_rank.setdefault(int(rank.group(1)), self._agent_host[agent])
        elif "srun: error:" in text and (task := _SRUN_TASK.search(text)):
            node = self.names.spelled(task.group(1))
            first, last = int(task.group(2)), int(task.group(3) or task.group(2))
            self.highest_task = max(self.highest_task, last)
            if node:
                self.by_task[first] = self.by_task[last] = node


def _nodes_of(lines: Iterable[tuple[LogLine, LinePrefix]], also_named: Iterable[str]) -> tuple[str, ...]:
    named = {prefix.host or line.host for line, prefix in lines}
    named |= {
        task.group(1) for line, _ in lines if "srun: error:" in line.text and (task := _SRUN_TASK.search(line.text))
    }
    return tuple(sorted((named | set(also_named)) - {""}))


def _rank_layout(facts: JobFacts, pairs: _Pairs, nodes: tuple[str, ...]) -> Layout:
    if not facts.in_rank_order:
        return NOT_IN_BLOCKS
    tasks = facts.tasks_per_node if facts.tasks_per_node > 1 else 0
    told = (tasks, facts.gpus_per_node, _one_per_node(pairs.last_ranks, nodes))
    return learn_layout(told, pairs.by_rank, nodes, pairs.highest_rank)


def _task_layout(facts: JobFacts, pairs: _Pairs, nodes: tuple[str, ...]) -> Layout:
    """A task is a launcher's, one on each node, or a GPU's. How high the numbers go excludes the former and proves
    nothing else: of output without labels a line may begin like one."""
    if not facts.in_rank_order:
        return NOT_IN_BLOCKS
    told = facts.tasks_per_node or _one_per_node(pairs.last_tasks, nodes)
    # A step may be started otherwise than its job was asked for.
    fitting = told if told * len(nodes) > pairs.highest_task else 0
    if fitting or not facts.gpus_per_node:
        return learn_layout((fitting,), pairs.by_task, nodes, -1)
    return between((1, facts.gpus_per_node), pairs.by_task, nodes, pairs.highest_task)


def _one_per_node(last: set[int], nodes: tuple[str, ...]) -> int:
    """Return 1 where the last number there is, which alone prints progress, is that of the last node; else 0."""
    return 1 if last == {len(nodes) - 1} else 0
