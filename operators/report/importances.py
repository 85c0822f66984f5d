"""Permutation importance by source column: sentences, a table and a picture for people.

A record is what ``operators.metrics.importance.PermutationImportance.to_dict`` returns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connectors.foundation.messages import cut, first_of
from operators.counts import count
from operators.report.sections import SOURCE_COLUMN
from operators.report.text import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 20
"""Columns that a table or a picture shows."""
NAMED, MAX_EQUAL = 5, 3
"""Columns that a sentence names, and those beside one of them that are equal to it."""
EQUAL = "equal columns"
"""Head of the table's last column, where it has one."""
MIN_CHANGE = 0.005
"""Least loss that a sentence names."""
MAX_CHARACTERS = 200
"""Characters of a column in the name of a metric; MLflow allows 250 in all."""


@dataclass(frozen=True)
class _Kind:
    """Words for the importances of one kind of model. Figures are parts of 1, or of the unshuffled loss."""

    mean: str
    worst: str
    scores: tuple[str, ...]
    """Names of the scores in the order of the table."""
    heads: tuple[str, ...]
    noun: str
    """Name of the mean score in a sentence."""
    lost: str
    gained: str
    falls: str
    fall: str
    least: str
    """Words for ``MIN_CHANGE``."""
    axis: str


CLASSES = _Kind(
    mean="balanced_accuracy",
    worst="worst_group_accuracy",
    scores=("balanced_accuracy", "accuracy", "worst_group_accuracy"),
    heads=(SOURCE_COLUMN, "balanced accuracy", "accuracy", "worst {word}"),
    noun="balanced accuracy",
    lost=" points lost",
    gained=" points gained",
    falls="falls",
    fall="fall",
    least="half a point of accuracy",
    axis="points of accuracy lost when the column is shuffled",
)
NUMBERS = _Kind(
    mean="loss",
    worst="worst_group_loss",
    scores=("loss", "worst_group_loss"),
    heads=(SOURCE_COLUMN, "mean loss", "loss of the worst {word}"),
    noun="the mean loss",
    lost=" % more",
    gained=" % less",
    falls="rises",
    fall="rise",
    least="half a percent of its loss",
    axis="% of the unshuffled loss that is added when the column is shuffled",
)


def _kind(record: Mapping[str, Any]) -> _Kind:
    return NUMBERS if NUMBERS.mean in record["baseline"] else CLASSES


def _unit(record: Mapping[str, Any], score: str) -> float:
    """Return what figures of a score are shown in parts of: 1 for accuracies, else the unshuffled loss."""
    return float(record["baseline"][score]) or 1.0 if _kind(record) is NUMBERS else 1.0


def clear_columns(record: Mapping[str, Any], score: str, sign: int = 1) -> list[tuple[str, float]]:
    """Return the columns whose shuffling clearly lowers (``sign`` 1) or raises (-1) a score, most first."""
    unit = _unit(record, score)
    found = [(entry["column"], entry[score]) for entry in record["columns"]]
    clear = [
        (name, sign * value["mean"] / unit)
        for name, value in found
        if sign * value["mean"] >= max(MIN_CHANGE * unit, value["margin"])
    ]
    return sorted(clear, key=lambda pair: (-pair[1], pair[0]))


