"""The JSON schema of a recipe, with every known operator's parameters, for editors and checks."""

from __future__ import annotations

from typing import Any

from engine.recipe import Recipe
from operators.registry import operator_class, operator_names


def recipe_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a recipe."""
    schema = Recipe.model_json_schema()
    definitions = schema.setdefault("$defs", {})
    properties = {}
    for name in operator_names():
        if name == "ingest":
            continue
        params = operator_class(name).Params.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(params.pop("$defs", {}))
        properties[name] = {"anyOf": [params, {"type": "null"}]}
    operators = schema["properties"]["operators"]
    operators["properties"] = properties
    operators["additionalProperties"] = False
    return schema
