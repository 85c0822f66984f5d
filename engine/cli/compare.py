"""``rowsieve compare``: methods of group inference on one recipe, and the table of their scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.common import (
    AsJson,
    LogFormat,
    Overrides,
    RecipeFile,
    Verbose,
    finish_on_sigterm,
    load,
    print_errors,
)
from engine.cli.safe_output import SafeConsole, plain_table

if TYPE_CHECKING:
    from engine.runs.compare.comparison import Comparison
    from engine.runs.compare.scores import Scores

MAX_SHOWN_SIZES = 6


def show_comparison(found: Comparison) -> None:
    """Print one line for each method, the floor first."""
    from engine.cli.output import short_path

    numbers = ("ARI", "minority recall", "outlier precision", "outlier recall", "groups")
    table = plain_table("method", *numbers, "sizes", "seconds", right=(*numbers, "seconds"))
    for entry in found.entries:
        scores = entry.scores
        figures = (scores.ari, scores.minority_recall, scores.outlier_precision, scores.outlier_recall)
        cells = [_number(value) for value in figures]
        table.add_row(
            entry.method, *cells, str(len(scores.sizes)), sizes_text(scores), f"{entry.seconds:.2f}"
        )
    console = SafeConsole()
    console.print(table)
    for path in (found.figure, found.record):
        console.print(f"  {short_path(path)}", soft_wrap=True)


def sizes_text(scores: Scores) -> str:
    """Return the largest groups, and the rows in none."""
    shown = ", ".join(f"{rows:,}" for rows in scores.sizes[:MAX_SHOWN_SIZES])
    more = ", ..." if len(scores.sizes) > MAX_SHOWN_SIZES else ""
    return shown + more + (f"; in none {scores.noise:,}" if scores.noise else "")


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


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
    """Infer groups by several methods and score them against the recipe's truth, without publishing."""
    with print_errors(verbose):
        from engine.cli.output import show_json
        from engine.cli.progress import listener_for
        from engine.execution.cluster import set_environment
        from engine.runs.compare.comparison import compare as engine_compare

        set_environment(verbose)
        loaded = load(recipe, overrides)
        names = [name for name in dict.fromkeys(methods.replace(" ", "").split(",")) if name]
        with finish_on_sigterm(), listener_for(log_format) as listener:
            found = engine_compare(loaded, names, params or (), listener=listener, verbose=verbose)
        if as_json:
            show_json(found.rows())
        else:
            show_comparison(found)
