"""``scontrol show config`` and ``scontrol ping`` to the facts of a site.

The text is lines of ``Key = value``; it has had this form since the first versions, while ``--json`` came with 24.05.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TypeVar

from activities.scheduler.site import Answer, Controller, Known, SiteFacts, Unknown
from activities.scheduler.slurm_values import is_nothing, moment, span, words

COMMAND = ("scontrol", "show", "config")
PING_COMMAND = ("scontrol", "ping")
MAX_LINES = 2_000
CREDENTIAL_LIFE = timedelta(seconds=120)
"""Slurm's own for AuthInfo's ``cred_expire``."""
_LINE = re.compile(r"(\S+)\s*= ?(.*)", re.ASCII)
_AS_OF = "Configuration data as of "
_PING = re.compile(r"Slurmctld\((\S+?)\) at (\S+) is (UP|DOWN)")
_DELAY = re.compile(r"\brequeue_delay=([0-9]{1,9})")
_EXPIRES = re.compile(r"cred_expire=([0-9]{1,9})")

Thing = TypeVar("Thing")


class ConfigError(ValueError):
    """The text is not what ``scontrol show config`` prints."""


def read_facts(config: str, ping: str, zone: tzinfo, asked_at: datetime) -> SiteFacts:
    """Return what both commands tell; a key that this version of Slurm does not print, or prints in a way not known
    here, is `Unknown`. `asked_at`: our clock when the controller answered; `zone`: of the host where scontrol ran.

    Raises `ConfigError` when `config` is no configuration.
    """
    values = _values(config)

    def fact(key: str, read: Callable[[str], Thing]) -> Known[Thing] | Unknown:
        return _fact(values, key, read)

    return SiteFacts(
        slurm_version=fact("SLURM_VERSION", str),
        cluster_name=fact("ClusterName", str),
        min_job_age=fact("MinJobAge", _seconds),
        requeue_delay=fact("AuthInfo", lambda text: requeue_delay(text, values.get("SchedulerParameters", ""))),
        kill_wait=fact("KillWait", _seconds),
        preempt_mode=fact("PreemptMode", lambda text: words(text.upper())),
        job_requeue=fact("JobRequeue", _switch),
        max_batch_requeue=fact("MaxBatchRequeue", int),
        accounting_storage_type=fact("AccountingStorageType", str),
        accounting_store_flags=fact("AccountingStoreFlags", lambda text: words(text.lower())),
        scheduler_parameters=fact("SchedulerParameters", lambda text: () if is_nothing(text) else _items(text)),
        controllers=_controllers(ping),
        slurm_user=fact("SlurmUser", lambda text: text.partition("(")[0]),
        private_data=fact("PrivateData", lambda text: words(text.lower())),
        clock_skew=_clock_skew(config, zone, asked_at),
    )


def zone_of(config: str, asked_at: datetime) -> tzinfo:
    """Return the time zone of the host where scontrol ran, from the time that the first line tells: its offset at that
    moment, in quarters of an hour. UTC where it tells seconds, or nothing."""
    told = config.partition("\n")[0].removeprefix(_AS_OF)
    if told.isdigit():
        return UTC
    try:
        local = datetime.fromisoformat(told).replace(tzinfo=UTC)
    except ValueError:
        return UTC
    quarters = round((local - asked_at) / timedelta(minutes=15))
    return timezone(timedelta(minutes=15) * max(-95, min(95, quarters)))


def _values(config: str) -> Mapping[str, str]:
    """The configuration's own part comes first; of what follows, such as cgroup's, no key counts twice."""
    values: dict[str, str] = {}
    for line in config.split("\n", MAX_LINES)[:MAX_LINES]:
        if match := _LINE.fullmatch(line.rstrip()):
            values.setdefault(match[1], match[2].strip())
    if "SLURM_VERSION" not in values and "ClusterName" not in values:
        raise ConfigError(f"no configuration of Slurm: {config[:80]!r}")
    return values


def _fact(values: Mapping[str, str], key: str, read: Callable[[str], Thing]) -> Known[Thing] | Unknown:
    if key not in values:
        return Unknown(why=f"this version of Slurm does not show {key}")
    try:
        return Known(value=read(values[key]))
    except ValueError as error:
        return Unknown(why=f"{key}: {error}"[:300])


def _seconds(text: str) -> timedelta:
    told = span(text)
    if told is None:
        raise ValueError("no limit where a time is due")
    return told


def _switch(text: str) -> bool:
    if text.lower() not in ("0", "1", "no", "yes"):
        raise ValueError(f"{text[:40]!r} is neither yes nor no")
    return text.lower() in ("1", "yes")


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(","))


def requeue_delay(auth_info: str, scheduler_parameters: str) -> timedelta:
    """Return how long a requeued job waits: until one second after the credential of its last attempt expired (seen on
    22.05: 121 s, and 31 s with ``cred_expire=30`` in AuthInfo), or by ``requeue_delay`` in SchedulerParameters (25.11
    on)."""
    told = _DELAY.search(scheduler_parameters) or _EXPIRES.search(auth_info)
    return (timedelta(seconds=int(told[1])) if told else CREDENTIAL_LIFE) + timedelta(seconds=1)


def _controllers(ping: str) -> Known[tuple[Controller, ...]] | Unknown:
    found = tuple(
        Controller(host=host, role=role, answers=Answer.YES if word == "UP" else Answer.NO)
        for role, host, word in _PING.findall(ping)
    )
    return Known(value=found) if found else Unknown(why="scontrol ping named no controller")


def _clock_skew(config: str, zone: tzinfo, asked_at: datetime) -> Known[timedelta] | Unknown:
    """The first line tells when the controller answered, in whole seconds."""
    first = config.partition("\n")[0]
    if not first.startswith(_AS_OF):
        return Unknown(why="the configuration does not say when it was read")
    try:
        told = moment(first.removeprefix(_AS_OF), zone)
    except ValueError as error:
        return Unknown(why=str(error)[:300])
    return Unknown(why="the controller told no time") if told is None else Known(value=told - asked_at)
