"""``rowsieve schema``: JSON schemas of what commands print with ``--json``; also writes ``engine/JSON.md``.

``python -m engine.cli.schema`` writes the page.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.cli.common import Verbose, print_errors
from engine.core.errors import InputError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

PAGE = Path(__file__).resolve().parents[1] / "JSON.md"
HEAD = """# Output for programs

Written by `python -m engine.cli.schema`.

With `--json`, a command prints one JSON value on standard output and nothing else: progress, warnings and
errors go to standard error. [Exit codes](README.md#exit-codes) tell whether it is done. The JSON schema of
the value is printed by `rowsieve schema NAME`. A key keeps its name and meaning; a release may add keys, so
that programs ignore those that they do not know. A number that is not one (NaN) is null, and an infinite one
the text Infinity or -Infinity.

`rowsieve logs` prints what the job printed, `rowsieve deploy render` prints YAML, and
`rowsieve operators --schema` the JSON schema of recipes.
"""
COMMANDS = {
    "run events": "run RECIPE --log-format json",
    "schedule events": "schedule RECIPE --log-format json",
    "status job": "status JOB --json",
}
"""Command of each record that is not printed by ``NAME --json``."""


def schema(
    name: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="A command, such as run or versions prune; default: all"),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Print the JSON schema of what a command prints with --json."""
    with print_errors(verbose):
        from connectors.foundation.messages import nearest
        from engine.cli.json_records import RECORDS
        from engine.cli.output import show_json

        if not name:
            show_json({each: schema_of(record) for each, record in RECORDS.items()})
            return
        wanted = " ".join(name)
        if wanted not in RECORDS:
            raise InputError(
                f"rowsieve schema {wanted}: no record has this name. The names are {', '.join(RECORDS)}."
                f"{nearest(wanted, RECORDS)}"
            )
        show_json(schema_of(RECORDS[wanted]))


def schema_of(record: TypeAdapter[Any]) -> dict[str, Any]:
    """Return the JSON schema of a record, as it is printed."""
    return record.json_schema(by_alias=True)


def page() -> str:
    """Return the page that lists the keys of every record."""
    from engine.cli.json_records import RECORDS

    lines, shown = [HEAD], set()
    for name, record in RECORDS.items():
        found = schema_of(record)
        kinds = found.pop("$defs", {})
        command = COMMANDS.get(name, f"{name} --json")
        lines += [f"## {name}", "", f"`rowsieve {command}` prints {_outline(found)}", ""]
        if "properties" in found:
            kinds = {found["title"]: found, **kinds}
        for title, kind in kinds.items():
            if title in shown:
                continue
            shown.add(title)
            lines += [f"**{title}**: {_text(kind['description'])}", "", *_table(kind), ""]
    return "\n".join(lines).rstrip() + "\n"


def _outline(shape: dict[str, Any]) -> str:
    """Describe the value as a whole."""
    if shape.get("type") == "array":
        return f"a list of {_kind(shape['items'])}."
    if isinstance(shape.get("additionalProperties"), dict):
        return f"an object that maps each key to {_kind(shape['additionalProperties'])}."
    if "anyOf" in shape:
        return " or ".join(_kind(one) for one in shape["anyOf"]) + "."
    return f"{shape['title']}."


def _kind(shape: dict[str, Any]) -> str:
    from engine.recipe.reference import type_text

    return type_text(shape)


def _table(kind: dict[str, Any]) -> list[str]:
    from engine.recipe.reference import table

    rows = [
        (
            f"`{key}`",
            _kind(value) + ("" if "default" not in value else ", may be absent"),
            _text(value["description"]),
        )
        for key, value in kind["properties"].items()
    ]
    return table(("key", "type", "meaning"), rows)


def _text(description: str) -> str:
    return " ".join(description.split()).replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
