"""The source of a prediction: opened as the source of the training was read, and checked for columns.

A model keeps the settings by which the source of its training was read (``ServedModel.reading``): options,
encoding, renamed and flattened columns. Options apply only to a source of the same format.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from connectors import ConnectorError, Source, open_source
from connectors.base import Connector, Listing
from connectors.foundation.messages import nearest
from connectors.foundation.remedies import without_recipe
from connectors.registry import find_connector
from connectors.text_encoding import UTF8
from engine.core.errors import InputError
from engine.core.suggestions import explain
from engine.training.serving.pyfunc import ServedModel


@dataclass(frozen=True)
class SourceRequest:
    """The rows to predict, as the caller names them."""

    path: str
    """File, folder, glob or URI."""
    format: str = "auto"
    """Format of the source, as ``rowsieve sources`` lists them; "auto" to recognise it."""
    options: Mapping[str, Any] | None = None
    """Options of the format, such as ``{"delimiter": ";"}``; None: those of the training, if its source had
    the same format."""
    encoding: str | None = None
    """Encoding of text files; None: that of the training, if its source was text."""
    keep: Sequence[str] = ()
    """Columns of the source to put before the predictions."""
    allow_missing: Sequence[str] = ()
    """Columns of the model that the source may lack. Rows are then predicted as if all values of the column
    were missing."""


@dataclass(frozen=True)
class OpenedSource:
    """A source that was opened and listed, the decimal point of the numbers in its texts, and the types that
    the model's columns have where they are read as text."""

    source: Source
    listing: Listing
    decimal: str = "."
    types: Mapping[str, pa.DataType] = field(default_factory=dict)


def open_for_model(request: SourceRequest, served: ServedModel) -> OpenedSource:
    """Open and list the source of a prediction.

    The model's columns of a CSV file are read as text, so that a value that is not of the column's type is a
    fault of its row and not of the file.

    Raises
    ------
    InputError
        The source cannot be read, or lacks a column of the model or one to keep.

    """
    if served.schema is None:
        raise InputError(
            "The model was registered by an earlier version of Rowsieve and does not know the types of its "
            "columns. Register it again with `rowsieve retrain`."
        )
    try:
        opened = _open_and_list(request, served, served.schema)
    except ConnectorError as error:
        raise InputError(without_recipe(str(error))) from None
    except ValidationError as error:
        known = _connector(request, served).Options
        raise InputError(explain(error, known, "rowsieve predict", prefix="--option ")) from None
    names = opened.listing.schema.names
    for name in request.keep:
        if name in served.answers:
            raise InputError(f"--keep {name}: a column of the predictions has this name. Leave it out.")
        if name not in names:
            raise InputError(f"{request.path} has no column {name!r} (--keep).{_suggestion(name, names)}")
    _check_missing(request, names, served)
    return opened


def _suggestion(name: str, names: Sequence[str]) -> str:
    """Return the nearest name as a sentence, or the list of all names."""
    return nearest(name, names) or f" The columns are: {', '.join(names)}."


def _check_missing(request: SourceRequest, names: Sequence[str], served: ServedModel) -> None:
    """Raise InputError for a column of the model that the source lacks, unless the request allows it."""
    path = request.path
    for name in request.allow_missing:
        if name not in served.names:
            suggestion = _suggestion(name, served.names)
            raise InputError(f"--allow-missing {name}: the model has no such column.{suggestion}")
        if name not in names and name not in served.optional:
            raise InputError(
                f"{path} has no column {name!r}, and --allow-missing cannot help: the model has no rule for "
                f"missing values of this column. Add the column, or train with missing values in it."
            )
    missing = [name for name in served.names if name not in {*names, *request.allow_missing}]
    if not missing:
        return
    text = f"{path} has no column {missing[0]!r} (the model reads it)."
    if missing[1:]:
        text += f" It lacks {', '.join(map(repr, missing[1:6]))}{', ...' * (len(missing) > 6)} too."
    text += _suggestion(missing[0], names)
    if not served.reading:
        text += (
            " The model does not say how the source that it was trained on was read, since an earlier "
            "version of Rowsieve has registered it. Register it again, or say how this source is read, with "
            "--option 'delimiter=;'."
        )
    if missing[0] in served.optional:
        option = f"--allow-missing {shlex.quote(missing[0])}"
        text += f" To predict as if all its values were missing, give {option}."
    raise InputError(text)


def _open_and_list(request: SourceRequest, served: ServedModel, schema: pa.Schema) -> OpenedSource:
    """Open and list the source. Raises ConnectorError, and ValidationError for an option."""
    path, format = request.path, request.format
    connector, given = _connector(request, served), _settings(request, served)
    opened = open_source(path, format, **given)
    if connector.name != "csv":
        return OpenedSource(opened, opened.list())
    decimal = str(given["options"].get("decimal", "."))
    scalars = {one.name: one.type for one in schema if not pa.types.is_nested(one.type)}
    stored = {new: old for old, new in given.get("rename", {}).items()}
    try:
        found = opened.list().schema
    except ConnectorError as error:  # one word in a column of numbers, for example
        opened = open_source(path, format, **given, text_columns=tuple(stored.get(n, n) for n in scalars))
        try:
            return OpenedSource(opened, opened.list(), decimal, scalars)
        except ConnectorError:
            raise error from None
    texts = tuple(stored.get(name, name) for name in scalars if name in found.names)
    opened = open_source(path, format, **given, text_columns=texts)
    types = {name: _widened(scalars[name], found.field(name).type) for name in scalars if name in found.names}
    return OpenedSource(opened, opened.list(), decimal, types)


def _widened(kind: pa.DataType, found: pa.DataType) -> pa.DataType:
    """Return the type of a model's column, or that of the source where only this one holds fractions."""
    return found if pa.types.is_integer(kind) and pa.types.is_floating(found) else kind


def _connector(request: SourceRequest, served: ServedModel) -> Connector[Any]:
    options = request.options if request.options is not None else served.reading.get("options")
    return find_connector(request.path, request.format, options)


def _settings(request: SourceRequest, served: ServedModel) -> dict[str, Any]:
    """Return the settings of the source: those of the request, else those of the model's training."""
    reading, connector = served.reading, _connector(request, served)
    options, encoding = request.options, request.encoding
    if options is None and reading.get("format") == connector.name:
        options = reading.get("options")
    if encoding is None:
        encoding = reading.get("encoding", UTF8) if connector.has_encoding else UTF8
    given: dict[str, Any] = {"options": dict(options or {}), "encoding": encoding}
    return given | _applicable_renames(request, given, reading)


def _applicable_renames(
    request: SourceRequest, given: Mapping[str, Any], reading: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the keys ``rename`` and ``flatten`` of the recipe, for the columns that this source has."""
    rename, flatten = reading.get("rename") or {}, reading.get("flatten") or []
    if not rename and not flatten:
        return {}
    try:
        stored = open_source(request.path, request.format, **given).list().schema.names
    except ConnectorError:  # two columns of one name, for example, which are renamed
        return {"rename": rename, "flatten": flatten}
    renamed = {old: new for old, new in rename.items() if old.split(".")[0] in stored and new not in stored}
    shown = {*stored, *renamed.values()}
    return {"rename": renamed, "flatten": tuple(name for name in flatten if name.split(".")[0] in shown)}
