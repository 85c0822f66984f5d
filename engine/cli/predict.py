"""``rowsieve predict``: predictions of a registered model for a dataset."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from engine.cli.common import AsJson, Verbose, finish_on_sigterm, print_errors, run_section
from engine.cli.safe_output import SafeConsole
from engine.core.errors import InputError
from operators.counts import count

if TYPE_CHECKING:
    from engine.training.serving.prediction import PredictionResult

console = SafeConsole()
FormatOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Option of the format, as in source.options; repeatable. Default: as in the model's recipe",
    ),
]
AllowMissing = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of the model that IN may lack: all its values are taken as missing; repeatable",
    ),
]


def predict(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="models:/NAME@ALIAS, runs:/RUN/model, or an MLflow model's folder"
        ),
    ],
    source: Annotated[str, typer.Argument(metavar="IN", help="Rows: a file, folder, glob or URI")],
    output: Annotated[str, typer.Argument(metavar="OUT", help="New folder for the predictions, in Parquet")],
    format: Annotated[str, typer.Option(help="Format of IN; see `rowsieve sources`")] = "auto",
    option: FormatOption = None,
    encoding: Annotated[
        str | None,
        typer.Option(help="Encoding of CSV and JSON lines, as in source.encoding. Default: the recipe's"),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column of IN to keep; repeatable")
    ] = None,
    allow_missing: AllowMissing = None,
    tracking: Annotated[
        str,
        typer.Option(metavar="OUTPUT", help="Output folder whose mlflow.db has the model"),
    ] = "",
    executor: Annotated[
        str, typer.Option(help="ray, local, or auto: ray where RAY_ADDRESS names a cluster")
    ] = "auto",
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Predict every row of a dataset with a registered model, shard by shard."""
    with print_errors(verbose):
        from engine.execution.cluster import executor as open_executor
        from engine.training.serving.prediction import predict as run_predict
        from engine.training.serving.prediction_source import SourceRequest

        rows = SourceRequest(source, format, _options(option), encoding, keep or (), allow_missing or ())
        with finish_on_sigterm(), open_executor(run_section(executor), verbose=verbose) as opened:
            found = run_predict(model, rows, output, opened, tracking=tracking)
        _show(found, source, output, as_json=as_json)
        if found.rows and found.failed == found.rows:
            raise InputError(
                f"None of the {found.rows:,} rows of {source} has a prediction. For each row, the column "
                f"`reason` of the files in {output} says why."
            )


def _show(found: PredictionResult, source: str, output: str, *, as_json: bool) -> None:
    """Print how many rows were predicted, and which columns were taken as missing."""
    if as_json:
        from engine.cli.output import show_json

        show_json(asdict(found))
        return
    console.print(
        f"{count(found.rows, 'row')} predicted into {output}, {count(len(found.parts), 'file')}"
        + (f", {found.kept} of them by an earlier call; " if found.kept else "; ")
        + f"{count(found.failed, 'row')} without a prediction"
        + (": see the column reason." if found.failed else "."),
        soft_wrap=True,
    )
    if found.filled:
        console.print(
            f"Not in {source}, so that all values are taken as missing: {', '.join(found.filled)}.",
            soft_wrap=True,
        )


def _options(given: list[str] | None) -> dict[str, Any] | None:
    """Return options of the format; None if none is given. Raises InputError."""
    if not given:
        return None
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"--option {text}: write KEY=VALUE, such as --option 'delimiter=;'.")
        found[key] = yaml.safe_load(value) if value.lower() in ("true", "false") else value
    return found
