"""``cues`` over shards: draw a bounded sample, fit the robust weights in one task, then weigh every row."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from operators.base import (
    FACTOR,
    FEATURES,
    LABEL,
    ROW_ID,
    Apply,
    CannotPredictError,
    Context,
    Cost,
    DatasetDelta,
    Executor,
    Operator,
    OperatorError,
    ReportContext,
    copy_state,
)
from operators.bounded_json import read_json
from operators.columns import vectors_to_numpy
from operators.cues.named.name_checks import check_answers, check_references
from operators.cues.named.references import FeatureColumns
from operators.cues.params import (
    IF_HONEST,
    LEFT_OUT,
    NOTABLE_LOSS,
    CuesParams,
    CueWords,
    named_words,
    with_printed_words,
)
from operators.encode.column_use import Kind
from operators.explanations import ExplainedRow, Fact, added_facts
from operators.report import ReportSection

if TYPE_CHECKING:
    from operators.cues.output.record import FoundCues
    from operators.cues.state import CueState

NAME = "cues"
WEIGHT_COLUMN = NAME + FACTOR
TEXT_NETWORK = "minilm"
"""The model of ``embed`` that takes texts."""
BLOCK_VALUES = 4_000_000
"""Feature values that are weighed at once, which bounds the memory of ``open``."""
_log = logging.getLogger("rowsieve")

KEPT_GAIN = 0.5
"""Part of the worst group's gain that milder weights have to keep, if they are to be recommended."""


