"""The command's entry point. Checks that our plain folder names are ours before importing them.

It is installed under a name of its own (``rowsieve``) so that it starts even where another
package called ``engine`` comes first on the path.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

NAMES = ("engine", "operators", "connectors")


def main() -> None:
    """Run ``rowsieve``, or say in one line which folder is in the way."""
    found = shadowed()
    if found:
        print(f"rowsieve: {found}", file=sys.stderr)
        raise SystemExit(2)
    from engine.cli.app import main as command

    command()


def shadowed() -> str:
    """One line naming a package that would be imported instead of ours, or an empty text."""
    here = Path(__file__).resolve().parent
    home = (
        here.parent if here.name == __name__ else here.parent.parent
    )  # as a wheel lays it out; in the source
    for name in NAMES:
        for place in (_origin(name), _origin_in(name, Path.cwd())):
            if place is not None and place.parent.resolve() != home:
                return (
                    f"{place} is found in place of Rowsieve's own package {name!r} (Ray's workers import "
                    f"from the working directory). Run the command from another folder, or rename that one."
                )
    return ""


def _origin(name: str) -> Path | None:
    spec = find_spec(name)
    return _folder(spec)


def _origin_in(name: str, folder: Path) -> Path | None:
    return _folder(PathFinder.find_spec(name, [str(folder)]))


def _folder(spec: object) -> Path | None:
    places = getattr(spec, "submodule_search_locations", None)
    if places:
        return Path(next(iter(places)))
    origin = getattr(spec, "origin", None)
    return Path(origin) if origin else None
