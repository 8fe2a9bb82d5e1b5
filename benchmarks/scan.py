"""``python -m benchmarks.scan FILE ENGINE [MOST_OF_A_KIND]``: scan a log, ``-`` for standard input, as a process of its
own whose CPU can be taken. Prints how many lines were returned and the peak of its memory in bytes."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.processes import peak_memory_bytes
from recovery.signatures.catalogue import packaged_catalogue
from recovery.signatures.engines import best_engine, re2_engine
from recovery.signatures.scanner import Scanner

BLOCK_BYTES = 1 << 20
ENGINES = {"hyperscan": best_engine, "re2": re2_engine}


def main() -> None:
    """Scan."""
    name, engine, *most = sys.argv[1:]
    catalogue = packaged_catalogue()
    scanner = Scanner(catalogue, ENGINES[engine](catalogue), most_of_a_kind=int(most[0]) if most else None)
    count = 0
    with sys.stdin.buffer if name == "-" else Path(name).open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            count += len(scanner.feed(block))
    print(count + len(scanner.flush()), peak_memory_bytes())


if __name__ == "__main__":
    main()
