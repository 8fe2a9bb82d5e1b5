"""What is checked of a verb's arguments before it leaves for Slurm, by whatever way."""

from __future__ import annotations

import re

from activities.scheduler.protocol import Invalid, JobUnknown, Refused
from recovery.model import JOB_ID_PATTERN, NODE_NAME_PATTERN, JobId, NodeName

MAX_ADMIN_COMMENT_BYTES = 32_768


def checked_job_id(job_id: str) -> JobId:
    """Return `job_id`; `JobUnknown` when no job can have it."""
    if not re.fullmatch(JOB_ID_PATTERN, job_id):
        raise JobUnknown(f"{job_id[:40]!r} is not a job id: digits, or <array>_<task>")
    return job_id


def checked_node_name(name: str) -> NodeName:
    """Return `name`; `Invalid` when no node can have it."""
    if not re.fullmatch(NODE_NAME_PATTERN, name):
        raise Invalid(f"{name[:80]!r} is not a node name")
    return name


def checked_admin_comment(text: str) -> str:
    """Return `text`; `Refused` when it is too long for a comment."""
    size = len(text.encode(errors="replace"))
    if size > MAX_ADMIN_COMMENT_BYTES or "\0" in text:
        raise Refused(
            f"an admin comment of {size} bytes is too long, or holds a NUL; at most {MAX_ADMIN_COMMENT_BYTES}"
        )
    return text
