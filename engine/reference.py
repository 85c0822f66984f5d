"""Reference pages written from the code's own models: `python -m engine.reference` brings them up to date."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

ROOT = Path(__file__).resolve().parents[1]


def key_table(model: type[BaseModel]) -> list[str]:
    """Markdown table of a model's keys: type, default, meaning. Empty for a model without keys."""
    if not model.model_fields:
        return []
    shapes = model.model_json_schema().get("properties", {})
    rows = [
        (f"`{name}`", type_text(shapes.get(name, {})), default_text(field), field.description or "")
        for name, field in model.model_fields.items()
    ]
    return table(("key", "type", "default", "meaning"), rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines]


def type_text(shape: dict[str, Any]) -> str:
    """A JSON schema as a few words."""
    if "enum" in shape:
        return ", ".join(json.dumps(value) for value in shape["enum"])
    if "const" in shape:
        return json.dumps(shape["const"])
    if "$ref" in shape:
        return str(shape["$ref"]).rpartition("/")[2]
    if "anyOf" in shape:
        return " or ".join(dict.fromkeys(type_text(part) for part in shape["anyOf"]))
    if shape.get("type") == "array" and "items" in shape:
        return f"list of {type_text(shape['items'])}"
    return str(shape.get("type", "any"))


def default_text(field: FieldInfo) -> str:
    """A field's default as JSON."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return f"`{json.dumps(value.model_dump() if isinstance(value, BaseModel) else value)}`"


def connectors_page() -> str:
    """Every source format with its options."""
    from connectors.registry import BUILT_IN, connector
    from engine.recipe import SourceSection

    lines = [
        "# Sources",
        "",
        "Written by `python -m engine.reference`; `winnow sources` shows the same, and plugins.",
    ]
    lines += ["", "## `source`, for every format", "", *key_table(SourceSection), ""]
    for found in map(connector, BUILT_IN):
        lines += [f"## `format: {found.name}`", "", found.summary + ".", "", *_told_by(found)]
        options = key_table(found.Options)
        lines += [*(["", "`source.options`:", "", *options] if options else []), ""]
    return "\n".join(lines).rstrip() + "\n"


def _told_by(found: Any) -> list[str]:
    """What `format: auto` goes by."""
    told = [("Endings", found.extensions), ("Folders that hold", found.markers), ("URIs", found.schemes)]
    return [f"{what}: {', '.join(f'`{name}`' for name in names)}.  " for what, names in told if names]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES: dict[str, Callable[[], str]] = {"connectors/REFERENCE.md": connectors_page}
"""Path from the project's root, and what writes the page."""


def main() -> None:
    """Write every page."""
    for path, page in PAGES.items():
        (ROOT / path).write_text(page(), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
