"""Questions in PromQL. Names and values go in quoted and escaped: whatever they hold, they stay values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta

from activities.logs.stores.quoting import any_of, quoted
from recovery.model import NodeName

_DOMAIN_AND_PORT = r"([.][^:]*)?(:[0-9]+)?"


def samples_of(
    series: Sequence[str],
    nodes: Sequence[NodeName],
    stretch: timedelta,
    *,
    node_label: str,
    matchers: Mapping[str, str],
) -> str:
    """Return the query for all raw samples of `series` on `nodes` within `stretch`: raw ones carry the times at which
    they were scraped, while a store fills the steps of a range query with values minutes old."""
    return f"{selector(series, matchers, nodes, node_label=node_label)}[{max(1, round(stretch.total_seconds()))}s]"


def selector(
    series: Sequence[str], matchers: Mapping[str, str], nodes: Sequence[NodeName] = (), *, node_label: str = ""
) -> str:
    """Return a selector of `series`, on `nodes` only where these are given."""
    parts = [f"__name__=~{any_of(series)}", *(f"{label}={quoted(value)}" for label, value in matchers.items())]
    if nodes:
        # PromQL anchors a pattern at both ends, and exporters write a node's name with and without domain and port.
        named = "|".join(re.escape(node) for node in nodes)
        parts.append(f"{node_label}=~{quoted(f'({named}){_DOMAIN_AND_PORT}')}")
    return f"{{{','.join(parts)}}}"