class Cues(Operator[CuesParams]):
    """Adds ``cues_weight``: robust weights where the evidence for a shortcut is strong, else class balance.

    The weight is relative: rows of all classes together, class balance included. ``weights`` brings the mean
    to 1.
    """

    name = NAME
    version = 45
    cost = Cost(116, 78.0, 125)
    Params = CuesParams
    uses: tuple[str, ...] = ("ingest",)
    state_needs_row_ids = True

    def __init__(
        self, params: CuesParams, columns: Sequence[str] = (FEATURES,), texts: Sequence[str] = ()
    ) -> None:
        super().__init__(params)
        self._columns, self._texts = tuple(columns), tuple(texts)
        self._beside_cues = ""

    def in_chain(self, chain: Sequence[Operator[Any]]) -> Cues:
        """Return the operator with the names of the columns that ``encode`` or ``ingest`` reads.

        Raises
        ------
        OperatorError
            A named column is not a feature, or a feature is named as spurious and as legitimate.

        """
        makers = {operator.name: operator for operator in chain if operator.name in ("encode", "ingest")}
        maker = makers.get("encode", makers.get("ingest"))
        columns = tuple(getattr(getattr(maker, "params", None), "features", None) or (FEATURES,))
        label = getattr(getattr(makers.get("ingest"), "params", None), "label", None)
        texts = [o.params.column for o in chain if o.name == "embed" and o.params.model == TEXT_NETWORK]
        params = with_printed_words(self.params, texts, columns)
        check_references(params.spurious, columns, "spurious", label)
        check_references(params.legitimate, columns, "legitimate", label)
        check_answers(params.spurious, params.legitimate, columns)
        found = Cues(params, columns, texts)
        found.uses = tuple(name for name in ("ingest", "encode") if name == "ingest" or name in makers)
        weights = next((operator.params for operator in chain if operator.name == "weights"), None)
        found._beside_cues = getattr(weights, "setting_beside_cues", "")
        return found

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the required columns: features and labels."""
        return FEATURES, LABEL

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """The column ``cues_weight``, which ``weights`` multiplies."""
        return (pa.field(WEIGHT_COLUMN, pa.float32()),)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns of texts of which the recipe names words."""
        return tuple(dict.fromkeys(one.column for one in self._words))

    @property
    def _words(self) -> tuple[CueWords, ...]:
        return named_words((*self.params.spurious, *self.params.legitimate))

    @property
    def can_predict(self) -> bool:
        """Return True: models, slices and counts are kept."""
        return True

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Fit on a sample; leaves the state and ``suspects.json``.

        Returns
        -------
        ``gate`` (trust in the robust weights by evidence, 0 to 1), ``blend`` and ``slice_blend`` (the parts
        of them that are used), ``expected_gain`` (of the worst group; 0 where the gate decides), every
        measurement of the evidence, strength and accuracies of the baseline and of the published weights on
        held-out rows, and accuracies without weights, with the ``gain`` between them, ``wrong_labels``
        (expected among the sampled rows that break the shortcut), ``effective_share`` and
        ``shrinkage`` (of the worst class), ``suspects``, ``sample_rows``, ``left_out_rows.CLASS`` (rows of a
        class that is too small for any figure) and the importances of source columns, as
        ``importance.balanced_accuracy.COLUMN`` and ``importance.worst_group_accuracy.COLUMN``, unless there
        are more than 100 classes.

        Raises
        ------
        OperatorError
            A feature is not finite, or a named column cannot be used.

        """
        from operators.cues.fit_task import FitTask, run_fit
        from operators.cues.gather import count_rows, drawn_sample, rows_that_fit
        from operators.cues.learnt_classes import are_too_many
        from operators.cues.named.answers import settings_of
        from operators.cues.output.listing import read_suspects

        ingest = read_json(context.states["ingest"] / "classes.json")
        classes = [str(value) for value in ingest["classes"]]
        columns = self._feature_columns(context, ingest["widths"])
        texts = self._text_columns(columns)
        params = with_printed_words(self.params, texts, columns.names)
        words = named_words((*params.spurious, *params.legitimate))
        columns = replace(columns, mentions=words)
        counts = count_rows(context, executor, len(classes))
        max_rows = rows_that_fit(columns.n_features, params.max_rows)
        if are_too_many(np.array(counts)):
            max_rows = 1  # one of each class: nothing is searched for
        settings = settings_of(params, columns, max_rows, context.seed)
        with drawn_sample(context, executor, counts, max_rows, words, texts) as paths:
            task = FitTask(
                paths=paths,
                state=context.state,
                params=params,
                columns=columns,
                classes=tuple(classes),
                counts=tuple(counts),
                settings=settings,
                has_texts=bool(texts),
            )
            (metrics,) = executor.map(run_fit, [task])
        _log_outcome(metrics, params, read_suspects(context.state))
        return metrics

    def warnings(self, metrics: Mapping[str, float], state: Callable[[], Path]) -> tuple[str, ...]:
        """Name classes for which no figure speaks, answers that change nothing, and weights of much cost."""
        from operators.cues.output.listing import read_suspects
        from operators.cues.output.notes import ineffective_answers, left_out_warning

        some_left_out = any(key.startswith(LEFT_OUT) for key in metrics)
        answered = bool(self.params.spurious or self._words)
        found: FoundCues = read_suspects(state()) if some_left_out or answered else {}
        said: tuple[str, ...] = ()
        if curve := some_left_out and found.get("trade_off"):  # the metrics hold some of the classes alone
            said += (left_out_warning(curve["classes_left_out"]),)
        if answered:
            said += tuple(ineffective_answers(found))
        known = "unweighted_mean_accuracy" in metrics
        if (
            not known
            or metrics["unweighted_mean_accuracy"] - metrics["published_mean_accuracy"] <= NOTABLE_LOSS
        ):
            return said
        means, worst = (
            " -> ".join(f"{metrics[f'{kind}_{part}_accuracy']:.3f}" for kind in ("unweighted", "published"))
            for part in ("mean", "worst")
        )
        return (
            *said,
            f"on held-out rows a model is right on {means} of all rows and on {worst} of the worst group or "
            "class (without -> with the weights of `cues`). `rowsieve cues OUTPUT` says why"
            f"{_milder(metrics)}.",
        )

    def partial_fit(self, context: Context, delta: DatasetDelta, executor: Executor) -> dict[str, float]:
        """Keep the state: new rows are weighed by the models there are.

        Raises
        ------
        CannotPredictError
            Rows are gone: a row is judged by the model that was trained without its id, and ids have moved.

        """
        if delta.rows_removed:
            raise CannotPredictError(
                "rows are gone, so that row ids no longer tell which model has seen a row"
            )
        copy_state(delta.state, context.state)
        return dict(delta.metrics)

    def open(self, context: Context) -> Apply:
        """Load the state once, and return the function that weighs rows."""
        from operators.cues.serialise import load_state

        weigh = partial(_weigh, load_state(context.state))
        return lambda table: pa.table({WEIGHT_COLUMN: weigh(table)})

    def explain(self, context: Context, row: ExplainedRow) -> list[Fact]:
        """Give the weight against the class's own, whether the row breaks the shortcut, and its slices."""
        from operators.cues.output.explanation import row_facts

        return [*added_facts(self.adds, row), *row_facts(context.state, row)]

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """List the suspected shortcuts, with buttons that compose the answer."""
        from operators.cues.output.importance import read_importance
        from operators.cues.output.listing import read_suspects
        from operators.cues.output.report import cue_section

        found, importance = read_suspects(context.state), read_importance(context.state)
        return cue_section(found, importance, beside_cues=self._beside_cues)

    def _text_columns(self, columns: FeatureColumns) -> tuple[str, ...]:
        """Return the columns of texts that a network turns into features."""
        encoded = (output.source for output in columns.outputs if output.kind == Kind.TEXT)
        return tuple(dict.fromkeys((*self._texts, *encoded)))

    def _feature_columns(self, context: Context, widths: Sequence[int]) -> FeatureColumns:
        """Return the features' names and widths; the width of made features is that of the first row."""
        if "encode" in context.states:
            return _encoded_columns(self._columns, context.states["encode"])
        if widths and len(widths) == len(self._columns):
            return FeatureColumns(self._columns, tuple(widths))
        for shard in range(len(context.shards.shards)):
            table = context.shards.read(shard, [FEATURES])
            if table.num_rows:
                return FeatureColumns((FEATURES,), (vectors_to_numpy(table[FEATURES].slice(0, 1)).shape[1],))
        return FeatureColumns((FEATURES,), (0,))


