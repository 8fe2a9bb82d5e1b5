"""How the ranks or the tasks of a job lie on its nodes, as far as anything tells, in Slurm's block distribution."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_ANY = sys.maxsize


@dataclass(frozen=True)
class Layout:
    """Every node holds the same count of numbers, the first node the lowest. Which count is known within bounds; where
    the fewest are more than the most, the numbers do not lie so."""

    fewest: int
    most: int

    @property
    def per_node(self) -> int:
        """How many each node holds; 0 when that is unknown or not so."""
        return self.fewest if self.fewest == self.most else 0

    def index_of(self, number: int) -> int | None:
        """Return which node of the allocation holds `number`, from 0; None where the bounds leave more than one."""
        if self.fewest > self.most:
            return None
        index = number // self.fewest
        return index if index == number // self.most else None

    def allows(self, per_node: int) -> bool:
        """Whether each node may hold so many."""
        return self.fewest <= per_node <= self.most


NOT_IN_BLOCKS = Layout(fewest=1, most=0)
"""Only what single lines pair can be said."""


def learn_layout(told: Iterable[int], pairs: Mapping[int, str], nodes: Sequence[str], highest: int) -> Layout:
    """Return the layout that `told` gives, the likeliest count first, 0 for what is not told; else the one that the
    `pairs` of number and node leave. `highest` is the highest number that anything speaks of, -1 where nothing does.
    Where nothing is told and only one node is paired, all that is sure is on which node the lowest numbers are."""
    proven = _proven(pairs, nodes)
    possible = Layout(fewest=max(proven.fewest, _fewest_for(highest, nodes)), most=proven.most)
    for per_node in told:
        if per_node > 0 and possible.allows(per_node):
            return Layout(per_node, per_node)
    if possible.fewest > possible.most:
        return NOT_IN_BLOCKS
    if len(set(pairs.values())) < 2:
        # It may be the one that all output is collected on.
        return Layout(fewest=_fewest_for(highest, nodes), most=_ANY)
    return possible


def between(counts: Iterable[int], pairs: Mapping[int, str], nodes: Sequence[str], highest: int) -> Layout:
    """Return the layout where each node holds one of `counts`, and nothing tells which but pairs and `highest`."""
    fitting = [n for n in counts if _proven(pairs, nodes).allows(n) and n >= _fewest_for(highest, nodes)]
    return Layout(min(fitting), max(fitting)) if fitting else learn_layout((), pairs, nodes, highest)


def _fewest_for(highest: int, nodes: Sequence[str]) -> int:
    return max(0, highest) // len(nodes) + 1 if nodes else 1


def _proven(pairs: Mapping[int, str], nodes: Sequence[str]) -> Layout:
    """A number that is seen on the node `index` leaves the counts n with number // n == index."""
    indexes = {node: index for index, node in enumerate(nodes)}
    fewest, most = 1, _ANY
    for number, node in pairs.items():
        if node not in indexes:
            return NOT_IN_BLOCKS
        index = indexes[node]
        fewest = max(fewest, number // (index + 1) + 1)
        most = min(most, number // index) if index else most
    return Layout(fewest, most)
