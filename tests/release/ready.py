"""Says whether what ``make release`` has built may be published, and what is missing otherwise.

    python -m tests.release.ready [--command pip-audit | --advisories FILE] [--build build]

Everything that can be made without a registry of images and an index of advisories has been made by then.
This last step lists what is left to do, with the command for each, and fails until nothing is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.release.audit import audit, audit_offline
from tests.release.hashes import CONSTRAINTS, ROOT
from tests.release.images import FILES, without_digest

MADE = {
    "dist/*.whl": "make release",
    "rowsieve.cdx.json": "make sbom",
    "LICENCES.md": "make licences",
}
"""Pattern in the build folder -> the command that makes it."""


def missing(build: Path, files: Sequence[Path], audited: Callable[[], int]) -> list[str]:
    """Return what a release still lacks, as one sentence each; ``audited`` returns 0 if nothing was found."""
    found = [
        f"{build}/{name} was not made: {how}." for name, how in MADE.items() if not any(build.glob(name))
    ]
    bare = without_digest(files)
    if bare:
        found.append(
            f"{len(bare)} base images have no digest ({', '.join(bare)}): run `make digests` where docker "
            f"and the images' registries are, and commit what it writes."
        )
    if audited():
        found.append(
            "The audit above found advisories, or could not look up every pin: update the pins that have "
            "advisories; else run `make release` where PyPI's API can be reached, or with advisories from "
            'OSV (`make release ARGS="--advisories all.zip"`).'
        )
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--command", default="pip-audit")
    parser.add_argument(
        "--advisories", type=Path, help="folder, zip or file of advisories, in place of pip-audit"
    )
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    given = parser.parse_args(arguments)
    if given.advisories:
        audited = partial(audit_offline, given.advisories, CONSTRAINTS, datetime.now(UTC))
    else:
        audited = partial(audit, given.command, CONSTRAINTS)
    left = missing(given.build, [ROOT / name for name in FILES], audited)
    if not left:
        print(f"READY: {given.build} holds the wheel, its SBOM and the licences.")
        return 0
    print(f"NOT READY to be published, for {len(left)} reasons:")
    for number, text in enumerate(left, start=1):
        print(f"  {number}. {text}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
