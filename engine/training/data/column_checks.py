"""Checks of the columns of a version that a training names."""

from __future__ import annotations

import re

import pyarrow as pa

from connectors.foundation.messages import nearest
from connectors.storage import read_part_schema
from engine.core.errors import InputError
from engine.training.data.version import Version

NUMERIC = re.compile(r"(u?int|half|float|double|decimal)")
"""Beginning of the names of Arrow's numeric types."""


def check_column(version: Version, name: str, key: str) -> None:
    """Raise InputError if the version has no such column."""
    names = [str(field["name"]) for field in version.manifest["schema"]]
    if name not in names:
        hint = nearest(name, names) or f" There are: {', '.join(names)}."
        raise InputError(f"{key}: the version {version.name} has no column {name!r}.{hint}")


def check_truth(version: Version, name: str) -> None:
    """Raise InputError unless a version has a column of this name whose values can name groups."""
    check_column(version, name, "truth")
    kind = read_part_schema(version.folder / version.manifest["parts"][0]["path"]).field(name).type
    try:
        pa.array([], kind).cast(pa.string())
    except pa.ArrowNotImplementedError:
        raise InputError(
            f"truth: the column {name!r} of version {version.name} has the type {kind}, whose values name no "
            f"groups. Name a column of texts, numbers, dates or truth values."
        ) from None


def check_numeric(version: Version, target: str) -> None:
    """Raise InputError unless a version has a numeric column of this name that is not a feature."""
    check_column(version, target, "train.target")
    kinds = {str(field["name"]): str(field["type"]) for field in version.manifest["schema"]}
    if not NUMERIC.match(kinds[target]):
        raise InputError(
            f"train.target: the column {target!r} of version {version.name} has the type {kinds[target]}. A "
            f"regression predicts whole numbers, fractions or decimals."
        )
    if target in version.manifest["source"]["features"]:
        raise InputError(
            f"train.target: {target!r} is a feature of version {version.name}, so that a model would read "
            f"what it is to predict. Set source.exclude: [{target}] in the recipe and run it again."
        )


def check_inputs(version: Version, column: str) -> None:
    """Raise InputError unless a version has a column of this name, and it is not the label."""
    key = "train.params.model_params.column"
    check_column(version, column, key)
    if column == version.manifest["source"]["label"]:
        raise InputError(
            f"{key}: {column!r} is the label of version {version.name}, which the model is to predict. Name "
            f"the column with the texts or images."
        )
