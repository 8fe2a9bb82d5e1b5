"""Which series of a store mean what: the known metrics under all names that releases and exporters give them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

MAX_FILE_BYTES = 1 << 20

SeriesName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_:][A-Za-z0-9_:]{0,199}$")]


class Kind(StrEnum):
    """What a value of a metric means."""

    LEVEL = "level"
    """How things stand now."""
    LAST = "last"
    """The last of something, kept for ever after: only a change is an event."""
    COUNTER = "counter"
    """Only an increase is an event."""


class Group(StrEnum):
    """What is asked for in one query."""

    GPU_ACTIVITY = "gpu_activity"
    GPU_FAULTS = "gpu_faults"
    GPU_LINKS = "gpu_links"
    HOST = "host"

    @property
    def of_gpus(self) -> bool:
        """Whether its series are of single GPUs."""
        return self is not Group.HOST


class Metric(BaseModel):
    """One metric under its names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: SeriesName
    """As attribution knows it."""
    also: tuple[SeriesName, ...] = Field(default=(), max_length=32)
    scale: float = Field(default=1.0, gt=0)
    """What the values under the names in `also` are multiplied with."""
    kind: Kind
    group: Group
    exporter: str = Field(alias="from", max_length=80)
    needs: str = Field(default="", max_length=200)
    """What has to be set in the exporter for it; empty: nothing."""

    @property
    def names(self) -> tuple[SeriesName, ...]:
        """All its names."""
        return (self.name, *self.also)

    def scale_of(self, series: str) -> float:
        """Return what a value under the name `series` is multiplied with."""
        return 1.0 if series == self.name else self.scale


class UnreadableNames(Exception):
    """A file of names can't be used; the message names it and why."""


_METRICS = TypeAdapter(tuple[Metric, ...])


@dataclass(frozen=True)
class MetricNames:
    """The known metrics."""

    metrics: tuple[Metric, ...]

    @cached_property
    def by_series(self) -> dict[str, Metric]:
        """Every name with its metric."""
        return {name: metric for metric in self.metrics for name in metric.names}

    def of_group(self, group: Group) -> tuple[str, ...]:
        """Return all names in `group`."""
        return tuple(sorted({name for m in self.metrics if m.group is group for name in m.names}))


def known_names(site: Path | None = None) -> MetricNames:
    """Return the packaged names and those of the site's own file. Raises `UnreadableNames`."""
    packaged = _METRICS.validate_python(yaml.safe_load(resources.files(__package__).joinpath("names.yaml").read_text()))
    return MetricNames((*packaged, *_read(site)) if site else packaged)


def _read(file: Path) -> Iterable[Metric]:
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise UnreadableNames(f"names_file {file} has more than {MAX_FILE_BYTES >> 20} MiB")
        return _METRICS.validate_python(yaml.safe_load(file.read_text()))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise UnreadableNames(f"names_file {file} can't be read: {str(error).splitlines()[0]}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UnreadableNames(f"names_file {file} is not as it should be: {where}: {first['msg']}") from error
