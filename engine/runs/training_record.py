"""The record of the training that a recipe's section ``train`` asks for: ``runs/<version>.train.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from connectors.storage import Place
from engine.core.json_files import read_json


class _Registered(TypedDict):
    name: str
    version: str | int


class _Verdict(TypedDict):
    promoted: bool
    reason: str


class _Untrained(TypedDict):
    key: str
    trained: bool
    why: str


class _Trained(_Untrained):
    trainer: str
    registered: _Registered | None
    promoted: _Verdict | None


_UNTRAINED, _TRAINED = TypeAdapter(_Untrained), TypeAdapter(_Trained)
"""Forms of a record; anybody may have changed it."""


def training_file(output: Place, version: str) -> Place:
    """Return the path of the record of a version's training."""
    return output / "runs" / f"{version}.train.json"


def read_training(output: Place, version: str) -> dict[str, Any] | None:
    """Return the record of a version's training; None if there is none that can be read."""
    try:
        found: dict[str, Any] = read_json(training_file(output, version))
        _UNTRAINED.validate_python(found, strict=True)
        if found["trained"]:
            _TRAINED.validate_python(found, strict=True)
    except (OSError, ValueError):
        return None
    return found


def describe_training(record: Mapping[str, Any]) -> str:
    """Describe a record in one line."""
    if not record["trained"]:
        return f"not trained: {record['why']}"
    text = f"trained {record['trainer']} ({record['why']})"
    if record["registered"]:
        text += f", registered {record['registered']['name']} version {record['registered']['version']}"
    if record["promoted"]:
        verb = "is champion now" if record["promoted"]["promoted"] else "is held back"
        text += f", {verb}: {record['promoted']['reason']}"
    return text
