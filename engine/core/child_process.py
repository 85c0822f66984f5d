"""Commands that start a function of this package in a process that imports what this one imports."""

from __future__ import annotations

import json
import sys

START = (
    "import sys; from json import loads; sys.path[:] = loads(sys.argv.pop(1)); sys.argv[0] = 'rowsieve'; "
    "from {} import {} as function; function()"
)


def command_of(module: str, function: str, *arguments: str) -> list[str]:
    """Return the command of a child that calls a function without parameters; it finds ``arguments`` in argv.

    Python looks for modules in the working directory first, unless ``-P`` is given: a ``json.py`` beside the
    data would run. The child gets this process's own folders of modules.
    """
    return [sys.executable, "-P", "-c", START.format(module, function), json.dumps(sys.path), *arguments]
