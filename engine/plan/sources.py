"""From a recipe's `source` section to a connector, a frozen listing and the feature columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from connectors import Listing, Source, open_source
from connectors.files import identity
from connectors.filters import parse
from connectors.registry import find_connector
from engine.core.digests import digest
from engine.core.errors import InputError
from engine.core.output_layout import output_of
from engine.core.suggestions import explain, nearest
from engine.recipe.recipe import Recipe
from engine.storage.identity_cache import IdentityCache
from operators.base import Operator
from operators.ingest.kernel import default_features


def list_source(recipe: Recipe) -> tuple[Source, Listing]:
    """Open the source and freeze its shards. Raises ConnectorError or InputError."""
    source = open_recipe_source(recipe)
    listing, settings = source.list(), _settings(recipe)
    if settings:  # what is read in another way is something else, though its bytes are the same
        suffix = f",read:{digest(settings)}"
        known = {path: found + suffix for path, found in listing.identities.items()}
        listing = replace(listing, identities=known)
    return source, listing


def _settings(recipe: Recipe) -> dict[str, Any]:
    """What of the recipe decides, beside the bytes, which values are read."""
    fields = {"options", "text_columns", "rename", "filter", "columns"}
    found: dict[str, Any] = recipe.source.model_dump(mode="json", include=fields, exclude_defaults=True)
    return found


def published_columns(recipe: Recipe, schema: pa.Schema) -> pa.Schema:
    """Source columns that a version keeps, in the source's order."""
    spec = recipe.source
    if spec.columns is None:
        return schema
    kept = {spec.label, *spec.columns, *(spec.features or ())}
    return pa.schema([field for field in schema if field.name in kept])


def open_recipe_source(recipe: Recipe) -> Source:
    """Open the source; nothing of it is read but names. Raises ConnectorError or InputError."""
    spec = recipe.source
    cache = IdentityCache(output_of(recipe.output.path) / "identities.json", identity)
    try:
        return open_source(
            spec.path,
            spec.format,
            options=spec.options,
            filter=parse(spec.filter),
            rename=spec.rename,
            shard_bytes=spec.shard_bytes,
            identities=cache.identities,
            text_columns=spec.text_columns,
            skip_corrupt=spec.on_corrupt == "skip",
            max_bytes=spec.max_shard_bytes,
        )
    except ValidationError as error:
        model = find_connector(spec.path, spec.format).Options
        raise InputError(explain(error, model, recipe.name, prefix="source.options.")) from None


def resolve_features(recipe: Recipe, schema: pa.Schema, maker: str = "") -> tuple[str, ...]:
    """The feature columns, checked against the schema; none where an operator makes the features.

    ``maker`` names that operator. Raises InputError.
    """
    spec, truth = recipe.source, recipe.truth
    _check_columns("source.label", (spec.label,), schema)
    _check_columns("source.exclude", spec.exclude, schema)
    _check_columns("source.columns", spec.columns or (), schema)
    _check_columns("truth", truth.columns, schema)
    _check_columns("report.fields", recipe.report.fields or (), schema)
    if recipe.report.image:
        _check_columns("report.image.column", (recipe.report.image.column,), schema)
    if maker and spec.features is not None:
        raise InputError(
            f"source.features: operators.{maker} makes the features of this recipe. Remove one of the two."
        )
    if maker:
        return ()
    if spec.features is None:
        kept = published_columns(recipe, schema)
        internal = (name for name in kept.names if name.startswith("_"))  # __key__, _curator_dedup_id, ...
        features = default_features(kept, {spec.label, *spec.exclude, *truth.columns, *internal})
        if not features:
            raise InputError(
                f"source.features: no numeric or vector column is left beside the label {spec.label!r}. "
                f"The columns are: {', '.join(kept.names)}. Text and images become features by `embed`."
            )
        return features
    _check_columns("source.features", spec.features, schema)
    forbidden = sorted({spec.label, *truth.columns}.intersection(spec.features))
    if forbidden:
        role = "the label" if forbidden[0] == spec.label else "named under `truth`, for scoring only"
        raise InputError(f"source.features: {forbidden[0]!r} is {role}; remove it from the features.")
    return spec.features


def check_source_columns(chain: Sequence[Operator[Any]], recipe: Recipe, schema: pa.Schema) -> None:
    """Every operator's source columns are there and are no truth. Raises InputError."""
    for operator in chain:
        key = f"operators.{operator.name}"
        _check_columns(key, operator.source_columns, schema)
        hidden = sorted(set(recipe.truth.columns).intersection(operator.source_columns))
        if hidden:
            raise InputError(f"{key}: {hidden[0]!r} is named under `truth`, for scoring only.")


def _check_columns(key: str, names: tuple[str, ...], schema: pa.Schema) -> None:
    for name in names:
        if name not in schema.names:
            hint = nearest(name, schema.names) or f" The columns are: {', '.join(schema.names)}."
            raise InputError(f"{key}: the source has no column {name!r}.{hint}")
