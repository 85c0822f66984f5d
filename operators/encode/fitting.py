"""Fitting ``encode`` over shards: a pass for summaries, and further ones for columns that need more.

The driver merges what the shards return, in their order: sketches of bounded size, and counts of categories.
Whether texts are numbers or dates, and whether a column is an identifier, is decided by all rows, and all
else by the rows to learn from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators.base import Context, Executor, OperatorError, ShardReader
from operators.encode.amount_fitting import read_amounts
from operators.encode.amounts import AmountRule
from operators.encode.categories import MAX_TARGET_CLASSES, CategoryEncoding
from operators.encode.category_fitting import fit_categories, text_reading
from operators.encode.column_use import ColumnUse, Kind, KindOptions
from operators.encode.datetimes import fit_datetime
from operators.encode.durations import DURATION
from operators.encode.encoding import TableEncoding
from operators.encode.kinds import decide_kind, may_identify
from operators.encode.level_counts import INFREQUENT, NEW, ColumnCounts, TableCounts, write_vocabulary
from operators.encode.numeric import fit_number
from operators.encode.params import MAX_TAGS, EncodeParams
from operators.encode.shared_features import LIMITED
from operators.encode.summary import ColumnSummary, TextRules, summarise
from operators.encode.tags import TagsEncoding, choose_tags
from operators.encode.vectors import TextEncoding, VectorEncoding, text_width
from operators.encode.word_components import SAMPLE_ROWS, WordComponents, sampled_texts
from operators.encode.words import Encoding
from operators.ingest.labels import count_labels
from operators.memory import release_memory


def text_rules(params: EncodeParams) -> TextRules:
    """Return how texts are compared, and which columns are counted as text."""
    named = params.columns.items()
    return TextRules(
        strip=params.categorical.strip,
        fold_case=params.categorical.fold_case,
        missing=params.missing_values,
        as_text=frozenset(name for name, own in named if own.kind == Kind.CATEGORICAL),
        formats={name: own.format for name, own in named if own.format},
        amounts=frozenset(name for name, own in named if own.kind == Kind.AMOUNT),
        durations=frozenset(name for name, own in named if own.kind == Kind.DURATION),
    )


def kind_options(params: EncodeParams, name: str) -> KindOptions:
    """Return what the recipe says of the kind of a column."""
    own = params.columns.get(name)
    if own is None:
        return KindOptions(explicit=params.explicit, text_model=params.text.model is not None)
    kind = Kind.DATETIME if own.kind is None and own.format else own.kind
    return KindOptions(kind, params.explicit, params.text.model is not None, own.format or "", own.decimal)


@dataclass
class FirstPass:
    """Findings of the first pass over the shards.

    Attributes
    ----------
    summaries : summary of every column, over all shards.
    uses : how each column is used.
    labels : rows of each label; empty without a label.
    classes : labels in the order of their class index; empty if they are too many for class shares.
    """

    summaries: dict[str, ColumnSummary] = field(default_factory=dict)
    uses: dict[str, ColumnUse] = field(default_factory=dict)
    labels: Counter[Any] = field(default_factory=Counter)
    classes: list[Any] = field(default_factory=list)


def fit_table(
    params: EncodeParams, context: Context, executor: Executor
) -> tuple[TableEncoding, TableCounts]:
    """Fit the encodings of all columns; leaves the categories of every column in the state folder.

    Returns
    -------
    The encodings, and counts of missing values and categories.

    Raises
    ------
    OperatorError
        A column changes its type between shards, cannot be what the recipe says, or no column is usable.
    """
    found = first_pass(params, context, executor)
    encodings: dict[str, Encoding] = {
        name: _fit_column(params, found.summaries[name], use, context, executor)
        for name, use in found.uses.items()
        if use.used and use.kind != Kind.CATEGORICAL
    }
    categorical = {
        name: found.summaries[name] for name, use in found.uses.items() if use.kind == Kind.CATEGORICAL
    }
    fits = fit_categories(params, categorical, found.classes, context, executor)
    encodings |= fits.encodings
    ordered = tuple(encodings[name] for name in found.uses if name in encodings)
    about = {
        "seed": context.seed,
        "rows": next((summary.rows for summary in found.summaries.values()), 0),
        "uses": {name: use.to_json() for name, use in found.uses.items()},
        "summaries": {name: summary.to_json() for name, summary in found.summaries.items()},
    }
    if fits.limited:
        about[LIMITED] = fits.limited
    fitted = TableEncoding(ordered, about)
    if not fitted.outputs:
        raise OperatorError(_no_feature_message(found))
    return fitted, _counts_of(fitted, found, context)


def _counts_of(fitted: TableEncoding, found: FirstPass, context: Context) -> TableCounts:
    """Count missing values and categories from the summaries, and keep the categories that are all known."""
    counts: TableCounts = {}
    for index, encoding in enumerate(fitted.columns):
        summary = found.summaries[encoding.source]
        counts[encoding.source] = ColumnCounts(summary.rows, summary.missing)
        sketch = summary.values
        if not isinstance(encoding, CategoryEncoding) or sketch is None:
            continue
        if sketch.is_exact:
            write_vocabulary(context.state, index, sketch.values)
        places = pc.index_in(sketch.values, value_set=pa.array(list(encoding.frequent), pa.large_string()))
        rows = np.zeros(len(encoding.frequent) + 1, np.int64)
        np.add.at(rows, places.fill_null(len(encoding.frequent)).to_numpy(), sketch.counts)
        rows[-1] = summary.present - rows[:-1].sum()
        named = zip(encoding.frequent, rows.tolist(), strict=False)
        levels = {f"= {name}": int(n) for name, n in named if name is not None}
        levels |= {INFREQUENT: int(rows[-1]), NEW: 0}
        counts[encoding.source] = ColumnCounts(summary.rows, summary.missing, levels)
    return counts


def first_pass(params: EncodeParams, context: Context, executor: Executor) -> FirstPass:
    """Summarise all shards and decide the kind of every column.

    Texts that are all numbers or dates among the rows to learn from, but not among all rows, are of the kind
    that all rows give them: else each other text would be a fault of its held-out row. Words among numbers
    are those of all rows too; their figures are those of the rows to learn from. All rows also decide whether
    a column is an identifier, since those to learn from leave gaps between the numbers of rows, and how
    amounts are written.
    """
    names = params.features or ()
    found = FirstPass()
    task = partial(_summaries, context.shards, names, params.label, text_rules(params))
    for summaries, labels in executor.map(task, range(len(context.shards.shards))):
        _add(found.summaries, summaries)
        if len(found.labels) <= MAX_TARGET_CLASSES:
            found.labels.update(labels)
    if len(found.labels) <= MAX_TARGET_CLASSES:
        found.classes = sorted(found.labels) if params.classes is None else list(params.classes)
    deciding = found.summaries | _over_all_rows(params, found.summaries, context, executor)
    for name, summary in deciding.items():
        found.uses[name] = decide_kind(summary, kind_options(params, name))
        if found.uses[name].parameters.get("words"):
            found.summaries[name] = found.summaries[name].without_words()
    found.summaries |= read_amounts(found.summaries, found.uses, params.missing_values, context, executor)
    return found


def _over_all_rows(
    params: EncodeParams, learnt: Mapping[str, ColumnSummary], context: Context, executor: Executor
) -> dict[str, ColumnSummary]:
    """Return the summaries over all rows of columns of which some texts are no numbers, or held-out ones no
    dates, and of those that may be identifiers or hold amounts."""
    ids = {
        name
        for name, summary in learnt.items()
        if may_identify(summary) and kind_options(params, name).may_be_identifier
    }
    others = {name for name, summary in learnt.items() if summary.parsed or _may_be_mixed(summary)}
    ids |= {name for name, summary in learnt.items() if summary.amounts is not None}
    names = tuple(name for name in learnt if name in ids or name in others)
    found: dict[str, ColumnSummary] = {}
    reader = context.all_shards
    if reader is None or not names:
        return found
    task = partial(_summaries, reader, names, None, text_rules(params))
    for summaries, _ in executor.map(task, range(len(reader.shards))):
        _add(found, summaries)
    return {
        name: whole
        for name, whole in found.items()
        if name in ids or learnt[name].parsed.keys() - whole.parsed or _may_be_mixed(learnt[name])
    }


def _may_be_mixed(summary: ColumnSummary) -> bool:
    """Return whether a column may be one of numbers in which a few words stand."""
    mixed = summary.mixed
    return mixed is not None and mixed.are_mostly_numbers and mixed.n_words > 0


def _add(found: dict[str, ColumnSummary], summaries: Mapping[str, ColumnSummary]) -> None:
    """Merge the summaries of one more shard into those found so far."""
    for name, summary in summaries.items():
        found[name] = found[name].merge(summary) if name in found else summary


def _summaries(
    reader: ShardReader, names: Sequence[str], label: str | None, rules: TextRules, shard: int
) -> tuple[dict[str, ColumnSummary], dict[Any, int]]:
    """Summarise one shard. Runs on a worker."""
    wanted = list(dict.fromkeys([*names, *([label] if label else [])]))
    table = reader.read_source(shard, wanted)
    release_memory()
    try:
        found = summarise(table, rules, names)
    except OperatorError as error:
        raise OperatorError(f"{reader.shards[shard].path}: {error}") from None
    return found, count_labels(table[label]) if label else {}


def _fit_column(
    params: EncodeParams, summary: ColumnSummary, use: ColumnUse, context: Context, executor: Executor
) -> Encoding:
    """Fit a column of any kind but categorical."""
    name, numeric = summary.name, params.numeric_of(summary.name)
    if use.kind in (Kind.NUMERIC, Kind.BOOLEAN):
        rule = use.parameters.get("rule")
        return fit_number(
            summary,
            str(use.kind),
            scaling=numeric.scaling,
            missing=numeric.missing,
            min_missing_share=params.min_missing_share,
            missing_texts=(*params.missing_values, *use.parameters.get("words", ())),
            amounts=AmountRule.from_json(rule) if rule else None,
            durations=use.parameters.get("parse") == DURATION,
        )
    if use.kind == Kind.DATETIME:
        return fit_datetime(
            summary,
            parts=params.parts_of(name),
            format=str(use.parameters.get("parse", "")),
            fails=numeric.missing == "fail",
            min_missing_share=params.min_missing_share,
            missing_texts=params.missing_values,
        )
    if use.kind == Kind.VECTOR:
        return VectorEncoding(name, summary.width or 0)
    if use.kind == Kind.TAGS:
        return _fit_tags(params, summary)
    return _fit_text(params, name, context, executor)


def _fit_tags(params: EncodeParams, summary: ColumnSummary) -> TagsEncoding:
    """Fit a column of lists of texts; the summary counts all of its entries."""
    own, sketch = params.categorical_of(summary.name), summary.values
    if sketch is None:
        raise OperatorError(f"operators.encode: {summary.name!r} has no lists")
    frequent, bucket, constant = choose_tags(
        sketch.values,
        sketch.counts,
        summary.rows,
        min_share=own.min_share,
        max_columns=own.max_columns or MAX_TAGS,
    )
    least = params.min_missing_share
    indicator = summary.missing > 0 and least <= summary.missing_share <= 1 - least
    reading = text_reading(params)
    return TagsEncoding(
        source=summary.name,
        strip=reading.strip,
        fold_case=reading.fold_case,
        missing=reading.missing,
        frequent=frequent,
        bucket=bucket,
        indicator=indicator,
        constant=constant,
    )


def _fit_text(params: EncodeParams, name: str, context: Context, executor: Executor) -> TextEncoding:
    """Fit a column of free text: a worker opens the network and returns the length of its vectors."""
    text = params.text
    options = {
        "model": text.model,
        "column": name,
        "batch_size": text.batch_size,
        "max_tokens": text.max_tokens,
        "precision": text.precision,
    }
    (width,) = executor.map(text_width, [options], resources=params.resources)
    words = _fit_words(text.words, name, context, executor) if text.words else None
    return TextEncoding(name, width, options, words)


def _fit_words(width: int, name: str, context: Context, executor: Executor) -> WordComponents | None:
    """Fit the components of a column's words on some 10,000 rows; the driver sees no other text."""
    n_rows = sum(shard.n_rows for shard in context.shards.shards)
    share = SAMPLE_ROWS / max(n_rows, 1)
    draw = partial(sampled_texts, context.shards, name, share, context.seed)
    texts = [text for found in executor.map(draw, range(len(context.shards.shards))) for text in found]
    (fitted,) = executor.map(partial(WordComponents.fit, width=width, seed=context.seed), [texts])
    return fitted


def _no_feature_message(found: FirstPass) -> str:
    unused = "; ".join(f"{name}: {use.note}" for name, use in found.uses.items() if not use.used)
    return (
        "operators.encode: no column gives a feature. "
        + (f"{unused}. " if unused else "")
        + "Name usable columns under source.features, or tell their kinds under operators.encode.columns."
    )