def reads_texts(chain: Sequence[Operator[Any]]) -> bool:
    """Return whether a network turns texts into features in a recipe of these operators."""
    params = {operator.name: operator.params for operator in chain}
    encoded = "encode" in params and params["encode"].text.model is not None
    return encoded or ("embed" in params and params["embed"].model == TEXT_NETWORK)


def _encoded_columns(names: tuple[str, ...], state: Path) -> FeatureColumns:
    """Return the features that ``encode`` makes, in the words of the source."""
    from operators.encode.encoding import TableEncoding
    from operators.encode.level_counts import read_counts

    encoding = TableEncoding.load(state)
    missing = [name for name, counts in read_counts(state, "seen").items() if counts.missing]
    widths = Counter(output.source for output in encoding.outputs)
    used = [name for name in names if widths[name]]
    if used != encoding.sources:
        raise OperatorError("operators.cues: the state of `encode` is that of other columns. Run it again.")
    outputs = tuple(encoding.outputs)
    return FeatureColumns(names, tuple(widths[name] for name in names), outputs, encoding.words(missing))


def _milder(metrics: Mapping[str, float]) -> str:
    """Say what milder weights have in the worst group; empty where they lose more than half of its gain."""
    from operators.cues.output.curve_report import SUGGESTED_LOSS

    milder = metrics.get("milder_worst_accuracy", 0.0)
    without, published = metrics["unweighted_worst_accuracy"], metrics["published_worst_accuracy"]
    if milder - without < KEPT_GAIN * (published - without):
        return ""
    return (
        f"; `max_mean_loss: {SUGGESTED_LOSS}` of a training takes milder weights, with {milder:.3f} in the "
        "worst group or class"
    )


def _weigh(state: CueState, table: pa.Table) -> pa.Array:
    """Return the weights of a shard's rows, block by block."""
    from operators.cues.row_weights import weights
    from operators.threads import limit_threads

    y, ids = table[LABEL].to_numpy().astype(np.int64), table[ROW_ID].to_numpy()
    found = np.empty(table.num_rows, np.float32)
    rows = max(BLOCK_VALUES // max(len(state.scaler.mean), 1), 1)
    with limit_threads(1):
        for start in range(0, table.num_rows, rows):
            block = slice(start, start + rows)
            X = vectors_to_numpy(table[FEATURES].slice(start, rows))
            found[block] = weights(state, X, y[block], ids[block])
    return pa.array(found)


def _log_outcome(metrics: Mapping[str, float], params: CuesParams, found: FoundCues) -> None:
    """Log what the weights are, as the effect of the operator cannot be seen in its column."""
    undivided, n_named = found["undivided"], len(params.spurious)
    for sentence in found["unclear"]:
        _log.warning("cues: %s", sentence)
    if undivided:
        _log.warning(
            "cues: operators.cues.spurious names %s, but no usable cut divides the sampled rows there, so "
            "that nothing is balanced against the label. Give another cut, other words or another column.",
            " and ".join(undivided),
        )
    if found["reason"]:
        _log_verdict(found)
    elif n_named > len(undivided) and not metrics["blend"]:
        _log.warning(
            "cues: even a seventh of the balance of the named shortcuts would cost more than "
            "operators.cues.max_named_cost allows, so that nothing is balanced for them. They may be honest "
            "signal; max_named_cost: 1 balances them whatever it costs."
        )
    elif n_named > len(undivided):
        _log.info(
            "cues: %d named shortcuts are balanced against the label by %.0f %%, which costs %.3f of "
            "balanced accuracy on held-out rows%s.",
            n_named - len(undivided),
            100 * metrics["blend"],
            metrics["named_cost"],
            IF_HONEST if metrics["named_cost"] > NOTABLE_LOSS else "",
        )
    else:
        _log_verdict(found, undivided=False)
    if metrics["shrinkage"] > 0:
        _log.warning(
            "cues: weights of at least one class are shrunk by up to %.0f %% towards class balance, so that "
            "it does not rest on few of its rows (operators.cues.min_effective_share).",
            100 * metrics["shrinkage"],
        )


def _log_verdict(found: FoundCues, *, undivided: bool = True) -> None:
    """Log the beginning of the report: what the weights are, and why."""
    from operators.cues.output.verdict import summary

    _log.info("cues: %s", summary(found, undivided=undivided))
