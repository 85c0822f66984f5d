"""``rowsieve retrain``: options of a training, and the table of its scores."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from engine.cli.common import AsJson, Verbose, finish_on_sigterm, print_errors, run_section
from engine.cli.safe_output import SafeConsole, bold, plain_table
from engine.core.errors import InputError
from engine.recipe.promotion import EXAMPLE
from operators.counts import count

if TYPE_CHECKING:
    from engine.core.events import Listener
    from engine.recipe.recipe import RunSection
    from engine.training.evaluation.by_group import Evaluation, GroupTable
    from engine.training.evaluation.regression_scores import LossTable, RegressionEvaluation
    from engine.training.reference import Reference
    from engine.training.retrain import RetrainOptions, RetrainResult
    from engine.training.training_run import TrainResult, TrainSpec

MAX_GROUPS = 30
MAX_LOSS = 0.1
"""Accuracy below that of the published weights from which a warning is printed."""
console = SafeConsole()


def run_retrain(
    spec: TrainSpec, options: RetrainOptions, *, section: RunSection, as_json: bool, verbose: bool
) -> None:
    """Carry out the command. Raises InputError."""
    from engine.cli.output import show_json
    from engine.execution.cluster import executor as open_executor
    from engine.training.retrain import retrain

    if section.executor == "auto":
        section = run_section("local" if not options.grid and needs_no_ray(spec) else "ray")
    with open_executor(section, verbose=verbose) as opened, progress_listener(as_json) as listener:
        found = retrain(spec, opened, options, listener)
    if as_json:
        show_json(found.to_dict())
    else:
        show_retrained(found)


@contextmanager
def progress_listener(as_json: bool) -> Iterator[Listener]:
    """Yield the listener of a training: bars on a terminal, with the time that is left; else none."""
    from engine.cli.progress import listener_for
    from engine.core.events import silent

    if as_json or not sys.stderr.isatty():
        yield silent
        return
    with listener_for("rich") as bars:
        yield bars


def needs_no_ray(spec: TrainSpec) -> bool:
    """Return whether the training is small enough for this process; never where a cluster is named."""
    params = spec.params
    if "RAY_ADDRESS" in os.environ or params.where == "ray" or params.resources.gpus:
        return False
    from engine.training.data.version import open_version
    from engine.training.retrain import refusals_of_training

    with refusals_of_training(spec):
        splits: dict[str, int] = open_version(spec.dataset).manifest["summary"]["splits"]
    return sum(splits.values()) <= params.small_rows


def show_retrained(found: RetrainResult) -> None:
    """Print the scores by split and group, then the registered version."""
    from engine.training.page import PAGE

    result = found.result
    verb = "found again" if result.reused else "trained"
    console.print(
        bold(result.model.about["trainer"]) + f" on {result.version.name}: {verb}, "
        f"{count(result.record['train_rows'], 'row')}, {count(len(result.model.models), 'base model')}",
        soft_wrap=True,
    )
    _show_selection(found)
    if "strength" in result.record:
        from engine.training.page import strength_sentence

        console.print(f"  {strength_sentence(result.record['strength'])}", soft_wrap=True)
    _show_importance(result.importance)
    _show_scores(result, found.reference)
    if result.evaluations and (undivided := result.version.undivided_groups):
        console.print(f"  warning: {undivided}", soft_wrap=True)
    if warning := loss_warning(found):
        console.print(f"  warning: {warning}", soft_wrap=True)
    if found.registered:
        model = found.registered
        console.print(f"  registered {model.name} version {model.version} as challenger")
    if found.verdict:
        verb = "is champion now" if found.verdict.promoted else "is not champion"
        console.print(f"  {verb}: {found.verdict.reason}", soft_wrap=True)
    console.print(f"  {result.folder}", soft_wrap=True)
    console.print(f"  report: {result.folder / PAGE}", soft_wrap=True)


def _show_scores(result: TrainResult, reference: Reference | None) -> None:
    """Print the scores of each split by group; if there are none, say so."""
    from engine.training.page import NO_SCORES

    if not result.evaluations and not result.regressions:
        console.print(f"  {NO_SCORES}", soft_wrap=True)
    for split, evaluation in result.evaluations.items():
        for name, table in evaluation.groupings.items():
            console.print(bold(split) + f", {name} groups; accuracy {_number(evaluation.accuracy)}")
            console.print(group_table(table, reference.by_group(split, name) if reference else {}))
            if notes := table.notes():
                console.print(f"  {notes}", soft_wrap=True)
        if reference:
            console.print(f"  {reference.sentence(split)}", soft_wrap=True)
        if len(result.model.models) > 1:
            console.print(_tails(evaluation))
    _show_losses(result, reference)


def _show_losses(result: TrainResult, reference: Reference | None) -> None:
    """Print the losses of each split of a regression by group."""
    for split, regression in result.regressions.items():
        for name, losses in regression.groupings.items():
            console.print(bold(split) + f", {name} groups; {loss_sentence(regression)}", soft_wrap=True)
            console.print(loss_table(losses, reference.by_group(split, name) if reference else {}))
            if notes := losses.notes():
                console.print(f"  {notes}", soft_wrap=True)
        if reference:
            console.print(f"  {reference.sentence(split)}", soft_wrap=True)


def _show_selection(found: RetrainResult) -> None:
    """Print which cell of a grid was chosen, if there was one."""
    if not found.selection:
        return
    console.print(f"  {found.selection.sentence()}", soft_wrap=True)
    if "test" not in found.result.scores:
        console.print(
            "  chosen on the validation rows, so their scores are those of the best of several; give the "
            "recipe test rows (split.test) for figures to report",
            soft_wrap=True,
        )


def loss_warning(found: RetrainResult) -> str:
    """Return a sentence for a model that is far less often right than one with the published weights.

    The latter's accuracy is that on the curve of ``cues``. Empty without one, or for a smaller loss; what is
    wrong with the curve's file where that is damaged, which the model does not need.
    """
    from engine.cli.cues import naming_the_state, read_cues
    from engine.core.json_files import DamagedFileError
    from operators.cues.output.curve_report import published_point

    result = found.result
    accuracy = result.evaluations["validation"].accuracy if "validation" in result.evaluations else None
    try:
        with naming_the_state(result.version):
            curve = read_cues(result.version).get("trade_off")
            point = published_point(curve) if curve else None
            reached = float(point["mean_accuracy"]) if point else None
    except DamagedFileError as error:
        return str(error)
    except InputError:
        return ""
    if accuracy is None or reached is None or accuracy > reached - MAX_LOSS:
        return ""
    trainer = str(result.model.about["trainer"])
    advice = (
        "It may have been trained too little or with too large a penalty: try more epochs or a smaller l2."
        if trainer.startswith("erm")
        else f"{trainer} gives up all rows for the worst inferred group, in which many labels may be wrong. "
        "Compare it with --trainer erm before use."
    )
    return (
        f"accuracy {accuracy:.3f} is far below {reached:.3f}, which a linear model with the "
        f"published weights has on held-out rows. {advice}"
    )


def _show_importance(found: Mapping[str, Any] | None) -> None:
    """Print on which source columns the model rests."""
    from operators.report.importances import summary_sentences

    if found is not None and "columns" in found:
        text = " ".join(summary_sentences(found))
        console.print(bold("columns") + f", {found['split']} rows: {text}", soft_wrap=True)


REFERENCE = "class-balanced ERM"
"""Heading of the column with the figures of the reference."""


def group_table(table: GroupTable, reference: Mapping[str, float | None] = MappingProxyType({})) -> Table:
    """Return the accuracy of each group; the worst is marked, and so are those with too few rows to be it.

    ``reference``: group -> accuracy of the reference, in a column of its own if there is one.
    """
    numbers = ("rows", "accuracy", "95 % interval", *([REFERENCE] if reference else []), "train rows")
    shown = plain_table("group", *numbers, right=numbers)
    for group in table.groups[:MAX_GROUPS]:
        interval = f"{group.low:.3f}-{group.high:.3f}" if group.rows else ""
        label = group.group + (" (worst)" if group.group == table.worst_group else "")
        label += " (few rows)" if group.pooled and group.rows else ""
        label += " (wrong labels)" if table.is_nearly_all_wrong(group.group) else ""
        accuracy = _number(group.accuracy) if group.rows else "no rows"
        beside = [_number(reference.get(group.group))] if reference else []
        shown.add_row(label, f"{group.rows:,}", accuracy, interval, *beside, f"{group.train_rows:,}")
    return shown


def loss_sentence(evaluation: RegressionEvaluation) -> str:
    """Return the scores of a regression over all rows as one line."""
    from engine.training.page import shown_number

    shown = {"loss": evaluation.loss, "rmse": evaluation.rmse, "mae": evaluation.mae, "r2": evaluation.r2}
    text = ", ".join(f"{name} {shown_number(value)}" for name, value in shown.items())
    covered = "-" if evaluation.coverage is None else f"{evaluation.coverage:.1%}"
    return f"{evaluation.objective}: {text}; {covered} of the targets at most the prediction"


def loss_table(table: LossTable, reference: Mapping[str, float | None] = MappingProxyType({})) -> Table:
    """Return the mean loss of each group; the worst one is marked, and so are groups of few rows."""
    from engine.training.page import shown_number

    numbers = ("rows", "mean loss", "95 % interval", *([REFERENCE] if reference else []), "train rows")
    shown = plain_table("group", *numbers, right=numbers)
    for group in table.groups[:MAX_GROUPS]:
        label = group.group + (" (worst)" if group.group == table.worst_group else "")
        label += " (few rows)" if group.pooled else ""
        ends = f"{group.low:.4g}-{group.high:.4g}" if group.rows else ""
        loss = shown_number(group.loss) if group.rows else "no rows"
        beside = [shown_number(reference.get(group.group))] if reference else []
        shown.add_row(label, f"{group.rows:,}", loss, ends, *beside, f"{group.train_rows:,}")
    return shown


def _tails(evaluation: Evaluation) -> Table:
    """Return a table with the CVaR of a mixture and that of a single model with the same error."""
    names = ("CVaR of alpha", "mixture", "mixed for this alpha", "single model of this error")
    shown = plain_table(*names, right=names)
    for point in evaluation.cvar:
        values = (point.value, point.reweighted, point.deterministic)
        shown.add_row(f"{point.alpha:g}", *map(_number, values))
    return shown


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def retrain(
    dataset: Annotated[
        str, typer.Option(metavar="NAME[@VERSION]", help="Output folder of a recipe, or its name on MLflow")
    ],
    trainer: Annotated[
        str, typer.Option(help="erm, resample, gdro, cvar_doro, chi2_dro, dfr, jtt or boosted_cvar")
    ] = "erm",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A key of the trainer; repeatable")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,VALUE", help="Try these; the worst inferred group decides; repeatable"
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1, help="Random draws from --grid, where KEY=LOW..HIGH may be ranges, not all cells"
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Trainings of each candidate; default 1, with --trials 3")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="After each seed, only the better half of the candidates goes on")
    ] = False,
    sampler: Annotated[
        str | None,
        typer.Option(help="grid, random, or tpe: draws that learn from those before (the extra tune)"),
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="boosted_cvar: mix the base models for this tail, without training")
    ] = None,
    register: Annotated[
        str | None, typer.Option(metavar="NAME", help="Register the model on MLflow as challenger")
    ] = None,
    promote_if: Annotated[str | None, typer.Option(help=f'Such as "{EXAMPLE}"')] = None,
    reference: Annotated[
        str,
        typer.Option(
            help="Class-balanced ERM beside the model: auto (a linear model), same (its kind), none"
        ),
    ] = "auto",
    track: Annotated[
        bool, typer.Option(help="Record the training on MLflow, where the output or a server has it")
    ] = True,
    truth: Annotated[str | None, typer.Option(help="Column with true groups, for scores only")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    executor: Annotated[
        str, typer.Option(help="ray, local, or auto: local for small data without a grid or a cluster")
    ] = "auto",
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Train a robust model on a published version, evaluate it, and register it."""
    with print_errors(verbose):
        from engine.execution.cluster import set_environment
        from engine.recipe.search import sampler_named
        from engine.recipe.trainers import parse_params

        section = run_section(executor)
        set_environment(verbose)
        from engine.training.retrain import RetrainOptions, find_dataset, parse_grid, parse_settings
        from engine.training.training_run import TrainSpec

        params = parse_params({"trainer": trainer, **parse_settings(settings or [])}, "retrain")
        spec = TrainSpec(find_dataset(dataset), params, seed, truth=truth, mix_alpha=alpha)
        options = RetrainOptions(
            parse_grid(grid or []),
            trials,
            seeds,
            prune,
            name=register,
            promote_if=promote_if,
            sampler=sampler_named(sampler) if sampler else None,
            reference=reference,
            track=track,
        )
        with finish_on_sigterm():
            run_retrain(spec, options, section=section, as_json=as_json, verbose=verbose)
