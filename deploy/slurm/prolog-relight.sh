#!/bin/sh
# Has relight take a job that opted in under guard the moment it starts. Use it as PrologSlurmctld, or call it from the
# site's own: it runs once for each start of a job, on the controller's host.
#
# It never fails a job and never delays one: the call runs in the background, for 30 s at most. Whatever goes wrong goes
# to syslog, and the job starts anyway; the worker then finds it with its next reading of the queue.

PATH="${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin:/opt/relight/bin"
export PATH

# A task of an array goes by <array>_<task>: its plain id may also name the whole array.
if [ -n "${SLURM_ARRAY_JOB_ID:-}" ] && [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
    job="${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
else
    job="${SLURM_JOB_ID:-}"
fi

# What runs in the background; it gets the job as $1. Slurm kills the prolog's process group as soon as the prolog ends
# (seen on 22.05), so setsid is waited for, and what it starts goes to the background only in the new session.
adopt='{
    timeout -k 5 30 relight watch --if-opted-in "$1" ||
        logger -t prolog-relight "job $1 was not taken under guard: relight watch exited with $?"
} &'

case "$job" in
    '' | *[!0-9_]*) ;;
    *) setsid sh -c "$adopt" prolog-relight "$job" </dev/null >/dev/null 2>&1 ;;
esac
exit 0
