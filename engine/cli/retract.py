"""``rowsieve retract``: withdraws a published version, so that readers get the one before."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.common import AsJson, Verbose, print_errors
from engine.cli.safe_output import echo
from engine.core.errors import InputError

if TYPE_CHECKING:
    from engine.publish.export_records import ExportedTable
    from engine.publish.withdrawn_models import TrainedModel
    from engine.runs.retraction import Retraction


def retract(
    version: Annotated[
        str, typer.Argument(metavar="OUTPUT@VERSION", help="A version of an output folder, or its folder")
    ],
    why: Annotated[str, typer.Option(help="The reason, which every reader of the version is told")] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Take a withdrawal back")] = False,
    models: Annotated[
        bool,
        typer.Option(
            "--models", help="Move aliases of models trained on it back to a model of a version that stands"
        ),
    ] = False,
    method: Annotated[
        bool,
        typer.Option(
            "--method",
            help="An operator was wrong, not the data: a newer release of it may publish the rows again",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change")] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Withdraw a published version: readers of the current one get the version before. Nothing is deleted."""
    with print_errors(verbose):
        from engine.cli.output import show_json
        from engine.core.output_layout import output_of
        from engine.runs.retraction import check_not_removed, foresee_retraction, undo_retraction
        from engine.runs.retraction import retract as withdraw
        from engine.training.data.version import open_version

        if undo and (why or models or method or dry_run):
            raise InputError(
                "rowsieve retract --undo takes neither --why nor --models, --method or --dry-run. Leave them "
                "out."
            )
        if not undo and not why:
            raise InputError(
                'rowsieve retract OUTPUT@VERSION: give the reason, such as --why "labels of May".'
            )
        check_not_removed(version)
        found = open_version(version, warn=undo)
        output, name = found.output, found.name
        if found.folder.parent.name != "versions":
            raise InputError(f"{found.folder} is a copy. Withdraw the version in its output: OUTPUT@{name}.")
        if output_of(version) == output:
            raise InputError(
                f"rowsieve retract {version}: name the version; the current one is {version}@{name}."
            )
        if undo:
            done = undo_retraction(output, name)
        else:
            options = {"move_aliases": models} if dry_run else {"move_aliases": models, "method": method}
            done = (foresee_retraction if dry_run else withdraw)(output, name, why, **options)
        if not as_json and dry_run:
            echo("Nothing is changed. Without --dry-run:")
        show_json(asdict(done)) if as_json else _show(done, str(output))
        if method and not as_json:
            echo("  a release with a newer version of one of its operators may publish the rows again")
        if done.mlflow_error or done.exports_error:
            raise InputError(" ".join(filter(None, (done.exports_error, done.mlflow_error))))


def _show(done: Retraction, output: str) -> None:
    echo(f"{done.version} is withdrawn: {done.why}" if done.why else f"{done.version} stands again.")
    if done.earlier:
        echo(f"  it was withdrawn before; the record keeps the earlier reasons: {'; '.join(done.earlier)}")
    echo(f"  {_readers_text(done)}")
    for name in done.continued_by if done.why else ():
        echo(
            f"  {name} continues from it: what operators have learnt on it is there, and its card says so. "
            f"Withdraw it as well (rowsieve retract {shlex.quote(f'{output}@{name}')} --why REASON), or "
            "publish without incremental.base"
        )
    for table in done.exports:
        echo(f"  {_table_text(table)}")
        if done.why and not table.replaced_by:
            echo(f"    {_remedy(table, done, output)}")
    for other in done.elsewhere:
        echo(f"  MLflow also has this version in {other}, which is left alone; withdraw it there as well")
    for model in done.models:
        echo(f"  {_model_text(model)}")
    if done.why:
        words = shlex.join(["rowsieve", "versions", output, "remove", done.version])
        echo(f"  nothing is deleted: {words} does that")
    if done.why and any(model.aliases and not model.moved for model in done.models):
        echo("  --models moves aliases to the newest model version that was trained on one that stands")
    if done.why and any(_stays_champion(model) for model in done.models):
        echo("  the champion stays the yardstick of promotions until another model has the alias")


def _readers_text(done: Retraction) -> str:
    if done.current is None:
        return "readers get an error: no version stands"
    return f"readers get {done.current}" + (", as before" if done.current == done.before else " from now on")


def _remedy(table: ExportedTable, done: Retraction, output: str) -> str:
    """Return what removes the version from a table that holds it."""
    other = done.current or "VERSION"
    words = ("rowsieve", "export", f"{output}@{other}", "--to", f"{table.format}:{table.path}")
    again = shlex.join(words)
    if table.format == "parquet":
        folder = f"{table.path}/{done.version}"
        return (
            f"it is not changed: remove its folder {folder}, and write a version that stands: {again} "
            "--mode append"
        )
    text = f"it is not changed: remove it, or replace all its rows: {again} --mode overwrite"
    if not table.catalog:
        return text
    return f"{text} --catalog CATALOG, the name or the properties that the export had ({table.catalog})"


def _stays_champion(model: TrainedModel) -> bool:
    return "champion" in model.aliases and not model.moved.get("champion")


def _table_text(table: ExportedTable) -> str:
    if table.replaced_by:
        return (
            f"it was exported to {table}, where {table.replaced_by} has replaced it; older states may hold it"
        )
    if not table.state:
        return f"an export to {table} was begun and not ended; the table may hold it"
    return f"it was exported to {table}, which still holds it"


def _model_text(model: TrainedModel) -> str:
    text = f"model {model.name} {model.number} was trained on it"
    for alias in model.aliases:
        number = model.moved.get(alias)
        told = f"now points to version {number}" if number else "points to it"
        if alias in model.moved and not number:
            told += ", as no other version was trained on one that stands"
        text += f"; {alias} {told}"
    return text
