"""``rowsieve groups``: the groups of a published version in words."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from engine.cli.common import AsJson, Verbose, print_errors
from engine.cli.safe_output import SafeConsole, bold
from engine.core.errors import InputError

console = SafeConsole()
VersionName = Annotated[
    str | None, typer.Option("--version", metavar="V", help="Version; default: the current one")
]


def groups(
    output: Annotated[
        str, typer.Argument(metavar="OUTPUT", help="Output folder of a recipe, or OUTPUT@VERSION")
    ],
    version: VersionName = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Say what the rows of each group have in common, in words of the source's columns."""
    with print_errors(verbose):
        from engine.cli.output import show_json
        from engine.runs.descriptions import required_descriptions
        from engine.training.data.version import open_version

        opened = open_version(named_version(output, version))
        found = required_descriptions(opened.output, opened.name)
        show_json(found) if as_json else _show(found)


ACCURACY = (
    "The accuracy is that of the classifier of `probe`. By default it is regularised strongly, so that rows "
    "that break a shortcut are wrong together; a model that you train is right more often."
)


def named_version(output: str, version: str | None) -> str:
    """Return OUTPUT or OUTPUT@VERSION. Raises InputError if the version is named twice."""
    from engine.core.output_layout import split_version

    if version is None:
        return output
    if split_version(output)[1]:
        raise InputError(
            f"{output} names a version already. Leave out --version {version}, or the part from @ on."
        )
    return f"{output}@{version}"


def _show(found: dict[str, Any]) -> None:
    console.print(bold(found["version"]) + ": the groups in words", soft_wrap=True)
    for entry in found["groups"]:
        _show_group(entry)
    for one in found["slices"]:
        also = f" (also {', '.join(one['also'])})" if one["also"] else ""
        console.print(Text("\n") + bold("suspected shortcut") + f" {one['slice']}{also}", soft_wrap=True)
        console.print(f"  {one['description']}", soft_wrap=True)
    if any(entry["accuracy"] is not None for entry in found["groups"]):
        console.print(f"\n{ACCURACY}", style="dim", soft_wrap=True)
    if any(entry["rule"] for entry in found["groups"]):
        console.print(
            "The figures are those of drawn rows that the words were not fitted to. The lift is how "
            "many times the group's share of its class the share among these rows is. --json has everything.",
            style="dim",
            soft_wrap=True,
        )


def _show_group(entry: dict[str, Any]) -> None:
    from engine.report.described_groups import term_lines
    from operators.counts import count
    from operators.report.text import percent

    name = "noise" if entry["group"] < 0 else f"group {entry['group']}"
    accuracy = "" if entry["accuracy"] is None else f", accuracy {percent(entry['accuracy'])}"
    console.print(
        Text("\n") + bold(name) + f" of class {entry['class']}: {count(entry['rows'], 'row')} "
        f"({percent(entry['share'])}){accuracy}",
        soft_wrap=True,
    )
    console.print(f"  {entry['description']}", soft_wrap=True)
    if rule := entry["rule"]:
        console.print(
            f"  holds for {percent(rule['coverage'])} of the group; of the rows of the class for which "
            f"it holds, {percent(rule['purity'])} are in the group (lift {rule['lift']:.1f})",
            style="dim",
            soft_wrap=True,
        )
    for line in term_lines(entry["terms"]):
        console.print(f"  {line}", style="dim", soft_wrap=True)
    if entry["central_rows"]:
        nearest = ", ".join(map(str, entry["central_rows"]))
        console.print(f"  rows nearest to the centre: {nearest}", style="dim", soft_wrap=True)
