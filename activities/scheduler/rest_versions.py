"""Which version of slurmrestd's interface to speak, of those that the server offers, and what can be done in it.

slurmrestd lists all its paths under ``/openapi/v3``. Seen with their own servers: v0.0.38 (Slurm 22.05), v0.0.40 to
v0.0.42 (24.11), v0.0.42 to v0.0.45 (26.05). Changes that matter here:

* v0.0.38 takes an update as options of sbatch: ``excluded_nodes`` is a "Disabled key", ``admin_comment`` an unknown
  one.
* From v0.0.40 on an update is Slurm's own: exclusion list, AdminComment, hold, begin time, Requeue.
* A requeue is there from v0.0.45 on: ``POST /jobs/requeue``, with the flag ``Hold``. Nothing before can stand in for
  it: cancelling a job with FEDERATION_REQUEUE only changes what accounting is told (read in 24.11's ``job_mgr.c``).
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ValidationError

from activities.scheduler.protocol import SchedulerUnavailable
from recovery.model import Value

KNOWN = tuple(f"v0.0.{number}" for number in range(38, 46))
"""What relight can read, the oldest first."""
FIRST_WITH_UPDATES = "v0.0.40"
FIRST_WITH_REQUEUE = "v0.0.45"
_SCRIPT_ASKED = "show_batch_script"
_JOBS_PATH = re.compile(r"/slurm/(v\d{1,3}\.\d{1,3}\.\d{1,4})/jobs/?")


class ApiVersion(Value):
    """The version in use, and which verbs it has."""

    name: str
    """Such as ``v0.0.45``."""
    updates: bool
    """A job's exclusion list, AdminComment, hold, begin time and Requeue can be set."""
    requeues: bool
    """A job can be put back, held or not."""
    configures: bool
    """The site's configuration can be read."""
    accounts: bool
    """slurmdbd can be asked too."""
    scripts: bool
    """slurmdbd can be asked for a job's batch script."""


class _Parameter(BaseModel):
    name: str = ""


class _Get(BaseModel):
    parameters: tuple[_Parameter, ...] = ()


class _Path(BaseModel):
    get: _Get = _Get()


class _Paths(BaseModel):
    paths: dict[str, Any]


def newest_known(openapi: str, teller: str) -> ApiVersion:
    """Return the newest version that both sides know. `openapi`: the server's answer; `teller` names the server.

    Raises `SchedulerUnavailable` when there is none, or when this is no description of slurmrestd's interface.
    """
    try:
        paths = _Paths.model_validate_json(openapi).paths
    except ValidationError as error:
        raise SchedulerUnavailable(
            f"{teller} does not describe its interface under /openapi/v3: is it slurmrestd?"
        ) from error
    offered = {found[1] for path in paths if (found := _JOBS_PATH.fullmatch(path))}
    common = [name for name in KNOWN if name in offered]
    if not common:
        raise SchedulerUnavailable(
            f"{teller} offers {', '.join(sorted(offered)[:8]) or 'no version of its interface'}, and relight knows "
            f"{KNOWN[0]} to {KNOWN[-1]}: start slurmrestd with a plugin of these, or use a newer relight"
        )
    name = common[-1]
    return ApiVersion(
        name=name,
        updates=KNOWN.index(name) >= KNOWN.index(FIRST_WITH_UPDATES),
        requeues=f"/slurm/{name}/jobs/requeue" in paths,
        configures=f"/slurm/{name}/conf" in paths,
        accounts=any(path.startswith(f"/slurmdb/{name}/user/") for path in paths),
        scripts=_SCRIPT_ASKED in _parameters(paths, f"/slurmdb/{name}/jobs/"),
    )


def _parameters(paths: dict[str, Any], path: str) -> frozenset[str]:
    """The names of what may be asked of `path`; none where that is not there, or is described in another way."""
    try:
        return frozenset(parameter.name for parameter in _Path.model_validate(paths.get(path, {})).get.parameters)
    except ValidationError:
        return frozenset()
