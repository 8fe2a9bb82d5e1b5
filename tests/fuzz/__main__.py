"""``python -m tests.fuzz [TARGET ...] [--seconds N] [--keep FOLDER]``: fuzz with atheris, one target after the other.

Ends with exit code 1 and the path of the input when a target fails, or takes longer than `SLOW_S` over one input.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SLOW_S = 5
LONGEST_BYTES = {"scanner": 8_192, "lines": 8_192, "attribution": 16_384, "flight_recorder": 32_768}
KEPT = Path(__file__).parent / "kept"


def main() -> int:
    """Run each target in a process of its own: the fuzzer ends its process."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", default=[*LONGEST_BYTES], metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--keep", type=Path, help="a folder for the inputs found, to go on from next time")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.targets) - LONGEST_BYTES.keys()
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(LONGEST_BYTES)}")
    if options.inside:
        _fuzz(options.targets[0], options.inside, options.seconds)
    with tempfile.TemporaryDirectory() as scratch:
        return max(_run(target, options.keep or Path(scratch), options.seconds) for target in options.targets)


def _run(target: str, folder: Path, seconds: int) -> int:
    print(f"fuzzing {target} for {seconds} s", flush=True)
    inputs = folder / target
    inputs.mkdir(parents=True, exist_ok=True)
    failures = Path.cwd() / "fuzz-failures"
    before = set(failures.glob("*"))
    code = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", target, f"--seconds={seconds}", f"--inside={inputs}"], check=False
    ).returncode
    for failure in sorted(set(failures.glob("*")) - before):
        print(f"{target} failed on {failure}: see tests/fuzz/README.md", flush=True)
    return 1 if code else 0


def _fuzz(target: str, inputs: Path, seconds: int) -> None:
    import atheris

    with atheris.instrument_imports(include=["recovery"]):
        from tests.fuzz.targets import TARGETS, seeds
    for number, seed in enumerate(seeds(target)):
        (inputs / f"seed-{number}").write_bytes(seed[: LONGEST_BYTES[target]])
    for path in (KEPT / target).glob("*"):
        shutil.copy(path, inputs / f"kept-{path.name}")
    failures = Path.cwd() / "fuzz-failures"
    failures.mkdir(exist_ok=True)
    atheris.Setup(
        [
            *(sys.argv[0], f"-max_total_time={seconds}", f"-timeout={SLOW_S}", "-rss_limit_mb=4096"),
            *(f"-max_len={LONGEST_BYTES[target]}", f"-artifact_prefix={failures}/", "-print_final_stats=1"),
            str(inputs),
        ],
        TARGETS[target],
    )
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
