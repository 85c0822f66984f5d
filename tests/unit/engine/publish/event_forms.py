"""Checks events of OpenLineage against the client's classes, which are generated from the JSON schemas.

They are of the client's release, and installed with it. `published_schemas.py` checks against the schemas
themselves, where a checkout of OpenLineage's repository is at hand.
"""

from __future__ import annotations

import importlib
import re
import types
import typing
from enum import Enum
from typing import Any

import attr


def build_event(event: dict[str, Any]) -> Any:
    """Build a run event and all that it holds anew. Raises TypeError or ValueError naming the key at fault.

    At every level, a key that the schema does not have, a required one that is missing and a value of another
    type are errors. A facet is built by the class that its ``_schemaURL`` names, of the same release.
    """
    return _build(event, importlib.import_module("openlineage.client.event_v2").RunEvent, "event")


def _build(value: Any, kind: Any, place: str) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        (kind,) = (one for one in inner if one is not type(None))
        return _build(value, kind, place)
    if origin is list:
        _check(isinstance(value, list), value, kind, place)
        return [_build(entry, inner[0], f"{place}[{index}]") for index, entry in enumerate(value)]
    if origin is dict:
        _check(isinstance(value, dict), value, kind, place)
        return {key: _build(entry, inner[1], f"{place}.{key}") for key, entry in value.items()}
    if attr.has(kind):
        return _build_object(value, kind, place)
    if issubclass(kind, Enum):
        return kind(value)
    types_of = (int, float) if kind is float else kind
    _check(isinstance(value, types_of) and (kind is bool or not isinstance(value, bool)), value, kind, place)
    return value


def _build_object(value: Any, kind: Any, place: str) -> Any:
    _check(isinstance(value, dict), value, kind, place)
    url = value.get("_schemaURL")
    if url is not None:
        file, _, name = url.rpartition("/$defs/")
        module = re.sub(r"(?<!^)(?=[A-Z])", "_", file.rpartition("/")[2].removesuffix("Facet.json#")).lower()
        found = getattr(importlib.import_module(f"openlineage.client.generated.{module}"), name)
        _check(issubclass(found, kind) and found._get_schema() == url, url, kind, place)
        kind = found
    attr.resolve_types(kind)
    fields = {field.name: field for field in attr.fields(kind)}
    unknown = value.keys() - fields.keys()
    _check(not unknown, unknown, kind, place)
    made = {
        fields[key].alias: _build(entry, fields[key].type, f"{place}.{key}") for key, entry in value.items()
    }
    return kind(
        **{field.alias: made[field.alias] for field in fields.values() if field.init and field.alias in made}
    )


def _check(condition: bool, value: Any, kind: Any, place: str) -> None:
    if not condition:
        raise TypeError(f"{place}: {value!r} does not fit {kind}")
