"""The operator's section of the report: suspected shortcuts, with buttons that compose the answer to copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from operators.cues.named.recipe_text import yaml_reference
from operators.cues.output.curve_report import (
    COLUMNS,
    RULE,
    draw,
    group_word,
    is_overpriced,
    price_sentence,
    small_groups_sentence,
    summary_sentence,
    table_rows,
)
from operators.cues.output.curve_report import EXPLANATION as EXPLANATION_OF_CURVE
from operators.cues.output.leaking_values import leaking_values
from operators.cues.output.notes import left_out_warning, word_notes
from operators.cues.output.record import FoundCues, Suspect
from operators.cues.output.shown_suspects import (
    SEE_ROWS,
    answer_text,
    answers_explained,
    asked_suspects,
    balanced_unnamed,
    few_rows_sentence,
    is_entry,
    lowest_accuracies,
    sentence_on_entries,
    slice_text,
)
from operators.cues.output.verdict import possible_shortcut, summary, verdict
from operators.report import (
    SMALL_CLASSES,
    Finding,
    RecipeChoice,
    RecipeChoices,
    ReportFigure,
    ReportSection,
    ReportTable,
    Severity,
)
from operators.report.importances import draw as draw_importance
from operators.report.importances import (
    explanation,
    shown_columns,
    summary_sentences,
    table_columns,
)
from operators.report.importances import table_rows as importance_rows

MAX_CLASSES = 4
IN_SUMMARY = "Importance by source column, for a linear model on rows that it has not seen:"
OPTIONS = ("spurious", "legitimate")
EXPLANATION = (
    "A suspected shortcut is a feature that divides the rows on which a class-balanced model is right from "
    "those on which it is wrong. It can be honest signal: only you can tell. All figures are of rows that "
    "the models had not seen. Gain: rise of the accuracy of the worst class and side if label and slice are "
    "balanced, over the better of no weights and class balance. Cost: loss of balanced accuracy against "
    "class balance. Strength: from 0 to 1."
)
OWN_WEIGHTS = (
    "Here `weights` are those of `cues` alone, and so are those that sentences and figures call published. "
    "The published weights may be others, as operators.weights says `{}`."
)
ANSWER = (
    "Choose answers, copy the section into the recipe and run it again. Spurious features are balanced "
    "against the label, several of them together; a legitimate one has no part in the search. Only `cues` "
    "and the operators that read its result are computed again."
)


def cue_section(
    found: FoundCues, importance: Mapping[str, Any] | None = None, *, beside_cues: str = ""
) -> ReportSection:
    """Describe suspected shortcuts from the content of ``suspects.json``, and importance by source column.

    ``beside_cues``: the setting of ``weights`` by which published weights may be others; empty if none is.
    """
    own, whole = OWN_WEIGHTS.format(beside_cues) if beside_cues else "", verdict(found)
    content: list[Any] = [*([own] if own else ()), whole, *word_notes(found), *leaking_values(found)]
    if found["suspects"]:
        columns = (
            "slice",
            "rows",
            "accuracy inside",
            "accuracy outside",
            "gain",
            "cost",
            "strength",
            "answer",
        )
        rows = [_row(suspect, found) for suspect in found["suspects"]]
        content += [EXPLANATION, ReportTable(columns, rows)]
        content += [*filter(None, (few_rows_sentence(found),)), *answers_explained(found)]
        content += [said] if (said := sentence_on_entries(found)) else []
    items = choice_items(found)
    if items:
        content += [
            ANSWER,
            RecipeChoices(("operators", "cues"), OPTIONS, items),
        ]
    if curve := found.get("trade_off"):
        content += _trade_off(curve, said_before=whole)
    findings = [*([Finding(own.replace("`", ""))] if own else ()), *_findings(found)]
    if importance is not None:
        content += _importance(importance)
        findings.append(Finding(f"{IN_SUMMARY} {' '.join(importance_sentences(importance))}"))
    return ReportSection("Suspected shortcuts", content, findings, order=20)


def importance_sentences(record: Mapping[str, Any]) -> list[str]:
    """Say on which source columns a linear model and its worst group rest."""
    return summary_sentences(record, group_word(record))


def _importance(record: Mapping[str, Any]) -> list[Any]:
    """Return picture and table of the importance by source column."""
    word = group_word(record)
    description = "Accuracy that a linear model loses when the values of each source column are shuffled"
    hidden = len(record["columns"]) - len(shown_columns(record))
    more = (
        f" {hidden} more columns, which matter less, are listed by rowsieve cues OUTPUT --json."
        if hidden
        else ""
    )
    return [
        ReportFigure(draw_importance(record, word), description, "Importance by source column"),
        ReportTable(table_columns(record, word), importance_rows(record)),
        explanation(record, "a class-balanced linear model, on rows that it has not seen,", word) + more,
    ]


def _trade_off(record: Mapping[str, Any], said_before: str) -> list[Any]:
    """Return picture and table of the trade-off over the strength of weighting.

    Small groups are named unless the sentences ``said_before`` name them.
    """
    small = small_groups_sentence(record)
    description = "Mean and worst accuracy on held-out rows over the strength of weighting"
    caption = (
        f"Left: over the strength, with 95 % intervals. Right: worst {group_word(record)} over the mean."
    )
    return [
        summary_sentence(record),
        ReportFigure(draw(record), description, "Worst and mean accuracy over the strength", caption),
        ReportTable(COLUMNS, table_rows(record)),
        f"{EXPLANATION_OF_CURVE} {small}" if small not in said_before else EXPLANATION_OF_CURVE,
        RULE,
    ]


def choice_items(found: FoundCues) -> list[RecipeChoice]:
    """Return open suspects, one for each name of the recipe, and today's answers as items with buttons."""
    answers = zip(OPTIONS, (found["spurious"], found["legitimate"]), strict=True)
    answered = [(option, yaml_reference(reference)) for option, given in answers for reference in given]
    items = [RecipeChoice(value, value, option) for option, value in answered]
    slices = dict[str, list[str]]()
    for suspect in found["suspects"]:
        if suspect["answer"] == "open":
            slices.setdefault(yaml_reference(suspect["reference"]), []).append(suspect["slice"])
    return [*(RecipeChoice(", ".join(listed), name) for name, listed in slices.items()), *items]


