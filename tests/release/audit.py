"""Looks the pins up among known advisories with pip-audit: ``make audit``.

    python -m tests.release.audit [--command pip-audit] [FILE]

A pin that no index of advisories knows was not checked; pip-audit says so in a column and ends with "No known
vulnerabilities found" all the same, which may then mean that nothing was looked up. This script counts the
pins that were. Where some or all were not, it says NOT CHECKED in one paragraph. It ends with 0 only where
every pin was looked up and has no advisory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.release.hashes import CONSTRAINTS

UNREACHABLE = (
    "ConnectionError",
    "Max retries",
    "Connection",
    "timed out",
    "ServiceError",
    "resolve",
    "Proxy",
    "HTTPError",
)
NAMED = 5
"""Packages that a message names before it counts the others."""


def audit(command: str, path: Path) -> int:
    """Run pip-audit over a file of pins; print what it found and looked up; return the exit code."""
    options = ["--requirement", str(path), "--no-deps", "--disable-pip", "--progress-spinner", "off"]
    try:
        done = subprocess.run(
            [command, *options, "--format", "json"], capture_output=True, text=True, timeout=900, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"NOT CHECKED: pip-audit did not run ({error}).")
        return 1
    try:
        pins: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return _no_answer(done.stdout + done.stderr, done.returncode)
    advisories = [(pin, one) for pin in pins for one in pin.get("vulns", ())]
    for pin, one in advisories:
        fixed = ", ".join(one.get("fix_versions", ())) or "none yet"
        print(f"{pin['name']} {pin['version']}: {one['id']} (fixed in {fixed})")
    skipped = [pin for pin in pins if "skip_reason" in pin]
    print(f"{len(pins) - len(skipped)} of {len(pins)} pins looked up, {len(advisories)} advisories found.")
    if skipped:
        names = ", ".join(pin["name"] for pin in skipped[:NAMED])
        more = f" and {len(skipped) - NAMED} others" if len(skipped) > NAMED else ""
        print(f"NOT CHECKED: {names}{more}: {skipped[0]['skip_reason']}. Run it where PyPI's API is.")
    return int(bool(advisories or skipped or not pins))


def _no_answer(text: str, code: int) -> int:
    """Say what pip-audit said instead of an answer; return the exit code."""
    if any(words in text for words in UNREACHABLE):
        last = text.strip().splitlines()[-1][:200]
        print(f"NOT CHECKED: no advisories can be reached from here ({last}). Run it again with a network.")
        return 1
    print(text.strip())
    return code or 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--command", default="pip-audit")
    parser.add_argument("file", nargs="?", type=Path, default=CONSTRAINTS)
    given = parser.parse_args()
    sys.exit(audit(given.command, given.file))


if __name__ == "__main__":
    main()
