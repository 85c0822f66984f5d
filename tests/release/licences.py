"""Writes ``deploy/LICENCES.md``: the licence of every pinned package, as its own metadata state it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, metadata
from typing import Any

from tests.release.hashes import ROOT, pins

LICENCES = ROOT / "deploy" / "LICENCES.md"
ABOUT = """# Licences of the pinned packages

As the metadata of the installed packages state them. Written by `make licences`; `-`: not installed there.

| package | version | licence |
|---|---|---|
"""


def licence_of(found: Any) -> str:
    """Return the SPDX expression, else the classifiers, else the first line of the free text."""
    if expression := found.get("License-Expression"):
        return str(expression)
    kinds = [
        text.rpartition(" :: ")[2]
        for text in found.get_all("Classifier") or ()
        if text.startswith("License ::")
    ]
    if kinds := [kind for kind in kinds if kind != "OSI Approved"]:
        return ", ".join(kinds)
    return (str(found.get("License") or "").strip().splitlines() or ["not stated"])[0][:60]


def table() -> dict[str, tuple[str, str]]:
    """Return version and licence of every pinned package by its name."""
    rows = {}
    for name, version in sorted(pins().items()):
        try:
            rows[name] = (version, licence_of(metadata(name)))
        except PackageNotFoundError:
            rows[name] = (version, "-")
    return rows


def main() -> None:
    rows = table()
    lines = [
        f"| {name} | {version} | {licence.replace('|', '/')} |" for name, (version, licence) in rows.items()
    ]
    LICENCES.write_text(ABOUT + "\n".join(lines) + "\n")
    missing = sum(licence == "-" for _, licence in rows.values())
    print(f"{LICENCES}: {len(rows)} packages, {missing} not installed here")


if __name__ == "__main__":
    main()
