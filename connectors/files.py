"""Open whatever lies behind a path or URI as a source."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from connectors.base import Connector, ConnectorError, Source, SourceSpec
from connectors.filters import Predicate
from connectors.names import extension
from connectors.paths import identity, list_files, marked, nothing_fits
from connectors.registry import connector, connectors
from connectors.view import View, pushed

__all__ = ["identity", "open_source"]


def open_source(
    path: str,
    format: str = "auto",
    *,
    options: Mapping[str, Any] | None = None,
    filter: Predicate | None = None,
    rename: Mapping[str, str] | None = None,
    **settings: Any,
) -> Source:
    """Source over a file, folder, glob or table; local, or any URI that pyarrow or fsspec know.

    Parameters
    ----------
    path
        Relative paths start at the working directory of this call, wherever the source is read later.
    format
        A name of :func:`connectors.registry.connectors`. "auto" goes by the URI's scheme, then by what
        marks a folder, then by the endings of the files.
    options
        The format's own options, checked by its model.
    filter
        Rows to take, from :func:`connectors.filters.parse`; default: all.
    rename
        Old name -> new name, also of a field inside a struct ("metadata.language"). All else, ``filter`` too,
        goes by the new names.
    settings
        The other fields of :class:`connectors.base.SourceSpec`.

    Raises
    ------
    ConnectorError
        Nothing readable is there, several formats are, or there is no format of that name.
    pydantic.ValidationError
        An option is unknown or wrong.

    """
    found = find_connector(path, format)
    checked = found.Options.model_validate(dict(options or {}))
    asked = pushed(filter, rename or {})
    spec = SourceSpec(path, root=os.getcwd(), guessed=format == "auto", filter=asked, **settings)
    source = found.open(spec, checked)
    return View(source, path, rename or {}, filter) if filter or rename else source


def find_connector(path: str, format: str = "auto") -> Connector[Any]:
    """The format of that name, or for "auto" the one behind the path. Raises ConnectorError."""
    return connector(format) if format != "auto" else _guess(path, os.getcwd())


def _guess(path: str, root: str) -> Connector[Any]:
    known = connectors().values()
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
