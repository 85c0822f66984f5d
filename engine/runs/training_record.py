"""The record of the training that a recipe's section ``train`` asks for: ``runs/<version>.train.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.storage import Place
from engine.core.json_files import read_json


def training_file(output: Place, version: str) -> Place:
    """Return the path of the record of a version's training."""
    return output / "runs" / f"{version}.train.json"


def read_training(output: Place, version: str) -> dict[str, Any] | None:
    """Return the record of a version's training; None if there is none that can be read."""
    try:
        found: dict[str, Any] = read_json(training_file(output, version))
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
