"""Reference pages, written from the code's own models by `python -m engine.recipe.reference`."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from operators.base import Operator, Resources

ROOT = Path(__file__).resolve().parents[2]


def key_table(model: type[BaseModel], names: Sequence[str] | None = None) -> list[str]:
    """Return a Markdown table of a model's keys with type, default and meaning; empty without keys.

    ``names``: the keys to show; default: all.
    """
    fields = {name: model.model_fields[name] for name in names or model.model_fields}
    if not fields:
        return []
    shapes = model.model_json_schema().get("properties", {})
    rows = []
    for name, field in fields.items():
        shape = shapes.get(name, {})
        meaning = _meaning(field, shape.get("description", ""))
        rows.append((f"`{name}`", type_text(shape), _default_cell(field), meaning))
    return table(("key", "type", "default", "meaning"), rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines]


def type_text(shape: dict[str, Any]) -> str:
    """Describe the type of a JSON schema in a few words."""
    if "enum" in shape:
        return ", ".join(json.dumps(value) for value in shape["enum"])
    if "const" in shape:
        return json.dumps(shape["const"])
    if "$ref" in shape:
        return str(shape["$ref"]).rpartition("/")[2]
    if kinds := shape.get("anyOf", shape.get("oneOf")):
        return " or ".join(dict.fromkeys(map(type_text, kinds)))
    if shape.get("type") == "array" and "items" in shape:
        return f"list of {type_text(shape['items'])}"
    return str(shape.get("type", "any"))


def default_text(field: FieldInfo) -> str:
    """Return a field's default as JSON, or "required"."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return json.dumps(value.model_dump() if isinstance(value, BaseModel) else value)


def _default_cell(field: FieldInfo) -> str:
    text = default_text(field)
    return text if field.is_required() else f"`{text}`"


def connectors_page() -> str:
    """Return the page of all source formats with their options."""
    from connectors.registry import BUILT_IN, connector
    from engine.recipe.recipe import SourceSection

    lines = [
        "# Sources",
        "",
        "Written by `python -m engine.recipe.reference`; `rowsieve sources` shows the same, and plugins.",
    ]
    lines += ["", "## `source`, for every format", "", *key_table(SourceSection), ""]
    for found in map(connector, BUILT_IN):
        lines += [f"## `format: {found.name}`", "", found.summary + ".", "", *_recognised_by(found)]
        options = key_table(found.Options)
        lines += [*(["", "`source.options`:", "", *options] if options else []), ""]
    return "\n".join(lines).rstrip() + "\n"


def _recognised_by(found: Any) -> list[str]:
    """Return the lines that say how `format: auto` recognises the format."""
    signs = [("Endings", found.extensions), ("Folders that hold", found.markers), ("URIs", found.schemes)]
    return [f"{kind}: {', '.join(f'`{name}`' for name in names)}.  " for kind, names in signs if names]


def operators_page() -> str:
    """Return the page of all operators and of their methods, with their parameters."""
    from operators.registry import BUILT_IN, operator_class

    lines = [
        "# Operators",
        "",
        "Written by `python -m engine.recipe.reference`; `rowsieve operators` shows plugins too.",
    ]
    for name in BUILT_IN:
        kind = operator_class(name)
        variants = kind.variants()
        lines += ["", f"## `{name}`", "", paragraph(kind)]
        if not variants:
            lines += _of_operator(kind)
        for value, variant in variants.items():
            lines += [
                "",
                f"### `{name}: {{method: {value}}}`",
                "",
                paragraph(variant),
                *_of_operator(variant),
            ]
    return "\n".join(lines).rstrip() + "\n"


def _of_operator(kind: type[Operator[Any]]) -> list[str]:
    keys = key_table(kind.Params)
    lines = ["", *keys] if keys else ["", "No parameters."]
    for name, field in kind.Params.model_fields.items():
        for section in _sections(field):
            if section is not Resources:
                lines += ["", f"`{name}`: {paragraph(section)}", "", *key_table(section)]
    return lines


def paragraph(thing: Any) -> str:
    """Return the first paragraph of a docstring as one line of Markdown."""
    text = inspect.cleandoc(thing.__doc__ or "").replace("``", "`")
    return " ".join(text.split("\n\n")[0].split())


