"""The source of a plan: its connector, the listing of its shards, and the checks of the named columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from connectors import Listing, Source, open_source
from connectors.files import identity
from connectors.filters import parse
from connectors.foundation.messages import nearest
from connectors.registry import find_connector
from engine.core.digests import digest
from engine.core.errors import InputError
from engine.core.output_layout import output_of
from engine.core.suggestions import explain
from engine.recipe.recipe import Recipe
from engine.storage.identity_cache import IdentityCache
from operators.base import Operator
from operators.columns import has_text
from operators.cues.params import CuesParams, names_of
from operators.encode.column_forms import Form, form_of, holds_texts
from operators.encode.column_use import unsupported_type
from operators.encode.kinds import is_usable
from operators.yaml_text import inline_yaml

READ_SUFFIX = ",read:"
"""Begins the part of an identity that depends on the settings with which the bytes are read."""


def list_source(recipe: Recipe) -> tuple[Source, Listing]:
    """Open the source and list its shards. Raises ConnectorError or InputError."""
    source = open_recipe_source(recipe)
    listing, settings = source.list(), _settings(recipe)
    if settings:  # the same bytes read in another way are another content
        suffix = READ_SUFFIX + digest(settings)
        known = {path: found + suffix for path, found in listing.identities.items()}
        listing = replace(listing, identities=known)
    return source, listing


def _settings(recipe: Recipe) -> dict[str, Any]:
    """Return the keys of the recipe that decide, together with the bytes, which values are read."""
    fields = {"options", "encoding", "text_columns", "rename", "filter", "columns", "flatten", "strip"}
    found: dict[str, Any] = recipe.source.model_dump(
        mode="json", include=fields | {"missing"}, exclude_defaults=True
    )
    if "filter" in found:  # the dump makes null of every infinite number
        found["filter"] = to_jsonable_python(recipe.source.filter, inf_nan_mode="constants")
    if recipe.source.label_map:
        pairs = [[type(key).__name__, key, value] for key, value in recipe.source.label_map.items()]
        found["label_map"] = [recipe.source.label, pairs]
    return found


def published_columns(recipe: Recipe, schema: pa.Schema) -> pa.Schema:
    """Return the source columns that a version keeps, in the order of the source."""
    return pa.schema([field for field in schema if is_published(recipe, field.name)])


def is_published(recipe: Recipe, name: str) -> bool:
    """Return whether a version keeps a column of the source."""
    spec = recipe.source
    return spec.columns is None or name == spec.label or name in spec.columns or name in (spec.features or ())


def open_recipe_source(recipe: Recipe) -> Source:
    """Open the source and read only names of files. Raises ConnectorError or InputError."""
    spec = recipe.source
    cache = IdentityCache(output_of(recipe.output.path) / "identities.json", identity)
    try:
        return open_source(
            spec.path,
            spec.format,
            options=spec.options,
            filter=parse(spec.filter),
            rename=spec.rename,
            flatten=spec.flatten,
            label=spec.label,
            label_map=spec.label_map,
            encoding=spec.encoding,
            missing=spec.missing,
            strip=spec.strip,
            shard_bytes=spec.shard_bytes,
            identities=cache.identities,
            text_columns=spec.text_columns,
            skip_corrupt=spec.on_corrupt == "skip",
            max_bytes=spec.max_shard_bytes,
        )
    except ValidationError as error:
        model = find_connector(spec.path, spec.format, spec.options).Options
        raise InputError(explain(error, model, recipe.name, prefix="source.options.")) from None


def resolve_features(recipe: Recipe, schema: pa.Schema, maker: str = "") -> tuple[str, ...]:
    """Return the feature columns after checking the columns that the recipe names against the schema.

    Parameters
    ----------
    maker
        The operator that makes the features, if there is one; then no column is returned.

    Raises
    ------
    InputError
        A column does not exist, or the features include the label or a truth column.

    """
    spec, truth = recipe.source, recipe.truth
    check_columns("source.label", (spec.label,), schema)
    check_columns("source.exclude", spec.exclude, schema)
    check_columns("source.columns", spec.columns or (), schema)
    _check_truth(recipe, schema)
    check_columns("report.fields", recipe.report.fields or (), schema)
    if recipe.report.image:
        check_columns("report.image.column", (recipe.report.image.column,), schema)
    if maker and spec.features is not None:
        raise InputError(
            f"source.features: operators.{maker} makes the features of this recipe. Remove one of the two."
        )
    if maker:
        return ()
    if spec.features is None:
        kept = published_columns(recipe, schema)
        internal = (name for name in kept.names if name.startswith("_"))  # __key__, _curator_dedup_id, ...
        left_out = {spec.label, *spec.exclude, *truth.columns, *internal}
        features = tuple(field.name for field in kept if field.name not in left_out and is_usable(field.type))
        if not features:
            raise InputError(
                f"source.features: there is no column that can be a feature except the label {spec.label!r}. "
                f"The columns are: {', '.join(kept.names)}. Images become features by `embed`."
            )
        return features
    check_columns("source.features", spec.features, schema)
    forbidden = sorted({spec.label, *truth.columns}.intersection(spec.features))
    if forbidden:
        role = "the label" if forbidden[0] == spec.label else "named under `truth`, for scoring only"
        raise InputError(f"source.features: {forbidden[0]!r} is {role}; remove it from the features.")
    for name in spec.features:
        kind = schema.field(name).type
        if not is_usable(kind):
            raise InputError(
                f"source.features: {name!r} cannot be a feature: {unsupported_type(name, kind)}. "
                "Remove it from source.features."
            )
    return spec.features


def _check_truth(recipe: Recipe, schema: pa.Schema) -> None:
    """Raise InputError for a column under ``truth`` that does not exist or is the label."""
    truth, label = recipe.truth, recipe.source.label
    check_columns("truth", truth.columns, schema)
    for key, column in (("group", truth.group), ("outlier", truth.outlier)):
        if column == label:
            raise InputError(
                f"truth.{key}: {column!r} is the label (source.label), which operators read. Name another "
                "column, or remove the key."
            )


def has_scalars(schema: pa.Schema, features: Sequence[str]) -> bool:
    """Return whether any feature is a number, a boolean, a text or a date, which `encode` makes usable."""
    return any(form_of(schema.field(name).type) != Form.VECTOR for name in features)


def check_source_columns(chain: Sequence[Operator[Any]], recipe: Recipe, schema: pa.Schema) -> None:
    """Raise InputError if an operator reads a source column that is missing or a truth column.

    The same for columns of texts that hold no texts or are the label, and for columns of true groups whose
    values cannot be written as text.
    """
    for operator in chain:
        key = f"operators.{operator.name}"
        names = (*operator.source_columns, *operator.text_columns)
        check_columns(key, (*names, *operator.oracle_columns), schema)
        for name in operator.oracle_columns:
            _check_names_groups(key, name, schema.field(name).type)
        for name in operator.text_columns:
            if name == recipe.source.label:
                raise InputError(f"{key}: {name!r} is the label. Name another column of texts.")
            check_holds_texts(key, name, schema.field(name).type)
        hidden = sorted(set(recipe.truth.columns).intersection(names))
        if hidden:
            raise InputError(
                f"{key}: {hidden[0]!r} is named under `truth`, for scoring only. Name another "
                "column, or remove it from `truth`."
            )


def check_holds_texts(key: str, name: str, kind: pa.DataType) -> None:
    """Raise InputError, naming the key, if a column has another type than text."""
    if not (holds_texts(kind) or pa.types.is_null(kind)):
        raise InputError(
            f"{key}: the column {name!r} has the type {kind}, but texts are read here. Name a column of texts"
            f"{_inside(name, kind)}."
        )


def _check_names_groups(key: str, name: str, kind: pa.DataType) -> None:
    """Raise InputError, naming the key, if the values of a column cannot be the names of groups."""
    if not has_text(kind):
        raise InputError(
            f"{key}: the column {name!r} has the type {kind}, whose values cannot name groups. Name a column "
            f"of texts, numbers or dates{_inside(name, kind)}."
        )


def check_answers(recipe: Recipe, chain: Sequence[Operator[Any]]) -> None:
    """Raise InputError if `cues` names a column that the recipe excludes."""
    cues = next((one.params for one in chain if isinstance(one.params, CuesParams)), CuesParams())
    for key, answers in (("spurious", cues.spurious), ("legitimate", cues.legitimate)):
        named = {name for one in answers for name in names_of(one)}
        for name in sorted(named.intersection(recipe.source.exclude)):
            raise InputError(
                f"operators.cues.{key} names the column {name!r}, which source.exclude leaves out. Remove it "
                "from one of the two."
            )


def check_columns(key: str, names: tuple[str, ...], schema: pa.Schema) -> None:
    """Raise InputError, naming the key, if the source lacks a column."""
    known = frozenset(schema.names)
    for name in names:
        if name not in known:
            hint = _outside(name, schema) or nearest(name, schema.names)
            hint = hint or f" The columns are: {', '.join(schema.names)}."
            raise InputError(f"{key}: the source has no column {name!r}.{hint}")


def _inside(name: str, kind: pa.DataType) -> str:
    """Return the remedy for a column of structs, whose fields become columns; else nothing."""
    if not (pa.types.is_struct(kind) and kind.num_fields):
        return ""
    return f", such as '{name}.{kind.field(0).name}' with source.flatten: {inline_yaml([name])}"


def _outside(name: str, schema: pa.Schema) -> str:
    """Return the remedy for the name of a field of a struct that is not flattened; else nothing."""
    outer, dot, inner = name.partition(".")
    if not dot or outer not in schema.names or not pa.types.is_struct(schema.field(outer).type):
        return ""
    if schema.field(outer).type.get_field_index(inner) < 0:
        return ""
    return f" {outer!r} holds it as a field: set source.flatten: {inline_yaml([outer])}."
