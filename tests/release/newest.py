"""What PyPI's page of a package says: advisories for its newest release, and releases that were taken back.

pip-audit asks for the page of one release, which some mirrors of PyPI do not have. The page of the package
names the advisories of its newest release alone, so that a pin of an older one is not looked up by it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from packaging.version import InvalidVersion, Version

Page = Callable[[str], Any]
"""Returns the page of a package by its name. Raises OSError or ValueError where there is none."""
PAGE = "https://pypi.org/pypi/{}/json"
SECONDS = 60
LARGEST = 64 * 2**20
"""Bytes of a page: those of packages with thousands of files take a few megabytes."""


@dataclass(frozen=True)
class Release:
    """What the page of a package says of one release of it.

    ``looked_up`` is whether the page names its advisories: it is the newest one. ``advisories`` has their
    names, each with the releases that are free of it. ``taken_back`` says why the release should not be used
    although no advisory names it, or nothing.
    """

    newest: str
    looked_up: bool
    advisories: tuple[tuple[str, tuple[str, ...]], ...] = ()
    taken_back: str = ""


def fetched(name: str) -> Any:
    """Return the page of a package. Raises OSError or ValueError where there is none."""
    with urlopen(PAGE.format(name), timeout=SECONDS) as answer:
        text = answer.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise ValueError(f"the page of {name} has more than {LARGEST} bytes")
    return json.loads(text)


def release(name: str, version: str, page: Page = fetched) -> Release | None:
    """Return what the page of a package says of a release; None where no page can be had or read."""
    try:
        content = page(name)
        newest = str(content["info"]["version"])
        files = {Version(key): value for key, value in content["releases"].items() if _is_version(key)}
        known = [
            (str(one["id"]), tuple(map(str, one.get("fixed_in") or ())))
            for one in content["vulnerabilities"]
            if not one.get("withdrawn")
        ]
        looked_up = Version(newest) == Version(version)
        taken_back = _taken_back(files.get(Version(version)))
    except (URLError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Release(newest, looked_up, tuple(known) if looked_up else (), taken_back)


def _taken_back(files: list[dict[str, Any]] | None) -> str:
    """Say why a release with these files is no longer offered; nothing where it is."""
    if not files:
        return "no longer on PyPI"
    if all(file.get("yanked") for file in files):
        return f"yanked by its maintainers ({files[0].get('yanked_reason') or 'no reason given'})"
    return ""


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True
