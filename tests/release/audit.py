"""Looks the pins up among known advisories, with pip-audit or in files: ``make audit``.

    python -m tests.release.audit [--command pip-audit] [--advisories FILE] [FILE]

A pin that no index of advisories knows was not checked; pip-audit says so in a column and ends with "No known
vulnerabilities found" all the same, which may then mean that nothing was looked up. What pip-audit does not
find, as on mirrors that have no pages of single releases, is looked up on the package's own page
(`newest.py`), which answers for the newest release alone. This script counts the pins that were looked up.
Where some or all were not, it says NOT CHECKED in one paragraph. It ends with 0 only where every pin was
looked up, has no advisory and was not taken back.

Where PyPI's API cannot be reached, ``--advisories`` names files of advisories that were brought along
(`advisories.py`). Those are as old as they are: beyond 30 days, or without a date, NOT CHECKED is said, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.release.advisories import read_advisories
from tests.release.hashes import CONSTRAINTS, normal, pins
from tests.release.newest import Page, fetched, release

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
FRESH = timedelta(days=30)
"""Age of the newest advisory up to which files of advisories count as a check."""
NAMED = 5
"""Packages that a message names before it counts the others."""


def audit(command: str, path: Path, page: Page = fetched) -> int:
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
        looked_up: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return _no_answer(done.stdout + done.stderr, done.returncode)
    versions = pins(path)
    looked_up = [_on_its_page(pin, versions, page) if "skip_reason" in pin else pin for pin in looked_up]
    advisories = [(pin, one) for pin in looked_up for one in pin.get("vulns", ())]
    for pin, one in advisories:
        fixed = ", ".join(one.get("fix_versions", ())) or "none yet"
        print(f"{pin['name']} {pin['version']}: {one['id']} (fixed in {fixed})")
    taken_back = [pin for pin in looked_up if pin.get("taken_back")]
    for pin in taken_back:
        print(f"{pin['name']} {pin['version']}: {pin['taken_back']}")
    skipped = [pin for pin in looked_up if "skip_reason" in pin]
    checked = len(looked_up) - len(skipped)
    print(f"{checked} of {len(looked_up)} pins looked up, {len(advisories)} advisories found.")
    if skipped:
        names = ", ".join(pin["name"] for pin in skipped[:NAMED])
        more = f" and {len(skipped) - NAMED} others" if len(skipped) > NAMED else ""
        print(f"NOT CHECKED: {names}{more}: {skipped[0]['skip_reason']}. Run it where PyPI's API is.")
    return int(bool(advisories or taken_back or skipped or not looked_up))


def _on_its_page(pin: dict[str, Any], versions: Mapping[str, str], page: Page) -> dict[str, Any]:
    """Look up a pin that pip-audit has skipped on its package's page; return what is known then."""
    name, version = pin["name"], versions.get(normal(pin["name"]), "")
    found = release(name, version, page)
    if found is None:
        return pin
    known = {"name": name, "version": version, "taken_back": found.taken_back}
    if not found.looked_up:
        reason = "the page of a package names advisories for its newest release alone"
        return known | {"skip_reason": reason}
    return known | {"vulns": [{"id": one, "fix_versions": fixed} for one, fixed in found.advisories]}


def audit_offline(advisories: Path, path: Path, now: datetime) -> int:
    """Look pins up in files of advisories; print what was found and their age; return the exit code."""
    try:
        known = read_advisories(advisories)
    except (OSError, ValueError) as error:
        print(f"NOT CHECKED: {error}.")
        return 1
    wanted = pins(path)
    found = known.found(wanted)
    for name, one in found:
        fixed = ", ".join(one.fixed) or "none yet"
        print(f"{name} {wanted[name]}: {one.identifier} (fixed in {fixed})")
    named = sum(name in known.by_package for name in wanted)
    print(
        f"{len(wanted)} pins looked up in {advisories.name}, {len(known)} advisories for "
        f"{len(known.by_package)} packages, of which {named} are pinned: {len(found)} advisories found."
    )
    if known.newest is None:
        print("NOT CHECKED for advisories of today: these files state no date.")
    elif now - known.newest > FRESH:
        print(
            f"NOT CHECKED for advisories after {known.newest:%d %B %Y}, when the newest of these was changed."
        )
    fresh = known.newest is not None and now - known.newest <= FRESH
    return int(bool(found or not wanted or not fresh))


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
    parser.add_argument(
        "--advisories", type=Path, help="folder, zip or file of advisories, in place of pip-audit"
    )
    parser.add_argument("file", nargs="?", type=Path, default=CONSTRAINTS)
    given = parser.parse_args()
    if given.advisories:
        sys.exit(audit_offline(given.advisories, given.file, datetime.now(UTC)))
    sys.exit(audit(given.command, given.file))


if __name__ == "__main__":
    main()
