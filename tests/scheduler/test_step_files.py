"""What a batch script tells of the files that its steps write to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.scheduler.filename_pattern import BatchFile
from activities.scheduler.step_files import GAP, MAX_FILES, StepFile, step_files, untold_files

JOB = BatchFile(
    job_number="4711",
    array_job_id="",
    array_task_id="",
    name="gpt",
    user="ana",
    batch_host="n1",
    work_dir="/home/ana/run",
)
TASK = JOB._replace(job_number="4713", array_job_id="4711", array_task_id="2")

MEGATRON = r"""#!/bin/bash
#SBATCH --nodes=4
export NCCL_DEBUG=INFO            # don't forget
DIR=`pwd`
DATETIME=`date +'date_%y-%m-%d_time_%H-%M-%S'`
mkdir -p $DIR/logs
options=" \
    --micro-batch-size 4 \
    --data-path 'a b' "
run_cmd="cd $DIR && python -u ${DIR}/pretrain_gpt.py ${options}"
srun -l \
     --container-image "registry/team/image:tag" \
     --container-mounts "/a:/b" \
     --output=$DIR/logs/%x_%j_$DATETIME.log sh -c "${run_cmd}"
"""


def names(script: str, job: BatchFile = JOB) -> list[str]:
    return [each.path.replace(GAP, "*") for each in step_files(script, job)]


def test_a_log_of_each_attempts_own_is_known_but_for_its_time() -> None:
    [file] = step_files(MEGATRON, JOB)
    assert file.path == f"/home/ana/run/logs/gpt_4711_{GAP}.log"
    assert (file.has_gaps, file.is_the_jobs) == (True, True)
    assert file.may_be("/home/ana/run/logs/gpt_4711_date_26-11-30_time_01-02-03.log")
    assert not file.may_be("/home/ana/run/logs/gpt_47110_date_26-11-30_time_01-02-03.log")
    assert not file.may_be("/home/ana/run/logs/old/gpt_4711_x.txt")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("srun --output=out.log python x.py", ["/home/ana/run/out.log"]),
        ("srun --output out.log python x.py", ["/home/ana/run/out.log"]),
        ("srun -o out.log -e err.log python x.py", ["/home/ana/run/out.log", "/home/ana/run/err.log"]),
        ("srun -oout.log python x.py -o its_own", ["/home/ana/run/out.log"]),
        ("srun -N 4 -l python x.py --output its_own", []),
        ("time srun -u -o 'step %j.log' hostname", ["/home/ana/run/step 4711.log"]),
        ("srun -o %j-%s-%t.out x", ["/home/ana/run/4711-*-*.out"]),
        ("srun -o %t.out x", []),
        ("srun -o none -e 0 x", []),
        ("srun -o none.log x", ["/home/ana/run/none.log"]),
        ("srun -o /dev/null x", []),
        ("LOG=/logs/${SLURM_JOB_ID}\nsrun -o $LOG/out x", ["/logs/4711/out"]),
        ("export LOG=/logs\nsrun -o ${LOG}/$SLURM_JOB_NAME-%j x", ["/logs/gpt-4711"]),
        ("srun -o ${LOG_DIR:-/scratch/logs}/out x", ["/scratch/logs/out"]),
        ("srun -o $LOG_DIR/%j.out x", []),
        ("srun -o /data/$RUN/%j.out x", []),
        ("srun -o /data/%j-$(date)/out.log x", ["/data/4711-*/out.log"]),
        ("torchrun train.py > train.log 2>&1", ["/home/ana/run/train.log"]),
        ("torchrun train.py &>> train.log &\nwait", ["/home/ana/run/train.log"]),
        ("python3.11 train.py 2> err.log 1> out.log", ["/home/ana/run/err.log", "/home/ana/run/out.log"]),
        ("python train.py 2>&1 | grep -v x | tee -a run.log", []),
        ("python train.py 2>&1 | tee -a run.log > /dev/null", ["/home/ana/run/run.log"]),
        ("echo 1 | tee notes.txt", []),
        ("echo hello > notes.txt", []),
        ("exec &> $SLURM_SUBMIT_DIR/all_$SLURM_JOB_ID.txt", ["/home/ana/run/all_4711.txt"]),
        ("cd /elsewhere && srun -o out.log x", ["/elsewhere/out.log"]),
        ("cd $(mktemp -d)\nsrun -o out.log x", []),
        ("if true; then srun -o out.log x; fi", ["/home/ana/run/out.log"]),
        ("srun -o %8j.out x", ["/home/ana/run/00004711.out"]),
        ("srun -o slurm_%j_${SLURM_RESTART_COUNT:-0}.out x", ["/home/ana/run/slurm_4711_*.out"]),
        ("bash run.sh > /l/$SLURM_JOB_ID.log 2>&1", ["/l/4711.log"]),
        ('ARGS="-l --output=/l/%j.log"\nsrun $ARGS python x.py', ["/l/4711.log"]),
        ('OPTS=(\n  -l\n  --output="/l/%j.log"\n)\nOPTS+=(-N 2)\nsrun "${OPTS[@]}" python x.py', ["/l/4711.log"]),
        ("srun $UNKNOWN -o out.log x", ["/home/ana/run/out.log"]),
        ("# srun -o out.log x", []),
        ("echo 'open\nsrun -o out.log x", ["/home/ana/run/out.log"]),
        ("srun -o ../%%x.log x", ["/home/ana/%x.log"]),
        ("", []),
    ],
)
def test_what_can_be_told_without_running_it_is_told_and_nothing_else(script: str, expected: list[str]) -> None:
    assert names(script) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("srun -o %t.out x", ["%t.out"]),
        ("srun -o $LOG_DIR/%j.out -e $LOG_DIR/%j.out x", ["$LOG_DIR/%j.out"]),
        ("torchrun train.py > /data/$(date)/out.log 2>&1", ["/data/$(...)/out.log"]),
        ("cd $(mktemp -d)\nsrun -o out.log x", ["out.log"]),
        ("srun -o %j.out -e /dev/null x", []),
        ("python train.py 2>&1", []),
        (MEGATRON, []),
    ],
)
def test_what_can_not_be_told_is_known_as_it_is_written(script: str, expected: list[str]) -> None:
    assert list(untold_files(script, JOB)) == expected


def test_a_tasks_own_file_is_no_siblings() -> None:
    assert names("srun -o %A_%a-$(date).log x", TASK) == ["/home/ana/run/4711_2-*.log"]
    assert names("srun -o %A-$(date).log x", TASK) == []


def test_few_files_are_followed_of_a_script_that_names_many() -> None:
    assert len(step_files("\n".join(f"srun -o {n}.log x" for n in range(100)), JOB)) == MAX_FILES


@given(st.text(alphabet=st.sampled_from("srun -o=$\"'`(){}%jx/\\\n|>&#;1a"), max_size=300))
def test_no_script_is_too_odd(script: str) -> None:
    for file in step_files(f"srun -o {script}", JOB):
        assert isinstance(file, StepFile)
        assert file.path.startswith("/")
        assert not file.has_gaps or file.is_the_jobs
