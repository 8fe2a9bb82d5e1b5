"""Metrics of the nodes and GPUs of a job, as evidence: never a reason to act by themselves."""