def _findings(found: FoundCues) -> Sequence[Finding]:
    notes = [Finding(summary(found), "information")]
    notes += [Finding(note, "warning") for note in word_notes(found)]
    notes += [Finding(note, "warning") for note in leaking_values(found)]
    curve = found.get("trade_off") or {}
    if classes := curve.get("classes_left_out"):
        text = left_out_warning(classes)
        notes.append(Finding(f"{text[0].upper()}{text[1:]}", "warning", SMALL_CLASSES))
    if curve and is_overpriced(curve):
        price = (price_sentence(curve), "" if classes else small_groups_sentence(curve))
        notes.append(Finding(" ".join(filter(None, price)), "warning"))
    if balanced := balanced_unnamed(found):
        first = balanced[0]
        said = (
            f"The weights balance {first['slice']} ({first['share']:.0%} of the rows) against the label. "
            "If it is honest signal, say so under suspected shortcuts."
        )
        notes.append(Finding(said, "information"))
    if found["part"] and (asked := asked_suspects(found)):
        return *notes, _finding("A model may rely on a shortcut:", asked[0], "warning")
    if found["part"] == 0 and (possible := possible_shortcut(found)):
        return *notes, _finding(
            "A model leans on what may be a shortcut or honest signal:", possible, "information"
        )
    return notes


def _finding(begin: str, suspect: Suspect, severity: Severity) -> Finding:
    said = f"{begin} {suspect['slice']} ({suspect['share']:.0%} of the rows)."
    if is_entry(suspect):
        return Finding(f"{said} This has no meaning in words: {SEE_ROWS}.", severity)
    return Finding(f"{said} Say whether it is one under suspected shortcuts.", severity)


def _row(suspect: Suspect, found: FoundCues) -> tuple[str | float, ...]:
    return (
        slice_text(suspect),
        f"{suspect['share']:.1%}",
        accuracy_by_class(suspect["accuracy_inside"]),
        accuracy_by_class(suspect["accuracy_outside"]),
        f"{suspect['gain']:+.3f}",
        f"{suspect['cost']:+.3f}",
        f"{suspect['strength']:.2f}",
        answer_text(suspect, found),
    )


def accuracy_by_class(accuracies: Mapping[str, float | None]) -> str:
    """Return the accuracies of the classes as text: of many those of the lowest, the lowest first."""
    shown: Iterable[tuple[str, float | None]] = accuracies.items()
    if many := len(accuracies) > MAX_CLASSES:
        shown = lowest_accuracies(accuracies, MAX_CLASSES)
    texts = [f"{name}: " + ("–" if value is None else f"{value:.2f}") for name, value in shown]
    return ("lowest " if many else "") + (", ".join(texts) or "–")
