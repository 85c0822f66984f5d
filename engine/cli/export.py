"""``rowsieve export``: writes a published version into a table of another format."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from engine.cli.common import AsJson, Verbose, finish_on_sigterm, print_errors, run_section
from engine.cli.safe_output import echo
from engine.core.errors import InputError


def export(
    version: Annotated[
        str,
        typer.Argument(
            metavar="OUTPUT@VERSION",
            help="A version of an output folder; OUTPUT: the current one; also its folder or, with --output, "
            "its name",
        ),
    ],
    to: Annotated[
        str,
        typer.Option(metavar="FORMAT:PATH", help="delta:, hf:, iceberg:, lance: or parquet:, and the table"),
    ],
    mode: Annotated[str, typer.Option(help="create, append or overwrite")] = "create",
    catalog: Annotated[
        str | None, typer.Option(help="Iceberg: a catalog's name, or {type: rest, uri: ...}")
    ] = None,
    output: Annotated[str | None, typer.Option(help="Output folder of the recipe; default: search")] = None,
    executor: Annotated[
        str, typer.Option(help="auto (Ray where RAY_ADDRESS names a cluster), ray or local")
    ] = "auto",
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Write a published version into a table in one commit, unless the table has the version already."""
    with print_errors(verbose):
        from engine.core.output_layout import output_of, split_version, version_folder
        from engine.execution.cluster import executor as open_executor
        from engine.execution.cluster import set_environment
        from engine.plan.exports import open_exports
        from engine.plan.output_place import check_export_apart
        from engine.publish.export import export as engine_export
        from engine.publish.lineage import locate
        from engine.publish.lineage_events import refusals_recorded
        from engine.storage.manifest import read_manifest

        section = run_section(executor)
        wanted = _section(to, mode, catalog)
        (table,) = open_exports([wanted])
        named = output_of(output) if output else None
        place = named or output_of(split_version(version)[0])
        with refusals_recorded(place, f"export.{table.format}", "EXPORT"):
            folder = version_folder(*locate(version, named))
            check_export_apart(wanted, folder.parent.parent)
        set_environment(verbose)
        with finish_on_sigterm(), open_executor(section, verbose=verbose) as opened:
            done = engine_export(folder, read_manifest(folder), table, lambda: opened)
        if as_json:
            from engine.cli.output import show_json

            show_json({"version": folder.name} | asdict(done))
            return
        verb = "is now" if done.written else "was already"
        echo(f"{folder.name} {verb} {done.state} of {done.path}.")


def _section(to: str, mode: str, catalog: str | None) -> Any:
    from pydantic import ValidationError

    from engine.core.suggestions import explain
    from engine.recipe.recipe import ExportSection
    from engine.recipe.yaml_text import parse_yaml

    format, colon, path = to.partition(":")
    if not colon:
        raise InputError(
            f"--to {to}: write it as FORMAT:PATH, for example delta:exports/people. The formats are delta, "
            "hf, iceberg, lance and parquet. For CSV, write the Parquet files of the version with pandas."
        )
    value: dict[str, Any] = {"format": format, "path": path, "mode": mode}
    if catalog is not None:
        value["catalog"] = parse_yaml(catalog, "--catalog")
    try:
        return ExportSection.model_validate(value)
    except ValidationError as error:
        raise InputError(explain(error, ExportSection, "rowsieve export")) from None
