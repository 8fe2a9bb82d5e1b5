"""A module with the surface of pyslurm 25.11 that relight uses, and no more: what `test_pyslurm_api` finds in pyslurm's
own sources is what stands here. It answers from ``cluster.json`` beside it and writes each change to ``changes.jsonl``.
"""

import json
from pathlib import Path
from types import SimpleNamespace

_HERE = Path(__file__).parent
_CLUSTER = json.loads((_HERE / "cluster.json").read_text())
__version__ = _CLUSTER["pyslurm"]
slurmctld = SimpleNamespace(
    Config=SimpleNamespace(load=lambda: SimpleNamespace(version=_answer(_CLUSTER["controller"]), **_CLUSTER["config"])),
    ping_all=lambda: [SimpleNamespace(**ping) for ping in _CLUSTER["pings"]],
)


class RPCError(Exception):
    def __init__(self, errno, msg):
        super().__init__(msg)
        self.errno = errno


class Job:
    def __init__(self, job_id):
        self.id = job_id

    @staticmethod
    def load(job_id):
        for job in Jobs.load().values():
            if job.id == job_id:
                return job
        raise RPCError(2017, "Invalid job id specified")

    def get_batch_script(self):
        return _answer(_CLUSTER["script"])

    def requeue(self, hold=False):
        _change(self, "requeue", hold=hold)

    def modify(self, changes):
        _change(self, "modify", **changes.__dict__)

    def release(self):
        _change(self, "release")

    def cancel(self):
        _change(self, "cancel")


class Jobs(dict):
    @staticmethod
    def load():
        return Jobs({job["id"]: _job(job) for job in _answer(_CLUSTER["jobs"])})


class Nodes(dict):
    @staticmethod
    def load():
        return Nodes({node["name"]: SimpleNamespace(**node) for node in _answer(_CLUSTER["nodes"])})


class JobSubmitDescription:
    def __init__(self, **kwargs):
        self.__dict__.update(kwargs)


class _NotText:
    """A text of which Python can make nothing: reading it fails as it does in pyslurm."""

    def __init__(self, hexadecimal):
        self.bytes = bytes.fromhex(hexadecimal)

    def __get__(self, job, kind):
        return self.bytes.decode()


def _job(fields):
    not_text = {name: _NotText(value[4:]) for name, value in fields.items() if str(value).startswith("hex:")}
    job = type("Job", (Job,), not_text)(fields["id"])
    job.__dict__.update({name: value for name, value in fields.items() if name not in not_text})
    return job


def _answer(value):
    if isinstance(value, dict) and "refusal" in value:
        raise RPCError(value["number"], value["refusal"])
    return value


def _change(job, verb, **details):
    with (_HERE / "changes.jsonl").open("a") as changes:
        changes.write(json.dumps([verb, job.id, details]) + "\n")
    for change in (verb, f"{verb} {job.id}"):
        _answer(_CLUSTER.get("refusals", {}).get(change))
