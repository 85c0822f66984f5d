"""Names to formats: the built-in ones, and those of other packages by entry point."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any

from connectors.base import Connector, ConnectorError
from connectors.schema import nearest

ENTRY_POINTS = "rowsieve.sources"
BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "parquet": "connectors.parquet_source:Parquet",
        "csv": "connectors.csv_source:Csv",
        "jsonl": "connectors.jsonl_source:Jsonl",
        "arrow": "connectors.arrow_source:Arrow",
        "huggingface": "connectors.huggingface_source:HuggingFace",
        "images": "connectors.image_source:Images",
        "webdataset": "connectors.webdataset_source:WebDataset",
        "lance": "connectors.tables.lance:Lance",
        "delta": "connectors.tables.delta:Delta",
        "iceberg": "connectors.tables.iceberg:Iceberg",
        "sql": "connectors.tables.sql:Sql",
    }
)
_log = logging.getLogger("rowsieve")


def connectors() -> dict[str, Connector[Any]]:
    """Every format by its name: the built-in ones, then plugins.

    A plugin that does not load, is no :class:`connectors.base.Connector`, or has a name that is taken is
    named in a warning and left out.
    """
    found = {name: _built_in(name) for name in BUILT_IN}
    for point in _plugins():
        plugin = _load(point)
        if plugin is None:
            continue
        if point.name in found:
            _skip(point, f"has the name of another format, {type(found[point.name]).__qualname__}")
            continue
        found[point.name] = plugin
    return found


def connector(name: str) -> Connector[Any]:
    """The format of that name. Raises ConnectorError with the nearest name."""
    if name in BUILT_IN:
        return _built_in(name)
    known = connectors()
    if name not in known:
        hint = nearest(name, list(known)) or f" Known formats: auto, {', '.join(known)}."
        raise ConnectorError(f"source.format: there is no format {name!r}.{hint}")
    return known[name]


@cache
def _built_in(name: str) -> Connector[Any]:
    module, _, attribute = BUILT_IN[name].partition(":")
    kind: type[Connector[Any]] = getattr(import_module(module), attribute)
    return kind()


def _plugins() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=ENTRY_POINTS))


def _load(point: EntryPoint) -> Connector[Any] | None:
    why = ""
    try:
        kind = point.load()
        if not (isinstance(kind, type) and issubclass(kind, Connector)):
            why = "is no subclass of connectors.base.Connector"
        elif getattr(kind, "name", None) != point.name:
            why = f"names itself {getattr(kind, 'name', None)!r}, not {point.name!r}"
        else:
            return kind()
    except Exception as error:
        why = f"does not load: {type(error).__name__}: {error}"
    _skip(point, why)
    return None


def _skip(point: EntryPoint, why: str) -> None:
    _log.warning("The source plugin %s (%s) %s; it is skipped.", point.name, point.value, why)
