"""The commands. Each parses its options, calls the engine, and shows what came back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.cli.common import (
    AsJson,
    LogFormat,
    Overrides,
    RecipeFile,
    Verbose,
    load,
    shown_errors,
    stopping_in_order,
)
from engine.cli.cues import cues
from engine.cli.deploy import deploy
from engine.cli.export import export
from engine.cli.jobs import add_jobs, address_for, show_jobs
from engine.cli.policy import policy
from engine.cli.schedule import schedule
from engine.cli.sources import sources
from engine.cli.versions import diff, versions
from engine.core.errors import InputError
from engine.core.policy import apply_policy

app = typer.Typer(
    help="Groups, outliers, weights and splits for every row of a dataset, without group labels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command."""
    app()


@app.callback()
def before_every_command() -> None:
    """Groups, outliers, weights and splits for every row of a dataset, without group labels."""
    with shown_errors(verbose=False):
        apply_policy()


@app.command()
def validate(recipe: RecipeFile, overrides: Overrides = None, verbose: Verbose = False) -> None:
    """Check a recipe and its source; change nothing."""
    with shown_errors(verbose):
        from engine.plan.planner import make_plan

        plan = make_plan(load(recipe, overrides))
        typer.echo(f"{recipe}: fine. {plan.n_rows:,} rows in {len(plan.shards)} shards.")


