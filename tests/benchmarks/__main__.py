"""The front door of the benchmarks: all of them, or one by name with options of its own.

python -m tests.benchmarks [--write-readme]
python -m tests.benchmarks NAME [OPTION ...]
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

NAMES = (
    "dbscan",
    "dckm",
    "duplicates",
    "embed",
    "encode",
    "eos",
    "factored",
    "gradients",
    "groups",
    "lp",
    "reading",
    "scale",
    "sharded",
    "splits",
    "streaming",
    "training",
    "workers",
)


def commands(arguments: Sequence[str]) -> list[list[str]]:
    """Return the commands to run, one interpreter each, so that none inherits another's threads or memory.

    Raises SystemExit for a name that is none.
    """
    if not arguments or arguments[0] == "--write-readme":
        names, options = NAMES, list(arguments)
    else:
        names, options = (arguments[0],), list(arguments[1:])
    if unknown := set(names) - set(NAMES):
        raise SystemExit(f"no benchmark {', '.join(unknown)!r}; there are {', '.join(NAMES)}")
    return [[sys.executable, "-m", f"tests.benchmarks.{name}", *options] for name in names]


def main(arguments: Sequence[str]) -> int:
    """Run them all, also after one has failed; the status is the worst."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # dbscan sets its workers' threads itself
    return max(subprocess.run(command, env=environment).returncode for command in commands(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
