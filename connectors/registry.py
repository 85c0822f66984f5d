"""Formats by name, built in and from other packages, and the source behind a path."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from types import MappingProxyType
from typing import Any

from connectors.base import Connector, ConnectorError, Source, SourceSpec
from connectors.cleaned import Cleaned
from connectors.files import list_files, marked, nothing_fits
from connectors.filters import Predicate
from connectors.flattened import Flattened
from connectors.foundation.immutable import frozen
from connectors.foundation.installed import entry_points
from connectors.foundation.messages import nearest
from connectors.locations import extension
from connectors.policy import current_policy
from connectors.text_encoding import UTF8, UnknownEncodingError, find_encoding
from connectors.view import View, pushed

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
    """Return every format by its name: the built-in ones, then plugins.

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
    """Return the format of that name. Raises ConnectorError with the nearest name."""
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
    return entry_points(group=ENTRY_POINTS)


def _load(point: EntryPoint) -> Connector[Any] | None:
    why = ""
    try:
        kind = point.load()
        if not (isinstance(kind, type) and issubclass(kind, Connector)):
            why = "is not a subclass of connectors.base.Connector"
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


def open_source(
    path: str,
    format: str = "auto",
    *,
    options: Mapping[str, Any] | None = None,
    filter: Predicate | None = None,
    rename: Mapping[str, str] | None = None,
    flatten: Sequence[str] = (),
    label: str = "",
    label_map: Mapping[str | int | bool, str | int | bool | None] | None = None,
    **settings: Any,
) -> Source:
    """Return the source over a file, folder, glob or table; local, or any URI that pyarrow or fsspec know.

    Parameters
    ----------
    path : relative paths start at the working directory of this call, wherever the source is read later.
    format : a name of :func:`connectors.registry.connectors`. "auto" goes by the URI's scheme, then by what
        marks a folder, then by the endings of the files.
    options : the format's own options, checked by its model.
    filter : rows to take, from :func:`connectors.filters.parse`; default: all.
    rename : old name -> new name, also of a field inside a struct ("metadata.language"). All else, ``filter``
        too, goes by the new names.
    flatten : struct columns, by their new names, whose fields become columns: "metadata.language".
    label, label_map : a column, and other values for some of its own; ``filter`` goes by these.
    settings : the other fields of :class:`connectors.base.SourceSpec`. ``missing`` and ``strip`` hold for the
        text columns of every format.

    Raises
    ------
    ConnectorError
        Nothing readable is there, several formats are, or there is no format of that name.
    pydantic.ValidationError
        An option is unknown or wrong.
    """
    found = find_connector(path, format, options)
    checked = found.Options.model_validate(dict(options or {}))
    settings["encoding"] = _encoding(settings.get("encoding", UTF8), found)
    _check_text_columns(settings.get("text_columns", ()), found, flatten)
    names, missing, strip = frozen(rename or {}), settings.get("missing", ()), bool(settings.get("strip"))
    stored = {new: old for old, new in names.items()}
    settings["text_columns"] = tuple(stored.get(name, name) for name in settings.get("text_columns", ()))
    asked = pushed(filter, names, texts=not (missing or strip), mapped=label if label_map else "")
    spec = SourceSpec(
        path, root=os.getcwd(), guessed=format == "auto", filter=asked, renamed=tuple(names), **settings
    )
    source = found.open(spec, checked)
    if not (flatten or missing or strip or label_map):
        return View(source, path, names, filter) if filter or names else source
    source = View(source, path, names, None) if names else source
    source = Flattened(source, path, tuple(flatten)) if flatten else source
    if missing or strip or label_map:
        source = Cleaned(source, path, tuple(missing), strip, label, frozen(label_map or {}))
    return View(source, path, frozen({}), filter) if filter else source


def _encoding(name: str, found: Connector[Any]) -> str:
    """Return Python's name of ``source.encoding``. Raises ConnectorError where the format has no
    use for it.
    """
    try:
        known = find_encoding(name)
    except UnknownEncodingError as error:
        raise ConnectorError(f"source.encoding: {error}") from None
    if known != UTF8 and not found.has_encoding:
        raise ConnectorError(
            f"source.encoding: files of the format {found.name} say themselves how texts are encoded. Leave "
            f"out the key."
        )
    return known


def _check_text_columns(names: Sequence[str], found: Connector[Any], flatten: Sequence[str]) -> None:
    """Raise ConnectorError for a column of ``source.text_columns`` whose type is stated, not guessed."""
    if names and not found.has_text_columns:
        raise ConnectorError(
            f"source.text_columns: {names[0]!r}: sources of the format {found.name} state the types of their "
            f"columns. Leave out the key, and write the column as text where it is made, if it is to be text."
        )
    for name in names:
        struct = next((struct for struct in flatten if name.startswith(f"{struct}.")), None)
        if struct is not None:
            raise ConnectorError(
                f"source.text_columns: {name!r} is a field of the struct {struct!r} (source.flatten), and "
                f"the file states its type. Take the name out of the key, and write the field as text where "
                f"it is made, if it is to be text."
            )


def find_connector(
    path: str, format: str = "auto", options: Mapping[str, Any] | None = None
) -> Connector[Any]:
    """Return the format of that name, or for "auto" the one behind the path.

    Raises ConnectorError, also for a path that may not be opened, which is none where ``options`` name a
    catalog that knows it.
    """
    if format != "auto":
        found = connector(format)
        if not found.names_table(options or {}):
            current_policy().check_uri(path, known=found.schemes)
        return found
    known = list(connectors().values())
    current_policy().check_uri(path, known={scheme for one in known for scheme in one.schemes})
    return _guess(path, os.getcwd(), known)


def _guess(path: str, root: str, known: Sequence[Connector[Any]]) -> Connector[Any]:
    scheme = path.partition("://")[0] if "://" in path else ""
    for found in known:
        if scheme in found.schemes:
            return found
    for found in known:
        if found.markers and marked(path, found.markers, root):
            return found
    endings = {ending: found for found in known for ending in found.extensions}
    names = list_files(path, root).names
    behind = {endings[end].name: endings[end] for name in names if (end := extension(name, endings))}
    if not behind:
        raise nothing_fits(path, names, "readable")
    if len(behind) > 1:
        raise ConnectorError(
            f"{path} holds several formats ({', '.join(sorted(behind))}): say which one to read with "
            f"source.format."
        )
    return next(iter(behind.values()))
