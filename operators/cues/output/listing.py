"""Suspected shortcuts in the words of the source, as ``suspects.json`` keeps them.

The report, ``rowsieve cues`` and programs read this file; ``recipe_section`` turns answers into the recipe's
text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from operators.base import OperatorError
from operators.bounded_json import read_json
from operators.cues.named.answers import Answers
from operators.cues.named.recipe_text import yaml_references
from operators.cues.named.references import FeatureColumns
from operators.cues.params import CuesParams
from operators.cues.sides.sides import Sides
from operators.encode.words import OR_MISSING, ElapsedWords, NumberWords, PartWords, YearWords

if TYPE_CHECKING:  # readers of the list need no scikit-learn
    from operators.cues.output.record import FoundCues
    from operators.cues.search.suspects import Suspect
    from operators.cues.state import CueState

SUSPECTS = "suspects.json"


def write_suspects(
    folder: Path,
    state: CueState,
    suspects: Sequence[Suspect],
    params: CuesParams,
    columns: FeatureColumns,
    **more: Any,
) -> None:
    """Write the suspects to ``suspects.json`` in the state folder.

    Parameters
    ----------
    folder
        State folder of the operator.
    state
        Fitted weights, whose evidence is recorded.
    suspects
        The strongest first.
    params, columns
        Answers of the recipe, and the names of the features.
    more
        Further entries: ``classes`` (names in the order of their index), ``sample_rows``, ``binary``
        (features that have two values, by position), ``undivided`` (named shortcuts without two sides),
        ``unclear`` (sentences on words that cannot be balanced as meant), ``trade_off``
        (``curve.measured_curve``; None without a search), ``leading`` (``importance.leading_column``) and
        ``found_words`` (``FoundWords.record``: words
        that are balanced though nobody named them).

    Notes
    -----
    The entry ``part`` is the part of the robust factor that is followed, ``CueState.blend``; None where the
    recipe names shortcuts that divide the rows. What the evidence alone allows is the operator's metric
    ``gate``.

    """
    from operators.cues.state import summary

    answers = Answers.of(params, columns)
    binary: Mapping[int, tuple[float, float]] = more.pop("binary")
    leading: str | None = more.pop("leading", None)
    classes: Sequence[str] = more["classes"]
    found_by_search = state.named is None or bool(more["found_words"])
    kept = _kept(state, columns, answers, suspects)
    unnamed = [*(_balanced_columns(state, columns) or ()), *kept, *more["found_words"]]
    record = {
        **more,
        "robustness": params.robustness,
        "spurious": params.model_dump(mode="json")["spurious"],
        "legitimate": params.model_dump(mode="json")["legitimate"],
        "part": state.blend if found_by_search else None,
        "balanced_columns": _balanced_columns(state, columns),
        **_class_sets(state, classes),
        **({} if state.leaning_column is None else {"leaning": shortcut_names(state, columns)[0]}),
        **({"several": True} if state.further and state.blend > 0 else {}),
        **_wrong_labels(state, classes),
        **({"kept": kept} if kept else {}),
        **summary(state),
        "suspects": [
            _record(s, columns, answers, classes, binary.get(s.feature))
            | ({"leads": True} if _source(s.feature, columns) == leading else {})
            | ({"balanced": True} if _is_balanced(s, columns, unnamed) else {})
            for s in suspects
        ],
    }
    (folder / SUSPECTS).write_text(json.dumps(_finite(record), indent=1, ensure_ascii=False), "utf-8")


def _balanced_columns(state: CueState, columns: FeatureColumns) -> list[str] | None:
    """Return the column whose values stand for the classes, where the weights balance it without a name.

    These are several columns where each is a value, as in a table whose categories were encoded before, or
    where several carry a shortcut.
    """
    if state.class_column is None or state.blend <= 0:
        return None
    return list(dict.fromkeys(name for sides in state.class_columns for name in _sources(sides, columns)))


def _is_balanced(suspect: Suspect, columns: FeatureColumns, unnamed: Sequence[Any]) -> bool:
    """Return whether a suspect is among the columns and words that are balanced without a name.

    ``unnamed``: names of columns, and ``column`` and ``words`` of words.
    """
    positions = (suspect.feature, *suspect.same)
    known = [one for one in positions if one < columns.n_features]
    mentions = [columns.mentions[one - columns.n_features] for one in positions if one not in known]
    words = {(one["column"], word) for one in unnamed if isinstance(one, Mapping) for word in one["words"]}
    names = {name for one in known for name in (columns.name(one), _source(one, columns))}
    return not names.isdisjoint(one for one in unnamed if isinstance(one, str)) or any(
        (one.column, word) in words for one in mentions for word in one.words
    )


def _class_sets(state: CueState, classes: Sequence[str]) -> dict[str, list[list[str]]]:
    """Return the names of the classes of each set that the balanced column tells, the smallest set first."""
    if state.class_column is None or state.blend <= 0 or not state.class_column.class_sets:
        return {}
    return {
        "class_sets": [[classes[c] for c in one] for one in sorted(state.class_column.class_sets, key=len)]
    }


def _wrong_labels(state: CueState, classes: Sequence[str]) -> dict[str, dict[str, list[float]]]:
    """Return class -> rows that break the shortcut and expected wrong labels among them, if any."""
    if state.right_labels is None or state.blend <= 0:
        return {}
    counted = state.right_labels.wrong_by_class()
    return {"wrong_labels": {classes[c]: [rows, wrong] for c, (rows, wrong) in counted.items()}}


def _kept(
    state: CueState, columns: FeatureColumns, answers: Answers, suspects: Sequence[Suspect]
) -> list[str]:
    """Return the columns that are balanced beside the named ones, as the search has found them."""
    if not answers.spurious or state.blend <= 0:
        return []
    same = {other for one in suspects if one.feature in answers.spurious for other in one.same}
    named = answers.spurious | same
    unnamed = [sides for sides in state.named or () if named.isdisjoint(sides.columns)]
    return list(dict.fromkeys(name for sides in unnamed for name in _sources(sides, columns)))


def shortcut_names(state: CueState, columns: FeatureColumns) -> list[str]:
    """Return a name of each column of ``state.compared``, or of the one that decided on class balance."""
    compared = state.compared if state.leaning_column is None else (state.leaning_column,)
    return [", ".join(dict.fromkeys(_sources(sides, columns))) for sides in compared]


def _sources(sides: Sides, columns: FeatureColumns) -> list[str]:
    return [_source(one, columns) for one in sides.columns]


def _source(position: int, columns: FeatureColumns) -> str:
    """Return the source column of a feature; its own name where no source is known."""
    known = position in range(len(columns.outputs))
    return columns.outputs[position].source if known else columns.name(position)


def read_suspects(folder: Path) -> FoundCues:
    """Return what ``write_suspects`` wrote; up to version 40 of the operator ``part`` was called ``gate``."""
    record: dict[str, Any] = read_json(folder / SUSPECTS)
    if "part" not in record:
        record["part"] = record.pop("gate", None)
    return cast("FoundCues", record)


def recipe_section(spurious: Sequence[Any], legitimate: Sequence[Any]) -> str:
    """Return the recipe's section with these answers, as YAML.

    Parameters
    ----------
    spurious, legitimate
        References as a recipe writes them: text, a list of texts, or a mapping with ``column`` and ``cut``.

    """
    lines = ["operators:", "  cues:"]
    lines += [f"    spurious: {yaml_references(spurious)}"] if spurious else []
    lines += [f"    legitimate: {yaml_references(legitimate)}"] if legitimate else []
    return "\n".join(lines if len(lines) > 2 else ["operators:", "  cues: {}"]) + "\n"


def _record(
    suspect: Suspect,
    columns: FeatureColumns,
    answers: Answers,
    classes: Sequence[str],
    values: tuple[float, float] | None,
) -> dict[str, Any]:
    name, words = columns.name(suspect.feature), columns.words_of(suspect.feature)
    given = (answers.answer(position) for position in (suspect.feature, *suspect.same))
    inside = words.condition(suspect.gap)
    if values and isinstance(words, NumberWords):
        low, high = (float(words.scale.backward(value)) for value in values)
        inside = f"{name} is {high:g} (not {low:g})" + inside[len(inside.removesuffix(OR_MISSING)) :]
    reference = recipe_reference(suspect.feature, columns, inside)
    also = [_whole_name(position, columns) for position in suspect.same]
    return {
        "feature": name,
        "also": [one for one in dict.fromkeys(also) if one not in (reference, name)],
        "position": suspect.feature,
        "cut": words.threshold(suspect.gap),
        # the feature of words is a direction, and rows above 0 have them; their marks are 0 and 1
        "feature_cut": 0.0 if suspect.feature >= columns.n_features else suspect.gap.middle,
        "slice": inside,
        "answer": next((answer for answer in given if answer != "open"), "open"),
        "reference": reference,
        "share": suspect.share,
        "share_by_class": _by_class(suspect.share_by_class, classes),
        "accuracy_inside": _by_class(suspect.accuracy_inside, classes),
        "accuracy_outside": _by_class(suspect.accuracy_outside, classes),
        "gain": suspect.gain,
        "gain_rows": suspect.gain_rows,
        "small_cells": list(suspect.small_cells),
        "cost": suspect.cost,
        "strength": suspect.strength,
        **({"stands_out": True} if suspect.stands_out else {}),
    }


def recipe_reference(position: int, columns: FeatureColumns, inside: str) -> Any:
    """Return how the recipe names a suspect.

    A column of categories is named as a whole: its other values tell about as much of the label. A point in
    time, or a part of a date, is named as its slice: the name of the column answers for its other parts, too.
    Where that name is the one of another column, such as ``n > 3``, the feature's own column is named.
    """
    if position >= columns.n_features:
        return columns.mentions[position - columns.n_features].model_dump(mode="json")
    of_date = isinstance(columns.words_of(position), ElapsedWords | PartWords | YearWords)
    name = inside if of_date else _whole_name(position, columns)
    try:
        is_meant = position in columns.meaning(name).positions
    except OperatorError:  # a slice that holds for no row cannot be told
        is_meant = False
    return name if is_meant else columns.source(position)


def _whole_name(position: int, columns: FeatureColumns) -> str:
    """Return the name of a feature, or of its column where that is one of categories."""
    if columns.outputs and (output := columns.outputs[position]).kind == "categorical":
        whole = position in columns.meaning(output.source).main
        return output.source if whole else columns.name(position)
    return columns.name(position)


def _by_class(values: npt.NDArray[np.floating[Any]], classes: Sequence[str]) -> dict[str, float]:
    return dict(zip(classes, values.tolist(), strict=True))


def _finite(value: Any) -> Any:
    """Return JSON values with None in place of NaN and infinities."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
