"""DBSCAN against its peers: CPU seconds of one thread, all peers of a row in turns.

What is measured goes to ``measured.json`` row by row, and the README's tables are made from that file
alone: a part can be measured again on its own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path

from tests.benchmarks.dbscan import tables
from tests.benchmarks.dbscan.bench import GIB, PYTHON, STORE, Bench
from tests.benchmarks.dbscan.cases import cases
from tests.benchmarks.dbscan.extras import extras


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of this module."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.dbscan", description=__doc__)
    parser.add_argument("--large", action="store_true", help="add 50,000 rows to a million")
    parser.add_argument("--only", nargs="*", metavar="ROW", help="of all rows: 20000x64-*, grid-*, threads-*")
    parser.add_argument("--peers", type=Path, default=PYTHON, help="interpreter that has the peers")
    parser.add_argument("--memory", type=float, default=10, help="most GiB for a peer, default 10")
    parser.add_argument("--seconds", type=float, default=60, help="most CPU seconds for a peer, default 60")
    parser.add_argument("--store", type=Path, default=STORE, help="file of what was measured so far")
    parser.add_argument("--resume", action="store_true", help="leave out rows that were measured before")
    parser.add_argument("--write-readme", action="store_true", help="bring the README's tables up to date")
    options = parser.parse_args(arguments)
    bench = Bench(options.peers, options.memory * GIB, options.seconds, options.store)
    if missing := bench.missing():
        print(f"Left out, not installed: {', '.join(missing)}. `make bench` puts them in .venv-peers.")
    known = set().union(*bench.measured.values()) if options.resume else set()
    patterns = ["*"] if options.only is None else options.only

    def wanted(key: str) -> bool:
        return key not in known and any(fnmatch(key, pattern) for pattern in patterns)

    try:
        _run(bench, options.large or options.only is not None, wanted)
    finally:
        if options.write_readme:
            tables.write(bench.measured)
    return 0


def _run(bench: Bench, large: bool, wanted: Callable[[str], bool]) -> None:
    for kind, key, run in extras(large):
        if wanted(key):
            bench.note(kind, key, run(bench))
    for case in cases(large):
        if wanted(case.key):
            bench.note("rows", case.key, bench.row(case))


if __name__ == "__main__":
    sys.exit(main())
