"""What pyslurm's ``slurmctld.Config`` and ``ping_all()`` tell of a site, to its facts and what can be done there.

pyslurm 25.11 does not tell an account's AdminLevel: unless the account is root or SlurmUser, or there is no slurmdbd,
what it may do is not known before it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from activities.scheduler.protocol import SchedulerUnavailable
from activities.scheduler.rights import Rights, rights_without_levels, same_for_both
from activities.scheduler.show_config import requeue_delay
from activities.scheduler.site import Answer, Capabilities, Capability, Controller, Known, SiteFacts, Unknown
from activities.scheduler.slurm_json import first_fault
from activities.scheduler.slurm_values import is_nothing

_NOT_SET = Unknown(why="pyslurm tells no value of it")


class _Controller(BaseModel):
    host: str | None
    is_primary: bool
    answers: bool


class _Site(BaseModel):
    model_config = ConfigDict(frozen=True)

    version: str
    cluster_name: str | None
    min_job_age_s: int | None
    kill_wait_s: int | None
    preempt_mode: str | None
    job_requeue: bool | None
    max_batch_requeue: int | None
    accounting_storage_type: str | None
    accounting_store_flags: list[str]
    scheduler_parameters: dict[str, Any]
    auth_info: list[str]
    slurm_user: str | None
    private_data: list[str]
    controllers: list[_Controller]


def read_site(answer: str) -> SiteFacts:
    """Return the facts. Raises `SchedulerUnavailable` for an answer that is not what the program gives."""
    try:
        site = _Site.model_validate_json(answer)
    except ValidationError as error:
        raise SchedulerUnavailable(f"pyslurm's answer on the configuration: {first_fault(error)}") from error
    parameters = tuple(
        name if value is True else f"{name}={value}" for name, value in site.scheduler_parameters.items()
    )
    return SiteFacts(
        slurm_version=Known(value=site.version),
        cluster_name=_fact(site.cluster_name, str),
        min_job_age=Known(value=timedelta(seconds=site.min_job_age_s or 0)),
        requeue_delay=Known(value=requeue_delay(",".join(site.auth_info), ",".join(parameters))),
        kill_wait=Known(value=timedelta(seconds=site.kill_wait_s or 0)),
        preempt_mode=_fact(site.preempt_mode, lambda text: frozenset(text.upper().split(","))),
        job_requeue=_fact(site.job_requeue, bool),
        max_batch_requeue=_fact(site.max_batch_requeue, int),
        accounting_storage_type=_accounting(site.accounting_storage_type),
        accounting_store_flags=Known(value=frozenset(flag.lower() for flag in site.accounting_store_flags)),
        scheduler_parameters=Known(value=parameters),
        controllers=Known(value=tuple(map(_controller, site.controllers))),
        slurm_user=_fact(site.slurm_user, str),
        private_data=Known(value=frozenset(word.lower() for word in site.private_data)),
        clock_skew=Unknown(why="pyslurm does not tell the controller's time"),
    )


def capabilities_of(account: str, facts: SiteFacts) -> Capabilities:
    """Return what `account` can do through pyslurm."""
    rights = rights_without_levels(account, facts) or _unknown_level(account)
    return Capabilities(
        requeue=rights.act,
        hold=rights.act,
        exclude=rights.act,
        admin_comment=rights.admin_comment,
        batch_script=rights.act,
        submit_for_others=Capability.no("nothing is submitted through pyslurm: use scheduler kind cli or ssh"),
        accounting=Capability.no("accounting is not asked for through pyslurm: use scheduler kind cli or ssh"),
    )


def _unknown_level(account: str) -> Rights:
    how = f"sacctmgr show user where name={account} format=User,AdminLevel"
    return same_for_both(Capability.unknown(f"pyslurm does not tell the AdminLevel of {account}: {how}"))


def _fact(value: Any, read: Callable[[Any], Any]) -> Known[Any] | Unknown:
    return _NOT_SET if value is None else Known(value=read(value))


def _accounting(told: str | None) -> Known[str]:
    """None stands for no accounting at all, as in Slurm from 23.11 on."""
    return Known(value="(null)" if told is None or is_nothing(told) else told)


def _controller(told: _Controller) -> Controller:
    role = "primary" if told.is_primary else "backup"
    return Controller(host=told.host or "", role=role, answers=Answer.YES if told.answers else Answer.NO)
