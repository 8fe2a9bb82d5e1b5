"""Which node a rank, a task or a network address is on: learned from the log itself, completed by the allocation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import re2

from recovery.attribution.incident import JobFacts, LogLine
from recovery.signatures.lines import LinePrefix

_ADDRESS = re2.compile(r"(?:Bootstrap *: Using|OOB) [\w.-]+:([0-9a-fA-F.:]+)<\d+>")
_INIT_RANK = re2.compile(r"\brank (\d{1,7}) nranks (\d{1,7}) ")
_AGENT_HOST = re2.compile(r"^\s*host +: ([\w.-]+)")
_AGENT_RANK = re2.compile(r"^\s*rank +: (\d{1,7}) \(local_rank: \d+\)")
_USUAL_RANKS_PER_NODE = (1, 2, 4, 6, 8, 16)
_SRUN_TASK = re2.compile(r"srun: error: ([\w.-]+): task (\d{1,7}): ")


@dataclass(frozen=True)
class RankMap:
    """Knows the nodes of ranks, Slurm tasks and addresses. An empty string means: it does not know."""

    nodes: tuple[str, ...]
    """The allocation in rank order; when nobody told, the names learned from the log, whose order says nothing."""
    names: NodeNames
    allocation_known: bool
    ranks_per_node: int
    """How many ranks each node holds in block distribution; 0 when that is unknown or not so."""
    tasks_per_node: int
    """The same for Slurm tasks."""
    by_rank: Mapping[int, str]
    by_task: Mapping[int, str]
    by_address: Mapping[str, str]

    def of_rank(self, rank: int | None) -> str:
        """Return the node of a global rank."""
        if rank is None:
            return ""
        return self.by_rank.get(rank) or self._block(rank, self.ranks_per_node)

    def of_task(self, task: int | None) -> str:
        """Return the node of a Slurm task, as ``srun --label`` numbers them."""
        if task is None:
            return ""
        return self.by_task.get(task) or self._block(task, self.tasks_per_node)

    def of_peer(self, peer: str) -> str:
        """Return the node behind a host name or an address that a process named."""
        return self.node(peer) or self.by_address.get(peer, "")

    def node(self, name: str) -> str:
        """Return the allocation's spelling of a host name; empty for a machine outside of it."""
        return self.names.spelled(name)

    def _block(self, number: int, per_node: int) -> str:
        if not self.allocation_known or per_node <= 0 or number // per_node >= len(self.nodes):
            return ""
        return self.nodes[number // per_node]


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
    rank_layouts = _rank_layouts(facts, pairs, nodes) if facts.in_rank_order else ()
    task_layouts = (facts.tasks_per_node, 1) if facts.in_rank_order else ()
    return RankMap(
        nodes=nodes,
        names=names,
        allocation_known=bool(facts.nodes),
        ranks_per_node=_per_node(rank_layouts, pairs.by_rank, nodes, pairs.highest_rank),
        tasks_per_node=_per_node(task_layouts, pairs.by_task, nodes, -1),
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
        if prefix.task is not None and host:
            self.by_task.setdefault(prefix.task, host)

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
            if node:
                self.by_task[int(task.group(2))] = node


def _nodes_of(lines: Iterable[tuple[LogLine, LinePrefix]], also_named: Iterable[str]) -> tuple[str, ...]:
    named = {prefix.host or line.host for line, prefix in lines}
    named |= {
        task.group(1) for line, _ in lines if "srun: error:" in line.text and (task := _SRUN_TASK.search(line.text))
    }
    return tuple(sorted((named | set(also_named)) - {""}))


def _rank_layouts(facts: JobFacts, pairs: _Pairs, nodes: tuple[str, ...]) -> tuple[int, ...]:
    """How many ranks a node may hold, the likeliest first. What nobody told is concluded from pairs of two nodes on."""
    told = (facts.tasks_per_node if facts.tasks_per_node > 1 else 0, facts.gpus_per_node)
    if any(told) or not nodes:
        return (*told, 1)
    concluded = [n for n in _USUAL_RANKS_PER_NODE if _agrees(n, pairs.by_rank, nodes)]
    clear = len(concluded) == 1 and len(set(pairs.by_rank.values())) > 1
    return (concluded[0], 1) if clear else (1,)


def _per_node(candidates: Iterable[int], pairs: Mapping[int, str], nodes: tuple[str, ...], highest: int) -> int:
    """Return the first candidate that puts every known pair where it was seen; 0 when none does."""
    for per_node in candidates:
        if per_node > 0 and highest < per_node * len(nodes) and _agrees(per_node, pairs, nodes):
            return per_node
    return 0


def _agrees(per_node: int, pairs: Mapping[int, str], nodes: tuple[str, ...]) -> bool:
    return all(number // per_node < len(nodes) and nodes[number // per_node] == node for number, node in pairs.items())
