"""The JSON schema of a recipe, with the parameters of operators and the options of formats, for editors."""

from __future__ import annotations

from typing import Any

from connectors.registry import connectors
from engine.recipe.recipe import Recipe
from operators.registry import operator_class, operator_names


def recipe_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a recipe."""
    schema = Recipe.model_json_schema()
    definitions = schema.setdefault("$defs", {})
    properties = {}
    for name in operator_names():
        if name == "ingest":
            continue
        kind = operator_class(name)
        models = dict.fromkeys(found.Params for found in kind.variants().values()) or [kind.Params]
        schemas = [model.model_json_schema(ref_template="#/$defs/{model}") for model in models]
        for found in schemas:
            definitions.update(found.pop("$defs", {}))
        properties[name] = {"anyOf": [*schemas, {"type": "null"}]}
    operators = schema["properties"]["operators"]
    operators["properties"] = properties
    operators["additionalProperties"] = False
    _add_formats(definitions["SourceSection"]["properties"])
    return schema


def _add_formats(source: dict[str, Any]) -> None:
    """Add the names and options of the known formats to the schema of ``source``, in place."""
    known = connectors()
    source["format"]["enum"] = ["auto", *known]
    models = dict.fromkeys(found.Options for found in known.values())
    source["options"] = {
        "anyOf": [model.model_json_schema(ref_template="#/$defs/{model}") for model in models],
        "description": source["options"]["description"],
    }
