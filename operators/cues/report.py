"""The operator's section of the report: suspected shortcuts, with buttons that compose the answer to copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from operators.cues.curve_report import (
    COLUMNS,
    RULE,
    baseline_sentence,
    draw,
    group_word,
    summary_sentence,
    table_rows,
)
from operators.cues.curve_report import EXPLANATION as EXPLANATION_OF_CURVE
from operators.cues.evidence import EQUAL_RIVAL
from operators.cues.listing import yaml_reference
from operators.cues.params import DEAR, DEAR_IF_HONEST
from operators.metrics.group_scores import pooled_name
from operators.report import Finding, RecipeChoice, RecipeChoices, ReportFigure, ReportSection, ReportTable
from operators.report.importances import draw as draw_importance
from operators.report.importances import (
    explanation,
    shown_columns,
    summary_sentences,
    table_columns,
)
from operators.report.importances import table_rows as importance_rows

MAX_CLASSES = 4
NO_AGREEMENT = 0.5
"""Agreement of slices and twins below which no single feature carries the suspected shortcut."""
IN_SUMMARY = "Importance by source column, for a linear model on rows that it has not seen:"
OPTIONS = ("spurious", "legitimate")
WORDS_IF_HONEST = "; if the words are honest signal, that is a loss: name them under `legitimate`"
WEAKEST = {
    "share_support": "it lies in class shares of a column of many values, and the other columns do not "
    "support that this is a shortcut; name the column if it is one",
    "lead_support": "the other columns do not support that the column on which models lean most carries one; "
    "name it if it does",
    "not_honest": "balancing the column on which models lean most gains little on held-out rows, as with an "
    "honest column or with wrong labels; name it if it carries a shortcut",
}
"""Words for the measurement that shuts the gate, where its name does not say it."""
EXPLANATION = (
    "A suspected shortcut is a feature that divides the rows on which a class-balanced model is right from "
    "those on which it is wrong. It can be honest signal: only you can tell. All figures are of rows that "
    "the models had not seen. Gain: rise of the accuracy of the worst class and side if label and slice are "
    "balanced, over the better of no weights and class balance. Cost: loss of balanced accuracy against "
    "class balance. Strength: from 0 to 1."
)
ANSWER = (
    "Choose answers, copy the section into the recipe and run it again. Spurious features are balanced "
    "against the label, several of them together; a legitimate one has no part in the search. Only weights "
    "and what depends on them are computed again."
)


def cue_section(found: Mapping[str, Any], importance: Mapping[str, Any] | None = None) -> ReportSection:
    """Describe suspected shortcuts from the content of ``suspects.json``, and importance by source column."""
    content: list[Any] = [verdict(found), *word_notes(found)]
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
        content += [EXPLANATION, ReportTable(columns, [_row(suspect) for suspect in found["suspects"]])]
    items = choice_items(found)
    if items:
        content += [
            ANSWER,
            RecipeChoices(("operators", "cues"), OPTIONS, items),
        ]
    if found.get("trade_off"):
        content += _trade_off(found["trade_off"])
    findings = [*_findings(found)]
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


def _trade_off(record: Mapping[str, Any]) -> list[Any]:
    """Return picture and table of the trade-off over the strength of weighting."""
    description = "Mean and worst accuracy on held-out rows over the strength of weighting"
    caption = (
        f"Left: over the strength, with 95 % intervals. Right: worst {group_word(record)} over the mean."
    )
    pooled = record["pooled"]
    return [
        summary_sentence(record),
        ReportFigure(draw(record), description, "Worst and mean accuracy over the strength", caption),
        ReportTable(COLUMNS, table_rows(record)),
        EXPLANATION_OF_CURVE + (f" Pooled: {pooled_name(pooled)}." if pooled else ""),
        RULE,
    ]


def verdict(found: Mapping[str, Any]) -> str:
    """Say what the weights are, and what they win and cost against the baseline."""
    measured = f" {baseline_sentence(found['trade_off'])}" if found.get("trade_off") else ""
    if found["reason"]:
        return f"No shortcut was searched for ({found['reason']}). The weights balance the classes."
    if found.get("found_words"):
        return f"{words_sentence(found)}{_named_price(found)}.{measured}"
    if found["gate"] is None and (undivided := found.get("undivided")):
        return (
            f"The recipe names {' and '.join(undivided)} as spurious, but no usable cut divides the rows "
            "there, so that nothing is balanced against the label for it."
        )
    if found["gate"] is None and not found.get("blend", 1.0):
        return (
            "Even a seventh of the balance of the shortcuts that the recipe names would cost more than "
            "`max_named_cost` allows, so that nothing is balanced against the label for them; they may be "
            f"honest signal. `max_named_cost: 1` balances them whatever it costs.{measured}"
        )
    if found["gate"] is None:
        return (
            "The shortcuts that the recipe names are balanced against the label"
            + _named_price(found)
            + f".{measured}"
        )
    if found.get("carrier"):
        return _carrier_sentence(found) + measured
    if found["gate"] > 0:
        return f"{_searched_sentence(found)}{measured}{_strongest(found)}"
    weakest = WEAKEST.get(found["weakest"], str(found["weakest"]).replace("_", " "))
    extra = " Robustness bold balances the slices below in part." if found["slice_blend"] else ""
    how = {1.0: "balance the classes", 0.0: "are the same for all rows"}.get(
        found["class_strength"], "balance the classes in part"
    )
    weak = f"The evidence for a shortcut is weak ({weakest}), so that the weights {how}.{measured}{extra}"
    return weak + _equal_suspects(found)


def _searched_sentence(found: Mapping[str, Any]) -> str:
    """Say why the weights follow the robust ones, and how far."""
    if found.get("expected_gain"):
        return f"{expected_sentence(found)}: the weights follow the robust ones in full."
    share = "in full" if found["gate"] == 1 else f"by {found['gate']:.0%}, and class balance for the rest"
    return f"Several kinds of evidence for a shortcut agree: the weights follow the robust ones {share}."


def expected_sentence(found: Mapping[str, Any]) -> str:
    """Say what gain is expected, without a full stop."""
    return (
        "The evidence for a shortcut does not suffice by itself, but on tables with measurements like these, "
        "whose groups were known, the accuracy of the worst group rose by about "
        f"{found['expected_gain']:.2f}"
    )


def _strongest(found: Mapping[str, Any]) -> str:
    """Name the strongest open suspect, and what to do if it is honest; or say that no single feature carries
    the shortcut."""
    if (found["evidence"] or {}).get("agreement", 1.0) < NO_AGREEMENT:
        return " No single feature carries it, so that the list of slices can miss it."
    if said := _equal_suspects(found):
        return said
    suspects = [suspect for suspect in found["suspects"] if suspect["answer"] == "open"]
    if not suspects:
        return ""
    first = suspects[0]
    return (
        f" The strongest suspect is `{first['slice']}`: if it is honest signal, name "
        f"`{yaml_reference(first['reference'])}` under `legitimate`."
    )


def _equal_suspects(found: Mapping[str, Any]) -> str:
    """Name two columns that are suspected about equally, which only the user can tell apart; empty if there
    are none."""
    if (found["evidence"] or {}).get("lead_rival", 0.0) < EQUAL_RIVAL:
        return ""
    names = [yaml_reference(one["reference"]) for one in found["suspects"] if one["answer"] == "open"]
    first, *others = dict.fromkeys(names) or [""]
    if not others:
        return ""
    return (
        f" `{first}` and `{others[0]}` are suspected about equally, and nothing measured tells which one "
        "carries a shortcut: name that one under `spurious`, and honest signal under `legitimate`."
    )


def _carrier_sentence(found: Mapping[str, Any]) -> str:
    """Say which column stands for the classes, or which columns of one value each, and how far that is
    balanced."""
    names = [found["carrier"]] if isinstance(found["carrier"], str) else found["carrier"]
    *first, last = (f"`{name}`" for name in names)
    listed = f"{', '.join(first)} and {last}" if first else last
    column, it_is, it = ("columns", "they are", "them") if first else ("column", "it is", "it")
    share = "in full" if found["gate"] == 1 else f"by {found['gate']:.0%}"
    reason = ", and the other columns tell the label without telling which rows break that"
    if found.get("expected_gain"):
        reason = f". {expected_sentence(found)}"
    return (
        f"The values of {listed} stand for the classes{reason}: the label is made independent of the "
        f"{column} {share}. If {it_is} honest signal, name {it} under `legitimate`."
    )


def words_sentence(found: Mapping[str, Any]) -> str:
    """Say which words of texts were found to carry a shortcut, without a full stop."""
    sets = [(one["column"], _quoted(one["words"])) for one in found["found_words"]]
    named = " and ".join(f"{words} in `{column}`" for column, words in sets)
    return (
        f"Words carry a shortcut: {named} go with the label, and the other words neither tell the label as "
        "well nor, given the label, whether these occur. They are balanced against the label"
    )


def _quoted(words: Sequence[str]) -> str:
    return " or ".join(f"'{word}'" for word in words)


def _named_price(found: Mapping[str, Any]) -> str:
    """Say how far named shortcuts are balanced and what it costs; empty where it was not measured."""
    if "named_cost" not in found:
        return ""
    advice = WORDS_IF_HONEST if found.get("found_words") else DEAR_IF_HONEST
    part, cost = f"{found['blend']:.0%}", found["named_cost"]
    price = f" by {part}, which costs {cost:.3f} of balanced accuracy on held-out rows"
    if found.get("searched_part"):
        share = f"{found['searched_part']:.0%}"
        price += f"; the search finds a shortcut as well, which has {share} of the robust weights"
    return price + (advice if cost > DEAR else "")


def word_notes(found: Mapping[str, Any]) -> list[str]:
    """Return sentences on words of the recipe that cannot be balanced as meant."""
    return [f"Words that the recipe names: {sentence}" for sentence in found.get("unclear", ())]


def choice_items(found: Mapping[str, Any]) -> list[RecipeChoice]:
    """Return open suspects and today's answers as items with buttons."""
    answered = [(option, yaml_reference(reference)) for option in OPTIONS for reference in found[option]]
    items = [RecipeChoice(value, value, option) for option, value in answered]
    suspects = [suspect for suspect in found["suspects"] if suspect["answer"] == "open"]
    return [*(RecipeChoice(s["slice"], yaml_reference(s["reference"])) for s in suspects), *items]


