"""Prevents the import of pandas in commands that only look at a source, which it would slow down."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _NoPandas(MetaPathFinder):
    """Refuses to find pandas."""

    def find_spec(self, name: str, *_: object) -> None:
        """Raise ModuleNotFoundError for pandas; leave other modules to the finders that follow."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def keep_pandas_out() -> None:
    """Let pyarrow find no pandas where it only asks whether values are a Series or a DataFrame.

    ``pyarrow.array`` and ``ChunkedArray.to_numpy`` ask so, once in a process, and import pandas to find out.
    Where pandas is needed (``from_pandas``, ``to_pandas``), pyarrow still imports it, and so may anyone else.
    A process that gives pandas' objects to ``pyarrow.array`` must not call this.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    guard = _NoPandas()
    sys.meta_path.insert(0, guard)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(guard)
