"""The operator ``outliers``: assesses every row, and counts the marks of other operators beside its own."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from connectors.foundation.remedies import add_operator
from operators.arrays import Mask
from operators.base import (
    CATEGORY,
    FEATURES,
    IS_OUTLIER,
    LABEL,
    MARK,
    MARKED_BY,
    OUTLIER_SOURCE,
    ROW_ID,
    Apply,
    Context,
    Cost,
    DatasetDelta,
    Executor,
    Operator,
    OperatorError,
    OperatorParams,
    ReportContext,
    Resources,
    ShardReader,
    copy_state,
)
from operators.columns import vectors_to_numpy
from operators.explanations import ExplainedRow, Fact, added_facts
from operators.outliers.params import EVIDENCE, EvidenceParams, OutliersParams
from operators.outliers.votes import ALL, ANY, Text, decide, join_reasons
from operators.report import ReportSection

if TYPE_CHECKING:
    from operators.outliers.verdict import VerdictState

SCORE = "outlier_score"
CUES = "cues"
REASONS = {
    "flipped": "flipped label",
    "mixed": "damaged features",
    "permuted": "damaged features",
}
"""Kind of planted damage -> the reason in ``outlier_source``."""
_log = logging.getLogger("rowsieve")


class Outliers(Operator[OutliersParams]):
    """Adds ``is_outlier``, ``outlier_source`` and ``marked_by``, and ``outlier_score`` by ``rule: evidence``.

    By ``rule: evidence`` a row is an outlier if it is probably corrupt. The other rules decide by the marks
    of other operators, which are columns ``<name>_outlier``. The operator runs in every recipe.
    """

    name = "outliers"
    version = 14
    cost = Cost(424, 146, 189)
    Params = OutliersParams

    def __init__(
        self,
        params: OutliersParams,
        voters: Sequence[str] = ("group",),
        uses: Sequence[str] = (),
        *,
        with_words: bool = False,
    ) -> None:
        super().__init__(params)
        self.voters = tuple(voters)
        """Names of everything that marks rows, with ``evidence`` if it decides."""
        self.uses: tuple[str, ...] = tuple(uses)
        self.with_words = with_words
        """Whether ``cues`` looks for shortcuts in words."""

    def in_chain(self, chain: Sequence[Operator[OperatorParams]]) -> Outliers:
        """Return the operator with the voters of the recipe and, for ``rule: evidence``, with ``cues``.

        Raises
        ------
        OperatorError
            The rule names no voter of the recipe, or the recipe has none.
        """
        added = {field.name for operator in chain for field in operator.adds}
        voters = {name.removesuffix(MARK) for name in added if name.endswith(MARK) and name != IS_OUTLIER}
        rule = self.params.rule
        if rule is None:
            rule = EVIDENCE if {FEATURES, LABEL} <= added else ALL
        if rule == EVIDENCE:
            voters.add(EVIDENCE)
        if not voters:
            raise OperatorError(
                "operators.outliers: no operator of the recipe marks rows, and rows have no features to "
                f"assess them by. {add_operator('groups')} or `eos: {{}}`, or name `source.features`."
            )
        if rule not in (ALL, ANY, *voters):
            raise OperatorError(
                f"operators.outliers.rule: no operator {rule!r} of this recipe marks outliers. Use "
                f"{EVIDENCE}, all, any, or one of: {', '.join(sorted(voters))}."
            )
        uses = [operator.name for operator in chain if operator.name == CUES and rule == EVIDENCE]
        params = self.params.model_copy(update={"rule": rule})
        return Outliers(params, sorted(voters), uses, with_words=bool(uses) and _reads_texts(chain))

    @property
    def _by_evidence(self) -> bool:
        return self.params.rule == EVIDENCE

    @property
    def _voters(self) -> tuple[str, ...]:
        """Return the columns with the marks of other operators."""
        return tuple(voter + MARK for voter in self.voters if voter != EVIDENCE)

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the required columns: labels and marks; by ``rule: evidence`` features too."""
        return (LABEL, *self._voters, *((FEATURES,) if self._by_evidence else ()))

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Return the added columns: verdict, its reason if it is yes, all marks, and the score."""
        fields = (
            pa.field(IS_OUTLIER, pa.bool_()),
            pa.field(OUTLIER_SOURCE, CATEGORY),
            pa.field(MARKED_BY, CATEGORY),
        )
        return (*fields, pa.field(SCORE, pa.float32())) if self._by_evidence else fields

    @property
    def resources(self) -> Resources:
        """Return the resources of one task."""
        return self.params.resources

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Count the marks, and learn the verdict from a sample; by evidence, writes ``evidence.npz``.

        Returns
        -------
        Of each operator that marks rows ``marked_<name>`` and ``only_<name>``, rows that no other marks; by
        votes also ``outliers`` and ``disputed``, rows on which they differ; by evidence see
        :func:`estimated`.
        """
        metrics = self._count(context, executor)
        if not self._by_evidence:
            return metrics
        from operators.outliers.sample import gather_sample

        params = self.params
        sample = gather_sample(
            context.shards,
            executor,
            max_rows=params.evidence.max_rows,
            seed=context.seed,
            resources=params.resources,
        )
        cues = context.states.get(CUES)
        work = partial(
            _fit_evidence, sample, params.evidence, context.state, context.seed, cues, self.with_words
        )
        (found,) = executor.map(_call, [work], resources=params.resources)
        return metrics | found

    def _count(
        self, context: Context, executor: Executor, delta: DatasetDelta | None = None
    ) -> dict[str, float]:
        """Count the marks of all rows, or add those of new rows to the counts before them."""
        names = [column.removesuffix(MARK) for column in self._voters]
        sides = [f"{side}_{name}" for name in names for side in ("marked", "only")]
        decided = [] if self._by_evidence else ["outliers", "disputed"]
        wanted = (*decided, *sides)
        found = dict.fromkeys(wanted, 0.0)
        shards: Sequence[int] = range(len(context.shards.shards))
        if delta is not None and not delta.rows_removed and delta.metrics.keys() >= set(wanted):
            found = {name: delta.metrics[name] for name in wanted}
            shards = delta.new_shards
        if names:
            rule = ALL if self._by_evidence else str(self.params.rule)
            work = partial(_count, context.shards, self._voters, rule)
            for counts in executor.map(work, shards, resources=self.resources):
                found = {name: count + counts[name] for name, count in found.items()}
        return found

    @property
    def can_predict(self) -> bool:
        """Return True: each row is assessed by itself."""
        return True

    def partial_fit(self, context: Context, delta: DatasetDelta, executor: Executor) -> dict[str, float]:
        """Add the marks of the new rows to the counts; the learnt verdict and its estimates stay.

        If rows are gone, the marks of all rows are counted again. The ids of the sample's rows have moved
        then, and new rows may have them: no row counts as one of the sample.
        """
        if not self._by_evidence:
            return self._count(context, executor, delta)
        copy_state(delta.state, context.state)
        if delta.rows_removed:
            # Imported here because planning imports this module and must not load scikit-learn.
            from operators.outliers.state import forget_row_ids

            forget_row_ids(context.state)
        return {**delta.metrics, **self._count(context, executor, delta)}

    def open(self, context: Context) -> Apply:
        """Load the learnt verdict, if the rule is ``evidence``."""
        if self._by_evidence:
            return self._open_evidence(context)
        rule = str(self.params.rule or ALL)

        def apply(table: pa.Table) -> pa.Table:
            reasons = _reasons(table)
            verdict = decide(_marks(reasons), rule)
            marked = join_reasons(reasons)
            return pa.table(_columns(verdict, np.where(verdict, marked, ""), marked))

        return apply

    def _open_evidence(self, context: Context) -> Apply:
        # Imported here because planning imports this module and must not load scikit-learn.
        from operators.outliers.state import load_state

        state = load_state(context.state)
        assess_rows: Callable[[pa.Table], tuple[Text, Any]] = (
            _assess_nothing if state is None else partial(_assess, state)
        )

        def apply(table: pa.Table) -> pa.Table:
            source, score = assess_rows(table)
            votes = _reasons(table) | {EVIDENCE: source}
            marked = join_reasons({name: votes[name] for name in sorted(votes)})
            return pa.table(_columns(source != "", source, marked) | {SCORE: score})

        return apply

    def explain(self, context: Context, row: ExplainedRow) -> list[Fact]:
        """Give the verdict, each voter's mark and, by evidence, posterior, threshold and all evidence."""
        facts = [fact for fact in added_facts(self.adds, row) if fact.value != ""]
        for column in self._voters:
            reason = row.value(column)
            facts.append(Fact(column, bool(reason), reason if isinstance(reason, str) else ""))
        if self._by_evidence and row.has(FEATURES, LABEL):
            from operators.outliers.explanation import evidence_facts

            facts += evidence_facts(context.state, row)
        return facts

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """Say which operators mark which rows; by evidence also what the verdict is estimated to find."""
        from operators.outliers.report import evidence_section, vote_section

        votes = vote_section(context, self.voters, str(self.params.rule or ALL))
        if not self._by_evidence:
            return votes
        kinds = {kind: f"{reason} ({kind})" for kind, reason in REASONS.items()}
        return evidence_section(context.state, kinds, context.classes, votes)


