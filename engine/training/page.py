"""HTML report of a trained model: groups, tail losses, calibration, and the version it was trained on."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.core.json_files import write_text
from engine.report.templates import template
from engine.training.data.version import Version
from engine.training.evaluation.by_group import INFERRED, Evaluation, GroupScore, GroupTable
from engine.training.evaluation.plots import IMPORTANCE, MAX_GROUPS, PLOTS, STRENGTH
from engine.training.evaluation.regression_scores import LossScore, LossTable, RegressionEvaluation
from engine.training.reference import Reference
from engine.training.training_run import TrainResult
from operators.counts import count
from operators.metrics.group_scores import group_name
from operators.report.text import interval, percent

if TYPE_CHECKING:
    from engine.training.promotion import PromotionDecision
    from engine.training.registration import RegisteredModel
    from engine.training.search import SearchResult

PAGE = "report.html"
NO_FACTOR = "no robust weights differ within a class"
CHOSEN_HERE = (
    "The mixture, or the best epoch or setting, may have been chosen on these rows: then these figures are "
    "too good. Test rows (split.test in the recipe) tell."
)


def write_page(
    result: TrainResult,
    registered: RegisteredModel | None = None,
    verdict: PromotionDecision | None = None,
    reference: Reference | None = None,
    selection: SearchResult | None = None,
) -> Path:
    """Write ``report.html`` into the model's folder, from its scores and pictures; return the path."""
    about = result.model.about
    text = template("model.html.j2").render(
        title=f"{about['trainer']} on {result.version.name}",
        version=result.version,
        recipe=result.version.manifest["recipe"],
        record=result.record,
        models=len(result.model.models),
        seed=about.get("seed", 0),
        sentences=sentences(result, verdict)
        + ([f"Search by {selection.sampler}: {selection.sentence()}."] if selection else []),
        strength=_strength(result),
        importance=_importance(result),
        parts=[
            _part(result, split, found, reference) for split, found in reversed(result.evaluations.items())
        ],
        regressions=[
            _numbers(result, split, found, reference) for split, found in reversed(result.regressions.items())
        ],
        folder=str(result.folder),
        dataset_report=dataset_report(result.version, result.folder),
        registered=registered,
        params={key: json.dumps(value) for key, value in about.get("params", {}).items()},
    )
    write_text(result.folder / PAGE, text)
    return result.folder / PAGE


def dataset_report(version: Version, folder: Path) -> str | None:
    """Return the path of the version's report relative to a model's folder; None unless both are local."""
    path = version.output / "reports" / f"{version.name}.html"
    if not isinstance(path, Path) or not path.exists():
        return None
    return Path(os.path.relpath(path, folder)).as_posix()


NO_SCORES = (
    "There are no validation or test rows, so nothing is known about how good the model is. Set "
    "split.validation and split.test in the recipe; if they are set, its run has warned why no row was drawn."
)


def sentences(result: TrainResult, verdict: PromotionDecision | None = None) -> list[str]:
    """Return the main findings as sentences, about the test rows where there are some."""
    texts = []
    for split in ("test", "validation"):
        if split in result.evaluations:
            texts.append(_worst(split, result.evaluations[split]))
            break
        if split in result.regressions:
            texts.append(_worst_loss(split, result.regressions[split]))
            break
    else:
        texts.append(NO_SCORES)
    if result.evaluations and (undivided := result.version.undivided_groups):
        texts.append(undivided[0].upper() + undivided[1:])
    if verdict is not None:
        now = "The model is champion now" if verdict.promoted else "The champion stays"
        texts.append(f"{now}: {verdict.reason}.")
    return texts


def _worst(split: str, evaluation: Evaluation) -> str:
    table = evaluation.groupings[INFERRED]
    if table.worst_group is None or table.worst_group_accuracy is None or evaluation.accuracy is None:
        return f"No inferred group has rows among the {split} rows."
    bounds = (table.worst_group_low or 0.0, table.worst_group_high or 1.0)
    return (
        f"On {count(evaluation.rows, split + ' row')} the model is worst on {group_name(table.worst_group)}: "
        f"{percent(table.worst_group_accuracy)} of {count(table.worst_group_rows, 'row')} right, against "
        f"{percent(evaluation.accuracy)} overall. With 95 % confidence the accuracy of the worst group lies "
        f"within {interval(bounds)}.{_notes(table)}"
    )


def _notes(table: GroupTable | LossTable) -> str:
    """Return the sentence on groups of few rows or wrong labels, behind another one; empty without any."""
    text = table.notes()
    return f" {text[0].upper()}{text[1:]}." if text else ""


def _worst_loss(split: str, evaluation: RegressionEvaluation) -> str:
    table = evaluation.groupings[INFERRED]
    if table.worst_group is None or table.worst_group_loss is None or evaluation.loss is None:
        return f"No inferred group has rows among the {split} rows."
    name = group_name(table.worst_group)
    return (
        f"On {count(evaluation.rows, split + ' row')} the model is worst on {name}: a mean loss "
        f"({evaluation.objective}) of {table.worst_group_loss:.4g} on "
        f"{count(table.worst_group_rows, 'row')}, against {evaluation.loss:.4g} overall. With 95 % "
        f"confidence the loss of the worst group lies within {table.worst_group_low:.4g} to "
        f"{table.worst_group_high:.4g}.{_notes(table)}"
    )


