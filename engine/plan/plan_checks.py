"""Checks of a recipe that planning makes: the model to train, the place of the output, names of columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from connectors.files import marked
from connectors.locations import Glob, extension, plain_place, split_glob
from connectors.registry import connectors
from engine.core.errors import InputError
from engine.core.output_layout import output_of
from engine.core.policy import current_policy
from engine.plan.chain import CONTRACT
from engine.recipe.estimators import is_estimator, missing_library
from engine.recipe.pretrained import is_packaged, is_pretrained, missing_pretrained
from engine.recipe.recipe import Recipe
from operators.base import ROW_ID, Operator, OperatorError
from operators.factories import check_allowed
from operators.models.spec import PRETRAINED
from operators.yaml_text import inline_yaml

OUTPUT_FILES = (
    "versions/v0/data/part-00000.parquet",
    "versions/v0/manifest.json",
    "versions/v0/README.md",
    "store/0/part-00000.parquet",
    "reports/v0.html",
    "models/0/cvar.png",
    "identities.json",
    "CURRENT",
)
"""Files of the kinds that an output holds, relative to it."""


def check_trained_model(recipe: Recipe) -> None:
    """Raise InputError if the model to train would import a module that the operator does not allow, or needs
    a library that is not installed.

    Otherwise the training would say so when the version is published.
    """
    if recipe.train is None:
        return
    _check_model(recipe.train.params.get("model"), "train.params.model")
    search = recipe.train.search
    for model in search.space.get("model", []) if search is not None else []:
        _check_model(model, "train.search.space.model")


def _check_model(model: object, key: str) -> None:
    """Raise InputError if one model cannot be trained. ``key``: where the recipe names it."""
    if not isinstance(model, str):
        return
    if is_estimator(model):
        if text := missing_library(model):
            raise InputError(text)
    elif is_pretrained(model):
        if not is_packaged(model):
            current_policy().check_path(key, model.removeprefix(PRETRAINED))
        if text := missing_pretrained(model):
            raise InputError(text)
    elif ":" in model:
        try:
            check_allowed(model, key)
        except OperatorError as error:
            raise InputError(str(error)) from None


def check_output_apart(recipe: Recipe) -> None:
    """Raise InputError if the source would also read the files of the output, which grows with every run."""
    source, output = recipe.source.path, recipe.output.path
    inner = _path_within(split_glob(source)[0], output)
    if inner is None or any(part[:1] in (".", "_") for part in inner.split("/")):  # listings leave these out
        return
    read = _names_read(recipe, [f"{inner}/{name}".lstrip("/") for name in OUTPUT_FILES])
    if read:
        raise InputError(
            f"output.path: {output} lies in what source.path reads, {source}: the next run would read files "
            f"that this one writes, such as {read[0]}. Choose an output.path beside the source, or a pattern "
            f"in source.path that matches the data alone."
        )


def _path_within(folder: str, output: str) -> str | None:
    """Return the path of an output relative to a folder that it lies in; None for one elsewhere."""
    base = plain_place(folder if "://" in folder else os.path.abspath(os.path.expanduser(folder)))
    place = plain_place(output if "://" in output else str(output_of(output)))
    if base is None or place is None or not f"{place}/".startswith(f"{base.rstrip('/')}/"):
        return None
    return place[len(base) :].strip("/")


def _names_read(recipe: Recipe, names: Sequence[str]) -> list[str]:
    """Return those names, relative to the source's folder, that a listing of the source would take."""
    path, format, known = recipe.source.path, recipe.source.format, connectors()
    pattern = split_glob(path)[1]
    if pattern:
        rule = Glob(pattern)
        names = [name for name in names if rule.matches(name)]
    elif format == "auto" and any(one.markers and marked(path, one.markers) for one in known.values()):
        return []  # a table, which says itself what its files are
    if pattern and format != "auto":
        return [*names]
    used = known.values() if format == "auto" else [known[format]] if format in known else []
    endings = {ending for one in used for ending in one.extensions}
    return [name for name in names if extension(name, endings)]


class TakenNameError(InputError):
    """A source column has the name of a column that Rowsieve adds."""


def check_contract_names(recipe: Recipe, schema: pa.Schema, chain: Sequence[Operator[Any]]) -> None:
    """Raise TakenNameError if a source column has the name of a column that Rowsieve adds."""
    prefix = recipe.output.prefix
    ours = [*CONTRACT, *(field for operator in chain for field in operator.publishes)]
    taken = [prefix + field.name for field in ours if prefix + field.name in schema.names]
    if taken:
        other = "rowsieve_" if prefix != "rowsieve_" else "rowsieve2_"
        raise TakenNameError(
            f"The source already has a column named {taken[0]!r}, which Rowsieve adds. Keep both "
            f"with --set output.prefix={other}, or curate(..., prefix='{other}'): the added columns are "
            f"then {other}row_id, {other}group and so on."
        )


def check_internal_names(chain: Sequence[Operator[Any]]) -> None:
    """Raise InputError if an operator is handed a source column and another column of the same name."""
    for operator in chain:
        taken = {ROW_ID, *operator.requires}.intersection(operator.source_columns)
        if taken:
            name = sorted(taken)[0]
            raise InputError(
                f"operators.{operator.name}: the source column {name!r} has the name of a column that "
                f"Rowsieve hands to this operator. Give it another name in the recipe, "
                f"{inline_yaml({'source': {'rename': {name: f'source_{name}'}}})}, or leave it out with "
                f"{inline_yaml({'source': {'exclude': [name]}})}."
            )