def _call(work: Callable[[], dict[str, float]]) -> dict[str, float]:
    return work()


def _reads_texts(chain: Sequence[Operator[Any]]) -> bool:
    """Return whether ``cues`` looks for shortcuts in words, which lie in no feature by themselves."""
    from operators.cues.adaptor import reads_texts

    return reads_texts(chain)


def _fit_evidence(
    sample: pa.Table, params: EvidenceParams, folder: Path, seed: int, cues: Path | None, with_words: bool
) -> dict[str, float]:
    """Learn the verdict from the sample in one task, and write it into ``folder``.

    ``cues`` is the state folder of that operator: rows that break what it balances do not confirm damage,
    and if it reads texts, its named shortcuts and those of words are not evidence.
    """
    from operators.cues.shortcut_scores import shortcut_scores
    from operators.outliers.shortcut_free import breaks_shortcut
    from operators.outliers.state import save_reason, save_state
    from operators.outliers.verdict import Config, NoEvidenceError, fit

    config = Config(
        min_precision=params.min_precision,
        min_posterior=params.min_posterior,
        min_prevalence=params.min_prevalence,
    )
    try:
        X, y, row_ids = _arrays(sample)
        shortcuts = shortcut_scores(cues, X) if cues and with_words else None
        breaks = None if cues is None else partial(breaks_shortcut, cues)
        state = fit(X, y, row_ids, shortcuts=shortcuts, breaks=breaks, seed=seed, config=config)
    except NoEvidenceError as error:
        save_reason(str(error), folder)
        _log.warning(
            "operators.outliers: no row is marked, as the rows give no evidence of corruption: %s. "
            "`rule: any` marks rows by the votes of other operators.",
            error,
        )
        return {"sampled_rows": float(sample.num_rows)}
    save_state(state, folder)
    return estimated(state)