def _numbers(
    result: TrainResult, split: str, evaluation: RegressionEvaluation, reference: Reference | None
) -> dict[str, Any]:
    """Return the part of the page about one split of a regression."""
    pictures = result.folder / PLOTS / split
    return {
        "name": split,
        "rows": evaluation.rows,
        "note": CHOSEN_HERE if split == "validation" else "",
        "reference": reference.sentence(split) if reference else "",
        "figures": {
            "mean loss": shown_number(evaluation.loss),
            "root mean squared error": shown_number(evaluation.rmse),
            "mean absolute error": shown_number(evaluation.mae),
            "R²": shown_number(evaluation.r2),
            "target at most the prediction": "–"
            if evaluation.coverage is None
            else percent(evaluation.coverage),
        },
        "tables": [
            {
                "name": name,
                "worst": table.worst_group,
                "rows": [_loss_row(group) for group in _worst_first(table)[:MAX_GROUPS]],
                "reference": _beside(reference, split, name, shown_number),
                "hidden": max(len(table.groups) - MAX_GROUPS, 0),
                "notes": table.notes(),
                "picture": _data_uri(pictures / f"groups-{name}.png"),
            }
            for name, table in evaluation.groupings.items()
        ],
    }


def _worst_first(table: LossTable) -> list[LossScore]:
    return sorted(table.groups, key=lambda group: -1.0 if group.loss is None else group.loss, reverse=True)


def _loss_row(group: LossScore) -> dict[str, Any]:
    ends = f"{group.low:.4g} – {group.high:.4g}" if group.rows else "no rows here"
    return {
        "group": group.group,
        "rows": group.rows,
        "loss": shown_number(group.loss),
        "ends": ends,
        "train_rows": group.train_rows,
    }


def shown_number(value: float | None) -> str:
    """Return a number of any unit with four digits; a dash for none."""
    return "–" if value is None else f"{value:.4g}"


def _beside(
    reference: Reference | None, split: str, grouping: str, shown: Callable[[float], str]
) -> dict[str, str]:
    """Return the reference's figure of each group that has rows; empty without a reference."""
    found = reference.by_group(split, grouping) if reference else {}
    return {group: shown(value) for group, value in found.items() if value is not None}


def _part(
    result: TrainResult, split: str, evaluation: Evaluation, reference: Reference | None
) -> dict[str, Any]:
    pictures = result.folder / PLOTS / split
    return {
        "name": split,
        "rows": evaluation.rows,
        "accuracy": "–" if evaluation.accuracy is None else percent(evaluation.accuracy),
        "note": CHOSEN_HERE if split == "validation" else "",
        "reference": reference.sentence(split) if reference else "",
        "tables": [
            _table(name, table, pictures / f"groups-{name}.png")
            | {"reference": _beside(reference, split, name, percent)}
            for name, table in evaluation.groupings.items()
        ],
        "cvar": _data_uri(pictures / "cvar.png"),
        "calibration": _data_uri(pictures / "calibration.png"),
    }


def _strength(result: TrainResult) -> dict[str, Any] | None:
    """Return the section about the strength of weighting; None if the published weights were used."""
    from operators.cues.output.curve_report import COLUMNS, EXPLANATION, table_rows

    found = result.record.get("strength")
    if found is None:
        return None
    return {
        "sentence": strength_sentence(found),
        "explanation": EXPLANATION,
        "columns": COLUMNS,
        "rows": table_rows(found["trade_off"], found["strength"]),
        "picture": _data_uri(result.folder / PLOTS / STRENGTH),
    }


def _importance(result: TrainResult) -> dict[str, Any] | None:
    """Return the section about importance by source column; None if it was not measured."""
    from operators.report.importances import explanation, summary_sentences, table_columns, table_rows

    found = result.importance
    if found is None:
        return None
    if "columns" not in found:
        return {"sentences": [f"It is not given: {found['reason']}."], "rows": []}
    rows = table_rows(found)
    return {
        "sentences": summary_sentences(found),
        "columns": table_columns(found),
        "rows": rows,
        "hidden": len(found["columns"]) - len(rows),
        "explanation": explanation(found, f"the model, on {found['split']} rows,"),
        "picture": _data_uri(result.folder / PLOTS / IMPORTANCE),
    }


def strength_sentence(found: Mapping[str, Any]) -> str:
    """Return a sentence about the chosen strength: the rule, and the accuracies on held-out train rows."""
    from operators.cues.output.curve_report import class_balance_sentence, group_word, small_groups_sentence

    curve = found["trade_off"]
    best = max(point["mean_accuracy"] for point in curve["points"])
    point = next(p for p in curve["points"] if p["strength"] == found["strength"])
    end = (
        f" Beyond strength 1 there is nothing to try: {NO_FACTOR}." if found["end"] == "class balance" else ""
    )
    small = small_groups_sentence(curve)
    return (
        f"The strength of weighting is {found['strength']:g}, the largest whose mean accuracy is at most "
        f"{found['max_mean_loss']:g} below the best ({best:.3f}) and whose worst group is no "
        f"worse than without weights: by linear models on "
        f"{count(curve['rows'], 'train row')}, each scored on rows that it has not seen, it is "
        f"{point['mean_accuracy']:.3f} and the worst {group_word(curve)} has "
        f"{point['worst_accuracy']:.3f}.{class_balance_sentence(curve, point)}{end}{small and f' {small}'}"
    )


def _table(name: str, table: GroupTable, picture: Path) -> dict[str, Any]:
    shown = sorted(table.groups, key=_by_accuracy)[:MAX_GROUPS]
    return {
        "name": name,
        "worst": table.worst_group,
        "average": "–" if table.average is None else percent(table.average),
        "groups": [group for group in table.groups if group in shown],
        "hidden": len(table.groups) - len(shown),
        "nearly_all_wrong": {group.group for group in table.groups if table.is_nearly_all_wrong(group.group)},
        "notes": table.notes(),
        "picture": _data_uri(picture),
    }


def _by_accuracy(group: GroupScore) -> float:
    return 2.0 if group.accuracy is None else group.accuracy


def _data_uri(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
