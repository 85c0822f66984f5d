"""``rowsieve schedule``: runs a recipe at cron times and logs each run."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

import typer

from engine.cli.common import Overrides, RecipeFile, Verbose, load, print_errors
from engine.cli.safe_output import echo
from engine.core.errors import InputError


def schedule(
    recipe: RecipeFile,
    cron: Annotated[str, typer.Option(help='Five fields, such as "0 2 * * *"')],
    timezone: Annotated[str, typer.Option(help="Timezone of the cron times, such as Europe/Berlin")] = "UTC",
    catch_up: Annotated[
        str, typer.Option(help="Times missed in the last 31 days to run at the start: none, last or all")
    ] = "last",
    max_runs: Annotated[int | None, typer.Option(min=1, help="Number of runs after which to stop")] = None,
    overrides: Overrides = None,
    log_format: Annotated[str, typer.Option(help="plain or json")] = "plain",
    verbose: Verbose = False,
) -> None:
    """Run a recipe at cron times, in the foreground.

    The first SIGTERM stops after the current run, and a second one stops the run too.
    """
    with print_errors(verbose):
        from engine.core.output_layout import output_of
        from engine.jobs.cron import Cron, catch_up_policy
        from engine.jobs.schedule import (
            Schedule,
            SystemClock,
            rowsieve_run,
            run_schedule,
            schedule_file,
            signals,
        )

        if log_format not in ("plain", "json"):
            raise InputError(f"--log-format {log_format}: choose plain or json.")
        loaded = load(recipe, overrides)
        wanted = Schedule(Cron.parse(cron, timezone), catch_up_policy(catch_up), max_runs)
        changes = [word for override in overrides or () for word in ("--set", override)]
        job, clock = rowsieve_run([str(recipe), *changes, "--log-format", log_format]), SystemClock()
        log = _as_json if log_format == "json" else _as_line
        with signals(clock, job):
            code = run_schedule(wanted, job, clock, schedule_file(output_of(loaded.output.path)), log)
        raise typer.Exit(code)


def _as_json(entry: dict[str, Any]) -> None:
    print(json.dumps({"schedule": entry}), flush=True)


def _as_line(entry: dict[str, Any]) -> None:
    rest = dict(entry)
    at, event = datetime.fromisoformat(rest.pop("at")), rest.pop("event")
    echo(f"{at:%Y-%m-%d %H:%M:%S} {event:<8} " + " ".join(f"{k}={v}" for k, v in rest.items()), err=True)
