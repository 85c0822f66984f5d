"""``rowsieve lineage``: walks from a version to its MLflow run and source files."""

from __future__ import annotations

from typing import Annotated

import typer

from engine.cli.common import AsJson, Verbose, print_errors
from engine.cli.safe_output import echo
from engine.core.errors import InputError


def lineage(
    version: Annotated[
        str | None,
        typer.Argument(
            metavar="OUTPUT@VERSION",
            help="A version of an output folder; OUTPUT: the current one; also its folder or, with --output, "
            "its name",
        ),
    ] = None,
    output: Annotated[str | None, typer.Option(help="Output of the recipe; default: search")] = None,
    sync: Annotated[
        bool, typer.Option(help="First deliver records that MLflow and events that OpenLineage lack")
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show the MLflow runs, models and source files of a published version."""
    with print_errors(verbose):
        from engine.cli.output import show_json, show_lineage
        from engine.core.output_layout import output_of
        from engine.publish.lineage import sync_records, trace

        if sync:
            echo(sync_records(version, output_of(output) if output else None), err=as_json)
        if version is None and sync:
            return
        if version is None:
            raise InputError(
                "rowsieve lineage: name a version: OUTPUT@VERSION, or OUTPUT for the current one."
            )
        found = trace(version, output_of(output) if output else None)
        if as_json:
            show_json(found)
        else:
            show_lineage(found)