@app.command()
def plan(
    recipe: RecipeFile, overrides: Overrides = None, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """Show shards, columns and fingerprints, without starting Ray."""
    with shown_errors(verbose):
        from engine.cli.show import show_json, show_plan
        from engine.plan.planner import make_plan

        made = make_plan(load(recipe, overrides))
        if as_json:
            show_json(made.to_dict())
        else:
            show_plan(made)


@app.command()
def run(
    recipe: RecipeFile,
    overrides: Overrides = None,
    log_format: LogFormat = "auto",
    verbose: Verbose = False,
) -> None:
    """Run a recipe and publish a version. What is committed already is reused."""
    with shown_errors(verbose):
        from engine.cli.progress import listener_for
        from engine.cli.show import show_result
        from engine.execution.cluster import set_environment
        from engine.runs.runner import run as engine_run

        set_environment(verbose)
        loaded = load(recipe, overrides)
        with stopping_in_order(), listener_for(log_format) as listener:
            result = engine_run(loaded, listener=listener, verbose=verbose)
        show_result(result, as_json=log_format == "json")


@app.command()
def status(
    recipe: Annotated[
        Path, typer.Argument(metavar="RECIPE|JOB", help="Recipe; with --address also a job's id")
    ],
    overrides: Overrides = None,
    address: Annotated[str | None, typer.Option(help="Cluster of the job, such as http://head:8265")] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show how far a recipe's run is, from files alone; or what a cluster says of a job."""
    with shown_errors(verbose):
        address = address or address_for(recipe)
        if address is not None:
            show_jobs(recipe, address, as_json=as_json)
            return
        from engine.cli.show import show_json, show_status
        from engine.plan.planner import make_plan
        from engine.runs.status import status_of

        found = status_of(make_plan(load(recipe, overrides)))
        if as_json:
            show_json(found)
        else:
            show_status(found)


@app.command()
def operators(
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of recipes")] = False,
    verbose: Verbose = False,
) -> None:
    """List the operators with their columns, or print the schema of a recipe."""
    with shown_errors(verbose):
        from engine.cli.show import show_json, show_operators
        from engine.recipe.schema import recipe_schema

        if schema:
            show_json(recipe_schema())
        else:
            show_operators()


@app.command()
def compare(
    recipe: RecipeFile,
    methods: Annotated[
        str, typer.Option(help="Methods of `groups`, with commas between")
    ] = "grasp,feasp,kmeans,george,eiil,jtt",
    params: Annotated[
        list[str] | None, typer.Option("--param", metavar="METHOD.KEY=C", help="A method's key; repeatable")
    ] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
    log_format: LogFormat = "auto",
    verbose: Verbose = False,
) -> None:
    """Infer groups by several methods and score them against the recipe's truth; publish nothing."""
    with shown_errors(verbose):
        from engine.cli.compare import show_comparison
        from engine.cli.progress import listener_for
        from engine.cli.show import show_json
        from engine.execution.cluster import set_environment
        from engine.runs.compare.comparison import compare as engine_compare

        set_environment(verbose)
        loaded = load(recipe, overrides)
        names = [name for name in dict.fromkeys(methods.replace(" ", "").split(",")) if name]
        with listener_for(log_format) as listener:
            found = engine_compare(loaded, names, params or (), listener=listener, verbose=verbose)
        if as_json:
            show_json(found.rows())
        else:
            show_comparison(found)


@app.command()
def quarantine(
    recipe: RecipeFile,
    action: Annotated[str, typer.Argument(help="list, export or replay")] = "list",
    to: Annotated[Path | None, typer.Option(help="File for export: .parquet, .csv or .jsonl")] = None,
    overrides: Overrides = None,
    limit: Annotated[int, typer.Option(help="Most rows to show", min=1)] = 20,
    verbose: Verbose = False,
) -> None:
    """Show the rows that were set aside, and why; export them; or run again with them after a fix."""
    with shown_errors(verbose):
        from engine.cli.quarantine import run_quarantine

        run_quarantine(load(recipe, overrides), action, to, limit, verbose=verbose)


@app.command()
def lineage(
    version: Annotated[str | None, typer.Argument(help="A version's name or its folder")] = None,
    output: Annotated[str | None, typer.Option(help="Output of the recipe; default: search")] = None,
    sync: Annotated[bool, typer.Option(help="First deliver records that wait for MLflow")] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Walk from a published version to its MLflow run and its source files."""
    with shown_errors(verbose):
        from engine.cli.show import show_json, show_lineage
        from engine.core.output_layout import output_of
        from engine.publish.lineage import sync_records, trace

        if sync:
            typer.echo(sync_records(version, output_of(output) if output else None))
        if version is None and sync:
            return
        if version is None:
            raise InputError("rowsieve lineage: name a version, such as v8332abe5d7e9, or its folder.")
        found = trace(version, output_of(output) if output else None)
        if as_json:
            show_json(found)
        else:
            show_lineage(found)


@app.command()
def retrain(
    dataset: Annotated[
        str, typer.Option(metavar="NAME[@VERSION]", help="Output folder of a recipe, or its name on MLflow")
    ],
    trainer: Annotated[str, typer.Option(help="erm, gdro, cvar_doro, chi2_dro, jtt or boosted_cvar")] = "erm",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=C", help="A key of the trainer; repeatable")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=C,C", help="Try these; the worst inferred group decides; repeatable"),
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="boosted_cvar: mix the base models for this tail, without training")
    ] = None,
    register: Annotated[
        str | None, typer.Option(metavar="NAME", help="Register the model on MLflow as challenger")
    ] = None,
    promote_if: Annotated[
        str | None, typer.Option(help='Such as "worst_group_accuracy > champion + 0.01"')
    ] = None,
    truth: Annotated[str | None, typer.Option(help="Column with true groups, for scores alone")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    executor: Annotated[
        str, typer.Option(help="ray, local, or auto: local for small data without a grid or a cluster")
    ] = "auto",
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Train a robust model on a published version, score it, and register it."""
    with shown_errors(verbose):
        from engine.cli.retrain import Options, run_retrain

        options = Options(dataset, trainer, settings or [], grid or [], alpha, register, promote_if, truth)
        run_retrain(options, seed=seed, executor=executor, as_json=as_json, verbose=verbose)


app.command()(export)
app.command()(sources)
add_jobs(app)
app.add_typer(deploy, name="deploy")
for command in (cues, versions, diff, schedule, policy):
    app.command()(command)