def recipe_page() -> str:
    """Return the page of all sections of a recipe except source and operators, which have their own pages."""
    from engine.recipe.recipe import Recipe

    lines = ["# Recipe", "", "Written by `python -m engine.recipe.reference`. `source` is described in"]
    lines += [
        "[connectors](../connectors/REFERENCE.md), `operators` in [operators](../operators/REFERENCE.md)."
    ]
    rest = {name: field for name, field in Recipe.model_fields.items() if name not in ("source", "operators")}
    plain = [(f"`{n}`", _kind(f), _default_cell(f), _meaning(f)) for n, f in rest.items() if not _section(f)]
    lines += ["", *table(("key", "type", "default", "meaning"), plain)]
    for name, field in rest.items():
        lines += _section_lines(name, _section(field))
    return "\n".join([*lines, *_trainer_lines()]).rstrip() + "\n"


def _trainer_lines() -> list[str]:
    """Return the tables of the trainers' keys: of those that all have, and of each trainer's own."""
    from engine.recipe.trainers import TRAINERS, TrainParams

    lines = ["", "## `train.params`", "", "Keys of every trainer:", "", *key_table(TrainParams)]
    for kind in dict.fromkeys(TRAINERS.values()):
        trainers = ", ".join(name for name, found in TRAINERS.items() if found is kind)
        own = [name for name in kind.__annotations__ if name in kind.model_fields and name != "trainer"]
        lines += ["", f"### `train: {{trainer: {trainers}}}`", "", paragraph(kind)]
        lines += ["", *key_table(kind, own)] if own else []
    return lines


def _section_lines(name: str, section: type[BaseModel] | None) -> list[str]:
    """Return the heading and the table of a section, and of the sections inside it."""
    if section is None:
        return []
    lines = ["", f"## `{name}`", "", paragraph(section), "", *key_table(section)]
    for inner, field in section.model_fields.items():
        lines += _section_lines(f"{name}.{inner}", _section(field))
    return lines


def modules_page() -> str:
    """Return the page of all modules of the engine, each with the first sentence of its docstring."""
    lines = [
        "# Modules of the engine",
        "",
        "Written by `python -m engine.recipe.reference` from the modules'",
    ]
    lines += ["docstrings. [README](README.md) says what each package is for, in the order of the layers."]
    for folder in sorted(path.parent for path in (ROOT / "engine").rglob("__init__.py")):
        modules = [path for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
        if modules:
            name = folder.relative_to(ROOT / "engine")
            rows = [(f"`{path.name}`", _first_sentence(path.read_text("utf-8"))) for path in modules]
            lines += ["", f"## `{name}/`", "", *table(("module", "content"), rows)]
    return "\n".join(lines) + "\n"


def _first_sentence(module: str) -> str:
    """Return the first sentence of the docstring of a module, given its text."""
    text = " ".join((ast.get_docstring(ast.parse(module)) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.) ", text)[0]


def _meaning(field: FieldInfo, described: str = "") -> str:
    """Return the field's description, or its section's; "Chooses this" for a key with one possible value."""
    section, meaning = _section(field), field.description or described
    if meaning or section is None:
        return meaning or ("Chooses this" if len(get_args(field.annotation)) == 1 else "")
    return paragraph(section)


def _section(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of a field, also of an optional one or of a list; None for plain values."""
    return next(iter(_sections(field)), None)


def _sections(field: FieldInfo) -> list[type[BaseModel]]:
    """Return the models that the value of a field may have, or the values in it."""
    kinds, found = [field.annotation], list[type[BaseModel]]()
    while kinds:
        kind = kinds.pop(0)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found.append(kind)
        kinds[:0] = get_args(kind)
    return list(dict.fromkeys(found))


def _kind(field: FieldInfo) -> str:
    schema: TypeAdapter[Any] = TypeAdapter(field.annotation or Any)
    return type_text(schema.json_schema())


def _cell(text: str) -> str:
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


PAGES: dict[str, Callable[[], str]] = {
    "connectors/REFERENCE.md": connectors_page,
    "engine/MODULES.md": modules_page,
    "engine/REFERENCE.md": recipe_page,
    "operators/REFERENCE.md": operators_page,
}
"""Path of each page from the project's root, and the function that writes it."""


def main() -> None:
    """Write every page of the reference."""
    for path, page in PAGES.items():
        (ROOT / path).write_text(page(), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