def contrary_columns(record: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the columns on which the mean rests and without which the worst group gains, with the gain."""
    kind = _kind(record)
    helpful = {name for name, _ in clear_columns(record, kind.mean)}
    return [pair for pair in clear_columns(record, kind.worst, -1) if pair[0] in helpful]


def summary_sentences(record: Mapping[str, Any], word: str = "group") -> list[str]:
    """Say on which columns the mean and the worst group rest, and which help the one and harm the other.

    Parameters
    ----------
    record : the importances.
    word : what the worst is looked for among, "group" or "class".
    """
    kind = _kind(record)
    mean, worst = clear_columns(record, kind.mean), clear_columns(record, kind.worst)
    contrary = contrary_columns(record)
    noun = kind.noun[0].upper() + kind.noun[1:]
    texts = [
        f"{noun} rests most on {_named(record, mean, kind.lost)}."
        if mean
        else f"{noun} clearly rests on no single column."
    ]
    if worst:
        texts.append(f"The worst {word} rests most on {_named(record, worst, kind.lost)}.")
    if contrary:
        what = "This column may be a shortcut" if len(contrary) == 1 else "These columns may be shortcuts"
        named = _named(record, contrary, kind.gained)
        texts.append(
            f"The worst {word} gains where the values of {named} are shuffled, while "
            f"{kind.noun} {kind.falls}. {what}."
        )
    others = [pair for pair in clear_columns(record, kind.worst, -1) if pair not in contrary]
    if others:
        texts.append(
            f"The worst {word} gains where the values of {_named(record, others, kind.gained)} are shuffled; "
            f"{kind.noun} does not clearly {kind.fall}."
        )
    if not (worst or contrary or others) and record["columns"]:
        texts.append(_unclear(record, word))
    return texts


def _unclear(record: Mapping[str, Any], word: str) -> str:
    """Say that no column clearly changes the worst group, and which one has the largest change."""
    kind, unit = _kind(record), _unit(record, _kind(record).worst)
    largest = max(record["columns"], key=lambda entry: abs(entry[kind.worst]["mean"]))
    change, margin = largest[kind.worst]["mean"] / unit, largest[kind.worst]["margin"] / unit
    if abs(change) < MIN_CHANGE:
        return f"For the worst {word} each column changes less than {kind.least}."
    what = kind.lost if change > 0 else kind.gained
    return (
        f"For the worst {word} no column has a change beyond its margin; the largest is that of "
        f"{_label(largest)} ({abs(100 * change):.1f} ± {100 * margin:.1f}{what})."
    )


def explanation(record: Mapping[str, Any], whose: str, word: str = "group") -> str:
    """Say what the figures are. ``whose``: the model and its rows, such as "the model on validation rows"."""
    base = record["baseline"]
    if _kind(record) is NUMBERS:
        unit = "in parts of the unshuffled loss"
        stated = f"mean loss {base['loss']:.4g}, of the worst {word} {base['worst_group_loss']:.4g}"
    else:
        shown = {score: f"{number(100 * value, 1)} %" for score, value in base.items()}
        unit = "in points of accuracy"
        stated = (
            f"balanced accuracy {shown['balanced_accuracy']}, accuracy {shown['accuracy']}, "
            f"worst {word} {shown['worst_group_accuracy']}"
        )
    return (
        f"Permutation importance: what {whose} loses when the values of a column are shuffled among "
        f"{count(record['rows'], 'row')}, {unit}: the mean of {record['repeats']} shuffles, "
        "with an interval that holds for all columns at once with 95 % confidence, given the number of "
        f"shuffles and rows. All features of a column are shuffled together. Unshuffled: {stated}. Below 0 "
        "the score is better without the column. Columns that are equal, or opposite, are shuffled together "
        "and listed once. Others that tell the same stand in for each other, so that each of them seems to "
        "matter less."
    )


def table_columns(record: Mapping[str, Any], word: str = "group") -> tuple[str, ...]:
    """Return the heads of the table."""
    heads = tuple(name.format(word=word) for name in _kind(record).heads)
    return (*heads, EQUAL) if _has_equal(record) else heads


def table_rows(record: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of the table under :func:`table_columns`; at most ``SHOWN``, the largest first."""
    units = {score: _unit(record, score) for score in _kind(record).scores}
    has_equal = _has_equal(record)
    return [
        (
            entry["column"],
            *(_points(entry[score], unit) for score, unit in units.items()),
            *([_also(entry)] if has_equal else []),
        )
        for entry in shown_columns(record)
    ]


def _has_equal(record: Mapping[str, Any]) -> bool:
    """Return whether a column of the table stands for others that are equal to it."""
    return any("also" in entry for entry in shown_columns(record))


def shown_columns(record: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the entries that table and picture show, by the larger of both losses where not all fit."""
    entries = record["columns"]
    if len(entries) <= SHOWN:
        return list(entries)
    kind = _kind(record)
    units = {score: _unit(record, score) for score in (kind.mean, kind.worst)}
    size = sorted((-max(abs(e[s]["mean"]) / u for s, u in units.items()), i) for i, e in enumerate(entries))
    return [entries[i] for i in sorted(i for _, i in size[:SHOWN])]


def importance_metrics(record: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the mean losses of the shown columns as ``importance.SCORE.COLUMN``, for MLflow.

    Characters of a column that MLflow does not allow in the name of a metric, and "/", which would begin a
    folder, are "_". Where two names become alike, whatever their case, the later one in the order of all
    columns ends in "_2".

    Parameters
    ----------
    record : the importances; empty is returned for None, or where they were not measured.
    """
    if record is None or "columns" not in record:
        return {}
    keys = _metric_names([entry["column"] for entry in record["columns"]])
    return {
        f"importance.{score}.{keys[entry['column']]}": float(entry[score]["mean"])
        for entry in shown_columns(record)
        for score in (_kind(record).mean, _kind(record).worst)
    }


def _metric_names(columns: Sequence[str]) -> dict[str, str]:
    """Return a name that MLflow takes for each column; no two of them are alike."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for column in sorted(columns):
        base = name = re.sub(r"[^\w\-. ]", "_", column, flags=re.ASCII)[:MAX_CHARACTERS]
        copies = 1
        while name.lower() in taken:
            copies += 1
            name = f"{base}_{copies}"
        taken.add(name.lower())
        found[column] = name
    return found


def draw(record: Mapping[str, Any], word: str = "group") -> Figure:
    """Draw what the mean and the worst group lose as bars, one pair for each column."""
    from matplotlib.figure import Figure

    from operators.report.figures import COLOURS, disable_math

    entries, kind = shown_columns(record)[::-1], _kind(record)
    figure = Figure(figsize=(7.2, 0.9 + 0.32 * len(entries)), layout="constrained")
    axes = figure.add_subplot()
    for score, label, color, shift in (
        (kind.mean, kind.heads[1], COLOURS[0], 0.19),
        (kind.worst, kind.heads[-1].format(word=word), COLOURS[1], -0.19),
    ):
        part = 100 / _unit(record, score)
        axes.barh(
            [place + shift for place in range(len(entries))],
            [part * entry[score]["mean"] for entry in entries],
            0.36,
            xerr=[part * entry[score]["margin"] for entry in entries],
            color=color,
            label=label,
            error_kw={"lw": 1, "ecolor": "#555555"},
        )
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yticks(range(len(entries)), [_label(entry) for entry in entries], fontsize=8)
    for text in axes.get_yticklabels():
        disable_math(text)
    axes.set_xlabel(kind.axis, fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    figure.legend(frameon=False, fontsize=8, loc="outside upper right", ncols=2)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _points(value: Mapping[str, float], unit: float) -> str:
    mean = round(100 * value["mean"] / unit, 1) or 0.0  # no "-0.0"
    return f"{mean:.1f} ± {100 * value['margin'] / unit:.1f} %"


def _named(record: Mapping[str, Any], columns: Sequence[tuple[str, float]], what: str) -> str:
    """Return the first columns with those that equal them, each with what is lost or gained without it."""
    also = {entry["column"]: f"{text}; " for entry in record["columns"] if (text := _also(entry))}
    unit = [what] + [""] * NAMED
    named = zip(columns[:NAMED], unit, strict=False)
    return ", ".join(
        f"{_one_line(name)} ({also.get(name, '')}{100 * value:.1f}{more})" for (name, value), more in named
    )


def _also(entry: Mapping[str, Any]) -> str:
    """Return the columns that are equal to that of an entry, after "also"; empty if there are none."""
    equal = [_one_line(name) for name in entry.get("also", ())]
    return f"also {first_of(equal, MAX_EQUAL)}" if equal else ""


def _label(entry: Mapping[str, Any]) -> str:
    """Return the column of an entry with those that are equal to it."""
    also = _also(entry)
    return f"{_one_line(entry['column'])} ({also})" if also else _one_line(entry["column"])


def _one_line(name: str, length: int = 40) -> str:
    """Return a name on one line, and its beginning if it is long."""
    name = " ".join(name.split()) or repr(name)
    return cut(name, length)
