"""``rowsieve status``: shows the progress of a run or a job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.cli.common import AsJson, Overrides, Verbose, load, print_errors
from engine.cli.jobs import address_for, show_jobs


def status(
    recipe: Annotated[
        Path, typer.Argument(metavar="RECIPE|JOB", help="Recipe; with --address also a job's id")
    ],
    overrides: Overrides = None,
    address: Annotated[str | None, typer.Option(help="Cluster of the job, such as http://head:8265")] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show the progress of a recipe's run from its files, or the state of a job on a cluster."""
    with print_errors(verbose):
        address = address or address_for(recipe)
        if address is not None:
            show_jobs(recipe, address, as_json=as_json)
            return
        from engine.cli.output import show_json, show_status
        from engine.plan.planner import make_plan
        from engine.runs.status import status_of

        found = status_of(make_plan(load(recipe, overrides)))
        if as_json:
            show_json(found)
        else:
            show_status(found)
