"""The role of each file of ``operators``, as its README states them."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "operators/README.md"
ROLES = ("kernel", "estimator", "adaptor", "tasks", "parameters", "state", "report")
MODULE = "module"
"""Role of the files beside the folders."""


def stated_roles() -> list[tuple[str, str]]:
    """Return the files below ``operators`` that the README names, each with its role."""
    text = PAGE.read_text("utf-8").partition("## Roles of the files")[2].partition("## How one row")[0]
    found = []
    for line in re.findall(r"^\| `.*$", text, re.MULTILINE):
        first, *cells = line.strip("| ").split(" | ")
        if folder := re.fullmatch(r"`((?:\w+/)+)`", first):
            named = dict(zip(ROLES, cells, strict=False))
            found += [(f"{folder[1]}{name}", role) for role, cell in named.items() for name in _files(cell)]
        else:
            found += [(name, MODULE) for name in _files(first)]
    return found


def _files(cell: str) -> list[str]:
    return re.findall(r"`([\w/]+\.py)`", cell)
