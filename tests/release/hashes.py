"""Writes ``deploy/hashes.txt``: what the image installs, by version and by the hash that pip checks.

    python -m tests.release.hashes [--report REPORT]

pip itself looks the pins up in the index (a dry run, nothing is installed) and reports the hash of each file
that it would install on this platform. Packages of other indexes (torch) and of GPUs keep their version.
The image installs the file first, with ``--require-hashes``, and then Rowsieve finds all that it needs.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "deploy" / "constraints.txt"
IMAGES = {
    ROOT / "deploy" / "hashes.txt": ("rowsieve[deploy,storage]",),
    ROOT / "deploy" / "mlflow" / "hashes.txt": ("mlflow", "boto3", "psycopg[binary]"),
}
"""File of hashes -> what the image beside it installs."""
OTHERWISE = re.compile(r"torch|triton|nvidia-.*|cuda-.*|faiss-.*|setuptools")
"""Packages that come from another index, or with another build of torch."""
ABOUT = """# What the image installs, with the hashes of the files for Linux on x86-64 and Python 3.11.
# Written by: make hashes. torch and faiss, which depend on the flavour, are pinned by version alone.
"""


def pins(path: Path = CONSTRAINTS) -> dict[str, str]:
    """Return the pinned version of every package by its normalised name."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    pairs = (line.split(";")[0].strip().split("==") for line in lines)
    return {normal(name): version for name, version in pairs}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(roots: Iterable[str]) -> set[str]:
    """Return the packages that requirements bring, by the metadata of what is installed, but for Rowsieve."""
    waiting, seen = [Requirement(root) for root in roots], set[tuple[str, str]]()
    while waiting:
        wanted = waiting.pop()
        for extra in ("", *wanted.extras):
            key = (normal(wanted.name), extra)
            if key in seen:
                continue
            seen.add(key)
            needs = map(Requirement, metadata(wanted.name).get_all("Requires-Dist") or ())
            waiting += [one for one in needs if one.marker is None or one.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen} - {"rowsieve"}


def hashed(report: dict[str, Any], roots: Iterable[str]) -> str:
    """Return the text of a file of hashes for a report of pip. Raises ValueError if it is not of the pins."""
    known, found = pins(), {}
    for entry in report["install"]:
        name, version = normal(entry["metadata"]["name"]), entry["metadata"]["version"]
        if known.get(name) != version:
            raise ValueError(f"{name}: pip resolves {version}, and constraints.txt pins {known.get(name)}")
        found[name] = entry["download_info"]["archive_info"]["hashes"]["sha256"]
    wanted = sorted(name for name in closure(roots) if not OTHERWISE.fullmatch(name))
    missing = [name for name in wanted if name not in found]
    if missing:
        raise ValueError(f"pip reports no file for {', '.join(missing)}")
    lines = [f"{name}=={known[name]} --hash=sha256:{found[name]}" for name in wanted]
    return ABOUT + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--report", type=Path, help="a report that pip has written already")
    given = parser.parse_args()
    if given.report:
        report = json.loads(given.report.read_text())
    else:
        with tempfile.TemporaryDirectory() as scratch:
            wanted, path = Path(scratch) / "pins.txt", Path(scratch) / "report.json"
            lines = [
                f"{name}=={version}" for name, version in pins().items() if not OTHERWISE.fullmatch(name)
            ]
            wanted.write_text("\n".join(lines))
            options = ["--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", str(path)]
            subprocess.run([sys.executable, "-m", "pip", "install", *options, "-r", str(wanted)], check=True)
            report = json.loads(path.read_text())
    for path, roots in IMAGES.items():
        path.write_text(hashed(report, roots))
        print(f"{path}: {path.read_text().count('--hash')} packages")


if __name__ == "__main__":
    main()
