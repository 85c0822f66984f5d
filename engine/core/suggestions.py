"""Messages for validation errors: the key, the problem, and the nearest known name."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from connectors.foundation.messages import nearest, shorten

TAG = re.compile(r"<(\w+)>")
"""Tag of one kind of value among several, which pydantic puts among the keys: a model's name, or a word."""


def explain(error: ValidationError, model: type[BaseModel], place: str, prefix: str = "") -> str:
    """Return one line for each fault of a recipe, or of an operator's parameters under ``prefix``."""
    lines = []
    for fault in error.errors(include_url=False):
        keys = [str(key) for key in fault["loc"]]
        dotted = (prefix + ".".join(key for key in keys if not TAG.fullmatch(key))).rstrip(". ")
        if fault["type"] == "extra_forbidden":
            siblings = list(_model_at(model, keys[:-1]).model_fields)
            text = "unknown key." + (nearest(keys[-1], siblings) or f" Known keys: {', '.join(siblings)}.")
        elif fault["type"] == "missing":
            text = "is required."
        elif fault["type"] in ("enum", "literal_error"):
            text = f"{fault['msg']}; got {_short(fault['input'])}.{_nearest_value(fault)}"
        elif fault["type"] in ("tuple_type", "list_type"):
            text = f"takes a list, such as [a, b]; got {_short(fault['input'])}."
        elif fault["type"] == "too_short":
            least = fault["ctx"]["min_length"]
            entries = "entry" if least == 1 else "entries"
            text = f"needs at least {least} {entries}; got {_short(fault['input'])}."
        elif fault["type"] == "value_error":
            text = _rule_text(fault)
        else:
            text = f"{fault['msg']}; got {_short(fault['input'])}."
        if text.startswith((f"{dotted}.", f"{dotted}:")):  # a rule of a section names its key itself
            dotted = ""
        lines.append(": ".join(part for part in (place, dotted, text) if part))
    return "\n".join(lines)


def _rule_text(fault: ErrorDetails) -> str:
    """Return the words of a validator of ours, with the value where it is a single one and not named yet."""
    text, value = str(fault["ctx"]["error"]), _short(fault["input"])
    if not isinstance(fault["input"], (Mapping, BaseModel)) and value not in text:
        text = f"{text.removesuffix('.')}; got {value}"
    return text if text.endswith((".", "?")) else f"{text}."


def _nearest_value(fault: ErrorDetails) -> str:
    """Return the nearest of the values that pydantic names in quotes."""
    known = re.findall(r"'([^']*)'", str(fault.get("ctx", {}).get("expected", "")))
    return nearest(str(fault["input"]), known)


def _short(value: Any) -> str:
    return shorten(value, 60)


def _model_at(model: type[BaseModel], keys: list[str]) -> type[BaseModel]:
    tagged: dict[str, type[BaseModel]] = {}
    for key in keys:
        field = model.model_fields.get(key)
        if field:
            tagged = {found.__name__: found for found in _models_in(field.annotation)}
            model = next(iter(tagged.values()), model) if _is_model(field.annotation) else model
        elif tag := TAG.fullmatch(key):
            model = tagged.get(tag[1], model)
    return model


def _is_model(annotation: Any) -> bool:
    """Return whether the value is a model, or None or another value."""
    if get_origin(annotation) in (Union, types.UnionType):
        return any(map(_is_model, get_args(annotation)))
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the models within an annotation, also those of items of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in _models_in(part)]
