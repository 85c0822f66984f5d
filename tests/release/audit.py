"""Looks the pins up among known advisories with pip-audit: ``make audit``.

    python -m tests.release.audit [--strict] [--command pip-audit] [FILE]

Where no advisories can be reached, it says that nothing was checked, and ends with 0; with ``--strict``, as a
release runs it, with 1. Advisories that are found always end it with 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

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
REACHED = ("No known vulnerabilities", "Found ")


def audit(command: str, path: Path, *, strict: bool) -> int:
    """Run pip-audit over a file of pins; return the exit code."""
    options = ["--requirement", str(path), "--no-deps", "--disable-pip", "--progress-spinner", "off"]
    try:
        done = subprocess.run([command, *options], capture_output=True, text=True, timeout=900, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"NOT CHECKED: pip-audit did not run ({error}).")
        return int(strict)
    text = done.stdout + done.stderr
    if any(words in text for words in REACHED):
        print(text.strip())
        return done.returncode
    if any(words in text for words in UNREACHABLE):
        last = text.strip().splitlines()[-1][:200]
        print(f"NOT CHECKED: no advisories can be reached from here ({last}). Run it again with a network.")
        return int(strict)
    print(text.strip())
    return done.returncode or 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strict", action="store_true", help="fail where nothing could be checked")
    parser.add_argument("--command", default="pip-audit")
    parser.add_argument("file", nargs="?", type=Path, default=CONSTRAINTS)
    given = parser.parse_args()
    sys.exit(audit(given.command, given.file, strict=given.strict))


if __name__ == "__main__":
    main()
