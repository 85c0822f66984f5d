"""The task in which ``cues`` is fitted: weights, suspects, trade-off and importances of the drawn sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from operators.arrays import Floats, Integers
from operators.base import OperatorError
from operators.cues.gather import SampledRows, read_sample
from operators.cues.models.curve_points import last_within
from operators.cues.models.linear import Scaler, with_directions
from operators.cues.named.answers import Answers, check_categories, undivided_names
from operators.cues.named.references import FeatureColumns
from operators.cues.output.curve import measured_curve
from operators.cues.output.curve_report import SUGGESTED_LOSS, published_point
from operators.cues.output.importance import leading_column, measured_importance, write_importance
from operators.cues.output.listing import shortcut_names, write_suspects
from operators.cues.params import LEFT_OUT, CuesParams, CueWords
from operators.cues.robust_weights import fit
from operators.cues.search.same_rows import with_same
from operators.cues.search.slices import find_slices
from operators.cues.search.suspects import Suspect, measure_suspects, measured_sample
from operators.cues.serialise import save_state
from operators.cues.settings import CueSettings
from operators.cues.state import CueState
from operators.cues.words.fit_words import FoundWords, find_words, fit_with_words
from operators.cues.words.mentions import Directions, absent_words, by_set, fit_directions, unclear_sets
from operators.cues.words.shard_texts import read_texts
from operators.cues.words.word_suspects import frequent_words, list_word_suspects
from operators.report.importances import importance_metrics
from operators.threads import limit_threads

MAX_LEFT_OUT, MAX_NAME = 20, 100
"""Classes without a figure that have a metric, the rarest ones, and the characters of their names, of which
MLflow takes 250. All of these classes are in ``suspects.json``."""
CURVE_METRICS = ("strength", "worst_accuracy", "mean_accuracy")


@dataclass(frozen=True, kw_only=True)
class FitTask:
    """Everything that the task that fits needs. Picklable."""

    paths: tuple[Path, ...]
    state: Path
    params: CuesParams
    columns: FeatureColumns
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    settings: CueSettings
    has_texts: bool = False


def run_fit(task: FitTask) -> dict[str, float]:
    """Fit, list suspects, write the state; return the metrics."""
    sample = read_sample(task.paths, task.columns.n_features)
    settings = replace(task.settings, max_rows=len(sample.y))  # the sample is drawn already
    with limit_threads(1):  # the same bytes, however many cores there are
        settings = replace(settings, legitimate=_legitimate(sample, task))
        fitted = _fitted(sample, task, settings)
        state, X, columns = fitted.state, fitted.X, fitted.columns
        suspects, words = ([], []) if state.reason else _suspects(sample, fitted, fitted.task(task), settings)
        curve = None
        if not state.reason:
            curve = measured_curve(state, sample, task.classes, shortcut_names(state, columns))
        importance = measured_importance(state, sample, columns, len(task.classes), settings.seed)
    save_state(state, task.state)
    write_importance(task.state, importance)
    binary = {s.feature: _two_values(X[:, s.feature]) for s in suspects if s.feature < X.shape[1]}
    write_suspects(
        task.state,
        state,
        suspects,
        task.params,
        replace(columns, mentions=(*columns.mentions, *words)),
        classes=task.classes,
        sample_rows=len(sample.y),
        binary={feature: values for feature, values in binary.items() if values},
        undivided=[] if state.reason else undivided_names(task.params, settings, state.named or (), X),
        unclear=[] if state.reason else _unclear(sample, fitted.directions, task),
        trade_off=curve,
        leading=leading_column(importance),
        found_words=[] if fitted.found is None else fitted.found.record(),
    )
    return (
        _metrics(state, fitted.found)
        | _baseline_metrics(curve)
        | {"suspects": float(len(suspects)), "sample_rows": float(len(sample.y))}
        | importance_metrics(importance)
    )


@dataclass(frozen=True)
class _Fitted:
    """State, features and columns with those that words add, directions of the words that the recipe names,
    and the words that were found to carry a shortcut."""

    state: CueState
    X: Floats
    columns: FeatureColumns
    directions: Directions | None
    found: FoundWords | None

    def task(self, task: FitTask) -> FitTask:
        """Return the task with these columns."""
        return replace(task, columns=self.columns)

    def marks(self, sample: SampledRows) -> Floats:
        """Return which rows have the words of each of the last features, 0 or 1, shape (n, k)."""
        marks: list[Any] = [np.zeros((len(sample.y), 0))]
        if self.directions is not None:
            named = self.columns.mentions[: self.directions.coefficients.shape[1]]
            marks.append(by_set(sample.mentions, named))
        if self.found is not None:
            marks.append(self.found.marks(sample.X, sample.ids))
        return np.hstack(marks).astype(np.float32)


def _fitted(sample: SampledRows, task: FitTask, settings: CueSettings) -> _Fitted:
    """Fit, with the names of the recipe or else with words that are found to carry a shortcut."""
    X, directions = _extended(sample, task)
    check_categories(task.settings.spurious, X, task.columns)
    y, ids, counts, columns = sample.y, sample.ids, np.array(task.counts), task.columns
    state = _fit(X, y, ids, task, settings)
    coefficients = [] if directions is None else [directions.coefficients]
    found = None
    if task.has_texts and not state.reason and not settings.spurious:
        found = find_words(read_texts(task.paths), sample.X, y, ids, columns, settings)
    balanced = None if found is None else fit_with_words(found, X, sample.X, y, ids, settings, counts)
    if found is None or balanced is None:
        found = None
    else:
        state, X = balanced
        coefficients.append(found.directions)
        columns = replace(columns, mentions=(*columns.mentions, *found.sets))
    if coefficients:
        state = replace(state, scaler=replace(state.scaler, directions=np.hstack(coefficients)))
    return _Fitted(state, X, columns, directions, found)


def _legitimate(sample: SampledRows, task: FitTask) -> frozenset[int]:
    """Return the legitimate features, with those that say the same of all rows unless they are spurious."""
    answers = Answers.of(task.params, task.columns)
    if not answers.legitimate or not len(sample.y):
        return answers.legitimate
    Z = Scaler.from_rows(sample.X).apply(sample.X)
    return with_same(answers.legitimate, Z, answers.spurious)


def _extended(sample: SampledRows, task: FitTask) -> tuple[Floats, Directions | None]:
    """Return the features with those that named words add, and the directions that give these, if any."""
    if not task.columns.mentions or not len(sample.y):
        return sample.X, None
    mentions = by_set(sample.mentions, task.columns.mentions)
    found = fit_directions(sample.X, mentions, sample.ids, task.settings.seed, task.settings.l2)
    return with_directions(sample.X, found.coefficients), found


def _unclear(sample: SampledRows, directions: Directions | None, task: FitTask) -> list[str]:
    """Return sentences on words of the recipe that cannot be balanced as meant."""
    if directions is None:
        return []
    sets, known = task.columns.mentions, dict[str, list[str]]()
    if task.has_texts and not sample.mentions.any(axis=0).all():
        known = {name: frequent_words(texts)[0] for name, texts in read_texts(task.paths).texts.items()}
    hardly = unclear_sets(sets, by_set(sample.mentions, sets), directions)
    return [*absent_words(sets, sample.mentions, known), *hardly]


def _fit(X: Floats, y: Integers, ids: Integers, task: FitTask, settings: CueSettings) -> CueState:
    """Fit the weights. Raises OperatorError for a value that is not finite."""
    counts = np.array(task.counts)
    try:
        return fit(X, y, ids, settings, class_counts=counts, n_classes=len(counts))
    except ValueError as error:
        raise OperatorError(f"operators.cues: {error}") from None


def _suspects(
    rows: SampledRows, fitted: _Fitted, task: FitTask, settings: CueSettings
) -> tuple[list[Suspect], list[CueWords]]:
    """Return the suspects, the strongest first, and the words that some of them are, in their order.

    The position of a word is that after the features and the words that the recipe names. Words are measured
    on the rows that have them, not on those that the features tell.
    """
    answers = Answers.of(task.params, task.columns)
    always = answers.spurious | answers.legitimate
    X = fitted.X
    sample, p = measured_sample(X, rows.y, rows.ids, settings, len(task.counts))
    sample = sample.with_marks(fitted.marks(rows)[np.searchsorted(rows.ids, sample.ids)])
    words, found = [], measure_suspects(find_slices(sample.Z, sample.y, p), sample, always=always)
    if task.has_texts:
        words = list_word_suspects(read_texts(task.paths), sample, p, task.columns)
        told = {one.column for one, _ in words}
        entries = task.columns.entries_of(told)
        found = [one for one in found if one.feature not in entries or one.feature in always]
        found += [replace(one, feature=X.shape[1] + k) for k, (_, one) in enumerate(words)]
    return sorted(found, key=lambda one: -one.strength), [one for one, _ in words]


def _metrics(state: CueState, words: FoundWords | None) -> dict[str, float]:
    evidence = {} if state.evidence is None else dict(vars(state.evidence))
    gate = 0.0 if state.evidence is None else state.evidence.gate()
    if evidence:
        evidence["slice_gain"] = evidence.pop("gain")  # `gain` is that of the published weights
    return {
        "gate": gate if words is None else words.gate,
        "blend": state.blend,
        "slice_blend": state.slice_blend,
        "expected_gain": state.expected_gain,
        "named": float(len(state.named or ())),
        "named_cost": state.named_cost,
        **{name: float(value) for name, value in evidence.items()},
        "class_strength": state.class_strength,
        "wrong_labels": _wrong_labels(state),
        "effective_share": float(state.effective.min()),
        "shrinkage": state.limits.shrinkage() if state.blend or state.slice_blend else 0.0,
    }


def _wrong_labels(state: CueState) -> float:
    """Return the expected number of wrong labels among the sampled rows that break the shortcut."""
    if state.right_labels is None or state.blend <= 0:
        return 0.0
    return float(sum(wrong for _, wrong in state.right_labels.wrong_by_class().values()))


def _baseline_metrics(curve: Mapping[str, Any] | None) -> dict[str, float]:
    """Return what the published weights win over the baseline: the figures of curve, report and verdict."""
    if curve is None:
        return {}
    base, point = curve["baseline"], published_point(curve)
    found = {f"baseline_{name}": float(base[name]) for name in CURVE_METRICS}
    left_out = sorted(curve["classes_left_out"].items(), key=lambda item: item[1])[:MAX_LEFT_OUT]
    found |= {f"{LEFT_OUT}{name[:MAX_NAME]}": float(rows) for name, rows in left_out}
    if point is None:
        return found
    found |= {f"published_{name}": float(point[name]) for name in CURVE_METRICS}
    found |= {f"unweighted_{name}": float(curve["points"][0][name]) for name in CURVE_METRICS[1:]}
    means, worst = ([one[name] for one in curve["points"]] for name in CURVE_METRICS[:0:-1])
    found["milder_worst_accuracy"] = float(worst[last_within(means, worst, SUGGESTED_LOSS)])
    return found | {"gain": float(point["worst_accuracy"] - base["worst_accuracy"])}


def _two_values(x: Floats) -> tuple[float, float] | None:
    """Return the values of a column that has two at most, the lower one first; None for another column."""
    low, high = float(x.min()), float(x.max())
    return (low, high) if bool(((x == low) | (x == high)).all()) else None
