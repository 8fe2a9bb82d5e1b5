"""slurmrestd's ``/conf`` and ``/ping`` to the facts of a site.

``/conf`` is there from v0.0.45 on (seen on 26.05.5); before that only the answers' own ``meta`` tells of the release,
and from v0.0.40 on of the cluster's name.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from activities.scheduler.protocol import SchedulerUnavailable
from activities.scheduler.show_config import requeue_delay
from activities.scheduler.site import Answer, Controller, Known, SiteFacts, Unknown
from activities.scheduler.slurm_json import Part, Text, first_fault

_NO_CONF = "slurmrestd tells it from v0.0.45 on"
_AS_SCONTROL_SAYS = {"DISABLED": "OFF"}

Thing = TypeVar("Thing")


class _Conf(Part):
    """The settings that are used, with the names that Slurm gives them."""

    cluster_name: str = Field(alias="ClusterName")
    min_job_age_s: int = Field(alias="MinJobAge")
    auth_info: Text = Field(alias="AuthInfo")
    kill_wait_s: int = Field(alias="KillWait")
    preempt_mode: tuple[str, ...] = Field(alias="PreemptMode")
    job_requeue: bool = Field(alias="JobRequeue")
    max_batch_requeue: int = Field(alias="MaxBatchRequeue")
    accounting_storage_type: Text = Field(alias="AccountingStorageType")
    accounting_store_flags: tuple[str, ...] = Field(alias="AccountingStoreFlags")
    scheduler_parameters: tuple[str, ...] = Field(alias="SchedulerParameters")
    slurm_user: str = Field(alias="SlurmUser")
    private_data: tuple[str, ...] = Field(alias="PrivateData")


class _ConfMeta(Part):
    told_at_s: int = Field(alias="LastUpdate")


class _ConfAnswer(Part):
    slurm_conf: _Conf
    slurm_conf_meta: _ConfMeta


class _Ping(Part):
    hostname: Text = ""
    mode: Text = ""
    primary: bool | None = None
    ping: Text = ""
    responding: bool | None = None

    def controller(self) -> Controller:
        is_primary = self.mode == "primary" if self.primary is None else self.primary
        answers = self.ping == "UP" if self.responding is None else self.responding
        return Controller(
            host=self.hostname, role="primary" if is_primary else "backup", answers=Answer.YES if answers else Answer.NO
        )


class _Slurm(Part):
    release: Text = ""
    cluster: Text = ""


class _PingMeta(Part):
    slurm: _Slurm = _Slurm()
    in_v0_0_38: _Slurm = Field(default=_Slurm(), alias="Slurm")


class _PingAnswer(Part):
    pings: tuple[_Ping, ...]
    meta: _PingMeta


def read_facts(ping: str, conf: str, answered_at: datetime, teller: str) -> SiteFacts:
    """Return what both answers tell; `conf` is empty where the version has none. `answered_at`: our clock when it came;
    `teller` names who gave them.

    Raises `SchedulerUnavailable` when they are not what they should be.
    """
    try:
        pinged = _PingAnswer.model_validate_json(ping)
        told = _ConfAnswer.model_validate_json(conf) if conf else None
    except ValidationError as error:
        raise SchedulerUnavailable(f"{teller}'s answer on the configuration: {first_fault(error)}") from error

    def fact(read: Callable[[_Conf], Thing]) -> Known[Any] | Unknown:
        return Known(value=read(told.slurm_conf)) if told else Unknown(why=_NO_CONF)

    return SiteFacts(
        slurm_version=_known_text(pinged.meta.slurm.release or pinged.meta.in_v0_0_38.release),
        cluster_name=fact(lambda conf: conf.cluster_name) if told else _known_text(pinged.meta.slurm.cluster),
        min_job_age=fact(lambda conf: timedelta(seconds=conf.min_job_age_s)),
        requeue_delay=fact(lambda conf: requeue_delay(conf.auth_info, ",".join(conf.scheduler_parameters))),
        kill_wait=fact(lambda conf: timedelta(seconds=conf.kill_wait_s)),
        preempt_mode=fact(lambda conf: frozenset(_AS_SCONTROL_SAYS.get(word, word) for word in conf.preempt_mode)),
        job_requeue=fact(lambda conf: conf.job_requeue),
        max_batch_requeue=fact(lambda conf: conf.max_batch_requeue),
        accounting_storage_type=fact(lambda conf: conf.accounting_storage_type),
        accounting_store_flags=fact(lambda conf: frozenset(flag.lower() for flag in conf.accounting_store_flags)),
        scheduler_parameters=fact(lambda conf: conf.scheduler_parameters),
        controllers=Known(value=tuple(each.controller() for each in pinged.pings)),
        slurm_user=fact(lambda conf: conf.slurm_user),
        private_data=fact(lambda conf: frozenset(word.lower() for word in conf.private_data)),
        clock_skew=_clock_skew(told, answered_at),
    )


def _known_text(text: str) -> Known[str] | Unknown:
    return Known(value=text) if text else Unknown(why=_NO_CONF)


def _clock_skew(told: _ConfAnswer | None, answered_at: datetime) -> Known[timedelta] | Unknown:
    if told is None:
        return Unknown(why=_NO_CONF)
    return Known(value=datetime.fromtimestamp(told.slurm_conf_meta.told_at_s, UTC) - answered_at)
