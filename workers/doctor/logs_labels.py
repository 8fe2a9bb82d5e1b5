"""What a store's labels mean for relight. Pure: from entries, settings and running jobs to checks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from activities.logs.stores.protocol import Sample
from activities.logs.stores.settings import LabelNames
from activities.scheduler.protocol import JobRecord
from recovery.model import JobId
from workers.doctor.checks import Check, failed, ok, warning

ALIASES: Mapping[str, tuple[str, ...]] = {
    "job_id": ("slurm_job_id", "job_id", "jobid", "JOBID", "JobId", "SLURM_JOB_ID", "SLURM_JOBID", "slurm_jobid"),
    "node": ("host", "node", "hostname", "nodename", "node_name", "instance", "SLURMD_NODENAME"),
    "rank": ("rank", "global_rank", "RANK", "procid", "SLURM_PROCID"),
    "file": ("filename", "file", "path", "log_file_path"),
    "cluster": ("cluster", "cluster_name", "slurm_cluster", "SLURM_CLUSTER_NAME"),
}
"""What sites and collectors call a thing."""
_SHOWN = 60
_NAMED = 12


@dataclass(frozen=True)
class Labels:
    """A store's newest entries with their labels, beside what the settings say of them."""

    samples: Sequence[Sample]
    names: LabelNames
    cluster: str
    selector: str

    def of_running(self, running: Sequence[JobRecord]) -> Check:
        """Say why no line of a running job is found by the settings. `running` is not empty."""
        ids = {job.job_id for job in running}
        by_label = Counter(name for sample in self.samples for name in _holding(sample, ids))
        if not by_label:
            return self._without_ids(ids)
        label = self.names.job_id if self.names.job_id in by_label else by_label.most_common(1)[0][0]
        ours = next(sample for sample in self.samples if sample.labels.get(label) in ids)
        if label != self.names.job_id:
            says = f"{self.names.job_id} holds no running job's id, and {label} does: {ours.labels[label]}"
            return failed("labels.job_id", says, f"set labels.job_id: {label}")
        return wrong_cluster(ours, self.names, self.cluster) or self._left_out(ours)

    def of_nobody(self) -> Check:
        """Say whether there is a label for the job's id, where no job runs to compare with."""
        label = self.names.job_id
        if any(sample.labels.get(label) for sample in self.samples):
            return ok("labels.job_id", f"{label} is there; no job runs to compare its values with")
        return self._no_such_label()

    def others(self) -> Iterator[Check]:
        """Yield what the labels beside the job's id are called, on lines of jobs."""
        of_jobs = [sample for sample in self.samples if sample.labels.get(self.names.job_id)]
        if not of_jobs:
            return
        there = {name for sample in of_jobs for name, value in sample.labels.items() if value}
        for thing, configured in (("node", self.names.node), ("rank", self.names.rank), ("file", self.names.file)):
            if configured in there:
                yield ok(f"labels.{thing}", configured)
            elif alias := next((name for name in ALIASES[thing] if name in there), ""):
                says = f"jobs' lines carry {alias}, and not {configured or 'what the settings name'}"
                yield warning(f"labels.{thing}", says, f"set labels.{thing}: {alias}")
            elif configured and thing == "node":
                says = f"jobs' lines carry no {configured}: whose line it is must stand in the line"
                yield warning("labels.node", says, "have collectors attach the node's name")

    def _without_ids(self, ids: set[JobId]) -> Check:
        if not any(sample.labels.get(self.names.job_id) for sample in self.samples):
            return self._no_such_label()
        for sample in self.samples:
            if found := not_alone(sample, self.names, ids):
                return found
        says = f"{self.names.job_id} is there, and none of the newest lines is of the {len(ids)} jobs that run"
        return warning("labels.job_id", says, "find where one is lost by `relight doctor logs --probe`")

    def _no_such_label(self) -> Check:
        there = {name for sample in self.samples for name in sample.labels}
        alias = next((name for name in ALIASES["job_id"] if name in there), "")
        remedy = f"set labels.job_id: {alias}" if alias else "have collectors attach the job's id, as squeue prints it"
        says = f"no line carries {self.names.job_id}; there are: {listed(there)}"
        return failed("labels.job_id", says, remedy)

    def _left_out(self, sample: Sample) -> Check:
        says = f"{self.selector or 'the query'} leaves out lines labelled {listed(sample.labels)}"
        return failed("selector", says, "correct `selector`, or leave it empty")


def wrong_cluster(sample: Sample, names: LabelNames, cluster: str) -> Check | None:
    """Say that a job's line is not labelled as this cluster's; None where it is, or need not be."""
    held = sample.labels.get(names.cluster, "")
    if not names.cluster or held == cluster:
        return None
    says = f"{names.cluster} is {held[:_SHOWN]!r} on this cluster's lines, and not {cluster!r}"
    label = next((name for name, value in sample.labels.items() if value == cluster), "")
    remedy = f"set labels.cluster: {label}" if label else f"have collectors write {cluster!r}, or name the cluster so"
    return failed("labels.cluster", says, remedy)


def wrong_job(sample: Sample, names: LabelNames, ids: set[JobId]) -> Check | None:
    """Say that a line does not tell whose it is, where it should be one of `ids`; none: of any job. None if it does."""
    held = sample.labels.get(names.job_id, "")
    if held in ids or (held and not ids):
        return None
    label = next(iter(_holding(sample, ids)), "")
    if not ids:
        label = next((name for name in ALIASES["job_id"] if sample.labels.get(name)), "")
    if label:
        says = f"collected under {label}, and not under {names.job_id}"
        return failed("labels.job_id", says, f"set labels.job_id: {label}")
    if found := not_alone(sample, names, ids):
        return found
    says = f"collected without the job's id, labelled {listed(sample.labels)}"
    return failed("labels.job_id", says, f"have the collector attach {names.job_id}, as squeue prints the id")


def not_alone(sample: Sample, names: LabelNames, ids: set[JobId]) -> Check | None:
    """Say that a label of a job's id holds more than that; None where none does."""
    for label in (names.job_id, *ALIASES["job_id"]):
        held = sample.labels.get(label, "")[:_SHOWN]
        if found := ids.intersection(re.findall(r"\d+(?:_\d+)?", held)):
            says = f"{label} holds {held!r}, and not the id alone, {min(found)}"
            remedy = f"have collectors write the id as squeue prints it, and set labels.job_id: {label}"
            return failed("labels.job_id", says, remedy)
    return None


def listed(labels: Mapping[str, str] | set[str]) -> str:
    """Return labels for people, some of them."""
    shown = [f"{name}={labels[name]}" for name in labels] if isinstance(labels, Mapping) else sorted(labels)
    told = ", ".join(each[:_SHOWN] for each in shown[:_NAMED])
    return (told + (", ..." if len(shown) > _NAMED else "")) or "nothing"


def _holding(sample: Sample, ids: set[JobId]) -> list[str]:
    """The labels that hold one of `ids`, the likeliest first. Ranks are numbers too."""
    found = [name for name, value in sample.labels.items() if value in ids and name not in ALIASES["rank"]]
    return sorted(found, key=lambda name: name not in ALIASES["job_id"])
