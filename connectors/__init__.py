"""Sources, which read data as Arrow tables, and sinks, which write them. They are independent of methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from connectors.base import ConnectorError, Listing, Source, SourceShard
    from connectors.registry import open_source

__all__ = ["ConnectorError", "Listing", "Source", "SourceShard", "open_source"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that a program which only redacts text starts without pyarrow."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'connectors' has no attribute {name!r}")
    home = "connectors.registry" if name == "open_source" else "connectors.base"
    return getattr(import_module(home), name)