def _findings(found: Mapping[str, Any]) -> Sequence[Finding]:
    notes = [Finding(note, "warning") for note in word_notes(found)]
    suspects = [suspect for suspect in found["suspects"] if suspect["answer"] == "open"]
    if not found["gate"] or not suspects:
        return notes
    first = suspects[0]
    return (
        *notes,
        Finding(
            f"A model may rely on a shortcut: {first['slice']} ({first['share']:.0%} of the rows). Say "
            "whether it is one under suspected shortcuts.",
            "warning",
        ),
    )


def _row(suspect: Mapping[str, Any]) -> tuple[str | float, ...]:
    return (
        suspect["slice"],
        f"{suspect['share']:.1%}",
        accuracy_by_class(suspect["accuracy_inside"]),
        accuracy_by_class(suspect["accuracy_outside"]),
        f"{suspect['gain']:+.3f}",
        f"{suspect['cost']:+.3f}",
        f"{suspect['strength']:.2f}",
        suspect["answer"],
    )


def accuracy_by_class(accuracies: Mapping[str, float | None]) -> str:
    """Return the accuracies of the first classes as text."""
    texts = [f"{name}: " + ("–" if value is None else f"{value:.2f}") for name, value in accuracies.items()]
    return ", ".join(texts[:MAX_CLASSES]) + (", ..." if len(texts) > MAX_CLASSES else "")