def estimated(state: VerdictState) -> dict[str, float]:
    """Return what planted damage says of the verdict, as metrics.

    ``sampled_rows``, ``marked_share`` (of the sample), of each kind ``prevalence_<kind>`` and
    ``planted_recall_<kind>``, and, where rows are marked, ``estimated_precision`` and
    ``estimated_recall_at_most``.
    """
    found = state.estimates
    metrics = {
        "sampled_rows": float(found.n_rows),
        "marked_share": found.marked,
        "estimated_precision": found.precision,
        "estimated_recall_at_most": found.recall,
    }
    metrics |= {f"prevalence_{kind}": share for kind, share in found.prevalence.items()}
    metrics |= {f"planted_recall_{kind}": share for kind, share in found.planted_recall.items()}
    return {name: value for name, value in metrics.items() if not math.isnan(value)}


def _assess(state: VerdictState, table: pa.Table) -> tuple[Text, Any]:
    """Return the reason for each row, empty where it is not an outlier, and its score."""
    from operators.outliers.assessment import assess
    from operators.outliers.planted import KINDS

    if not table.num_rows:
        return _assess_nothing(table)
    found = assess(state, *_arrays(table))
    names = np.array([*(REASONS[kind] for kind in KINDS), ""], np.object_)
    score = pa.array(found.score.astype(np.float32), from_pandas=True)
    return np.asarray(names[found.kind], np.object_), score


def _assess_nothing(table: pa.Table) -> tuple[Text, Any]:
    return np.full(table.num_rows, "", np.object_), pa.nulls(table.num_rows, pa.float32())


def _arrays(table: pa.Table) -> tuple[Any, Any, Any]:
    """Return features, classes and row ids."""
    y, row_ids = (table.column(name).to_numpy().astype(np.int64) for name in (LABEL, ROW_ID))
    return vectors_to_numpy(table.column(FEATURES)), y, row_ids


def _columns(verdict: Mask, source: Text, marked: Text) -> dict[str, Any]:
    return {IS_OUTLIER: verdict, OUTLIER_SOURCE: _category(source), MARKED_BY: _category(marked)}


def _reasons(table: pa.Table) -> dict[str, Text]:
    """Return for each voter its reason for each row; an operator that only says yes or no gives its name."""
    found = {}
    for name in table.column_names:
        if not name.endswith(MARK):
            continue
        voter, column = name.removesuffix(MARK), table.column(name)
        if pa.types.is_boolean(column.type):
            found[voter] = np.where(column.to_numpy().astype(bool), voter, "").astype(np.object_)
        else:
            found[voter] = np.asarray(column.cast(pa.string()).to_numpy(), np.object_)
    return found


def _marks(reasons: Mapping[str, Text]) -> dict[str, Mask]:
    return {voter: np.asarray(texts != "", np.bool_) for voter, texts in reasons.items()}


def _category(texts: Text) -> pa.Array:
    """Encode texts with codes in the order of the text, so that other rows do not change a code's meaning."""
    values, codes = np.unique(texts.astype(str), return_inverse=True)
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int8)), pa.array(values.tolist(), pa.string())
    )


def _count(reader: ShardReader, columns: Sequence[str], rule: str, shard: int) -> dict[str, int]:
    """Count the marks in one shard; see :meth:`Outliers.fit`."""
    marks = _marks(_reasons(reader.read(shard, columns)))
    votes = np.sum(list(marks.values()), axis=0)
    found = {
        "outliers": decide(marks, rule).sum(),
        "disputed": np.count_nonzero((votes > 0) & (votes < len(marks))),
    }
    for voter, mark in marks.items():
        found |= {f"marked_{voter}": mark.sum(), f"only_{voter}": np.count_nonzero(mark & (votes == 1))}
    return {name: int(value) for name, value in found.items()}
