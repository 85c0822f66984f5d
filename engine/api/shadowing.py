"""Detects packages of other projects that would be imported in place of Rowsieve's own.

Rowsieve installs packages with plain names. Another package with one of these names that comes first on the
path would be imported silently, so the command and the public API check for it first.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

NAMES = ("engine", "operators", "connectors")


def shadowed(*, working_directory: bool = True) -> str:
    """Return one line that names a package which would be imported instead of Rowsieve's, or an empty text.

    ``working_directory`` also looks there, since Ray's workers import from it.
    """
    here = Path(__file__).resolve().parent
    installed = here.name == "rowsieve"  # beside the other packages; in the source it is engine/api
    home = here.parent if installed else here.parent.parent
    for name in NAMES:
        places = [_folder(find_spec(name))]
        if working_directory:
            places.append(_folder(PathFinder.find_spec(name, [str(Path.cwd())])))
        for place in places:
            if place is not None and place.parent.resolve() != home:
                return (
                    f"{place} is found in place of Rowsieve's own package {name!r} (Ray's workers import "
                    f"from the working directory). Run the command from another folder, or rename that one."
                )
    return ""


def _folder(spec: object) -> Path | None:
    places = getattr(spec, "submodule_search_locations", None)
    if places:
        return Path(next(iter(places)))
    origin = getattr(spec, "origin", None)
    return Path(origin) if origin else None
