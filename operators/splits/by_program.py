"""``split`` with ``method: cluster`` and ``folds`` or ``marginals``, which need a linear program.

The program is solved in memory for the rows with the smallest hashes, at most 5,000, and these rows get its
solution. Its dual prices assign all other rows, and rows that come later, which keeps the shares on average.
Shares are therefore exact for up to 5,000 rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.arrays import Int64
from operators.base import (
    FEATURES,
    GROUP,
    IS_OUTLIER,
    LABEL,
    ROW_ID,
    Apply,
    Context,
    Executor,
    OperatorError,
    OperatorParams,
)
from operators.bounded_json import read_json
from operators.columns import vectors_to_numpy
from operators.splits.adaptor import Split, split_column
from operators.splits.at_random import draw_test_rows
from operators.splits.by_domain import Codes, Domains, RemainingRows
from operators.splits.cluster import Strata
from operators.splits.hashed_split import FOLD, NO_FOLD, TRAIN, VALIDATION, strata
from operators.splits.params import ClusterParams
from operators.splits.shift import measure, settings_of, stored_landmarks
from operators.threads import limit_threads

RECORD, RULE, MAP = "strata.json", "rule.npz", "map.npz"


class ByProgram(Split[ClusterParams]):
    """Splits rows under two marginals, or into folds, the first of which is validation.

    With ``folds`` it also adds the column ``fold``: 0 to k - 1, and -1 for test and dropped rows.
    """

    Params: ClassVar[type[OperatorParams]] = ClusterParams
    rule_reads_features = True

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Return the added columns: ``split`` and, with folds, ``fold``."""
        fold = (pa.field(FOLD, pa.int32()),) if self.params.folds else ()
        return (*super().adds, *fold)

    @property
    def publishes(self) -> tuple[pa.Field, ...]:
        """Return the published column ``fold``, if there are folds."""
        return self.adds[1:]

    def fit_rule(self, context: Context, executor: Executor) -> dict[str, float]:
        """Solve the program for a sample; store its solution, the rule for other rows and the feature map.

        Returns rows by part, ``mmd`` and ``mmd_random`` of validation against training, and ``objective``.

        Raises
        ------
        OperatorError
            No split has these shares, or the kernel is degenerate.
        """
        try:
            with limit_threads(1):
                objective = self._fit(context, executor)
        except ValueError as error:
            raise OperatorError(f"operators.split: {error}") from None
        counts = self._count(context, executor)
        return counts | measure(self, context, executor) | {"objective": objective}

    def _fit(self, context: Context, executor: Executor) -> float:
        # Imported here because planning imports this module and must not load scikit-learn.
        from operators.splits.sharded import ParticipatingRows, draw_sample
        from operators.splits.start import generator

        params = self.params
        test, _ = draw_test_rows(self.params, context).thresholds(executor, params, 0.0, params.test)
        record: dict[str, Any] = {"test": sorted(test.items()), "domains": []}
        rest = RemainingRows(draw_test_rows(self.params, context), test)
        for column in self._columns():
            sizes = Domains(context.shards, column).sizes(executor, rest, params.resources)
            record["domains"].append(sorted(sizes))
        (context.state / RECORD).write_text(json.dumps(record), "utf-8")
        taking = ParticipatingRows(context.shards, (LABEL, GROUP, IS_OUTLIER), self._strata(context))
        seed = int(generator(context.seed % 2**32).integers(2**63))
        drawn = draw_sample(executor, taking, seed, params.resources)
        if len(drawn.keys) < 2:
            raise ValueError(f"there are {len(drawn.keys)} rows to split, but a split needs at least two.")
        if params.folds and params.folds > len(drawn.keys):
            raise ValueError(f"folds is {params.folds}, and there are {len(drawn.keys)} rows: lower it.")
        solve = self._folds if params.folds else self._marginals
        feature_map, arrays, objective = solve(context, drawn.X, drawn.keys)
        feature_map.save(context.state / MAP)
        np.savez(context.state / RULE, row_ids=drawn.row_ids, **arrays)
        return objective

    def _folds(self, context: Context, X: npt.NDArray[Any], keys: Int64) -> tuple[Any, dict[str, Any], float]:
        from operators.splits.folds import MAX_VARIABLES, ConstrainedFolds

        params = self.params
        if params.folds and params.folds * len(X) > MAX_VARIABLES:
            raise ValueError(
                f"folds is {params.folds}, and {len(X)} sampled rows are assigned to them: lower it to "
                f"{MAX_VARIABLES // len(X)} or less."
            )
        model = ConstrainedFolds(
            n_folds=params.folds or 2,
            kernel=params.kernel,
            gamma=params.gamma,
            landmarks=params.landmarks,
            n_init=params.n_init,
            random_state=context.seed % 2**32,
            standardize=params.standardize,
            max_iter=params.max_iter,
        ).fit(X, keys)
        arrays = {
            "parts": model.labels_,
            "centroids": model.centroids_,
            "names": model.groups_,
            "prices": model.prices_,
        }
        return model.feature_map_, arrays, float(model.objective_[-1])

    def _marginals(
        self, context: Context, X: npt.NDArray[Any], keys: Int64
    ) -> tuple[Any, dict[str, Any], float]:
        from operators.splits.in_memory import FeatureRows, best_start, project
        from operators.splits.kernel import iterate
        from operators.splits.selection import Marginals
        from operators.splits.start import generator

        settings = settings_of(self.params, stored_landmarks(self.params, context))
        random = generator(context.seed % 2**32)
        feature_map = settings.make_feature_map(X, int(random.integers(2**31)))
        names, codes = zip(*(np.unique(column, return_inverse=True) for column in _pair(keys)), strict=True)
        selector = Marginals(np.column_stack(codes), settings.holdout, settings.tolerance)
        rows = FeatureRows(feature_map.features(X), selector)
        start, _, _ = best_start(rows, settings.n_init, settings.max_iter, random)
        fit = iterate(rows, start, settings.max_iter)
        direction, offset, sign = fit.rule
        gain = sign * project(rows.phi, np.arange(rows.n), direction, offset)
        prices = selector.prices(gain)
        arrays = {
            "parts": fit.chosen.selection,
            "direction": direction,
            "offset": offset,
            "sign": sign,
            "first": names[0],
            "second": names[1],
            "first_prices": prices[0],
            "second_prices": prices[1],
        }
        return feature_map, arrays, rows.scatter - fit.between[-1]

    def _count(self, context: Context, executor: Executor) -> dict[str, float]:
        """Return the rows of each part and, with folds, of the smallest and the largest fold."""
        apply = self.open_rule(context)
        n_folds = self.params.folds or 0
        work = partial(_sizes, context.shards, apply, tuple(self.requires), n_folds)
        totals: dict[str, float] = {"train": 0.0, "validation": 0.0, "test": 0.0, "dropped": 0.0}
        folds = np.zeros(n_folds)
        for parts, by_fold in executor.map(
            work, range(len(context.shards.shards)), resources=self.params.resources
        ):
            for name, n in parts.items():
                totals[name] += n
            folds += by_fold
        if n_folds:
            totals |= {"smallest_fold": float(folds.min()), "largest_fold": float(folds.max())}
        return totals

    def open_rule(self, context: Context) -> Apply:
        """Return a function that splits the rows of a table: by the program's solution, else by its
        prices.
        """
        return self._open(context, exact=True)

    def open_rule_for_new_rows(self, context: Context) -> Apply:
        """Return a function that splits rows by prices alone: ids of the sample may be those of other
        rows.
        """
        return self._open(context, exact=False)

    def _open(self, context: Context, *, exact: bool) -> Apply:
        from operators.splits.features import FeatureMap

        feature_map = FeatureMap.load(context.state / MAP)
        with np.load(context.state / RULE) as found:
            rule = dict(found)
        if not exact:
            rule["row_ids"], rule["parts"] = rule["row_ids"][:0], rule["parts"][:0]
        return partial(_apply, feature_map, rule, self._strata(context), self.params.folds or 0)

    def _columns(self) -> tuple[str, ...]:
        if self.params.marginals:
            return self.params.marginals
        return (self.params.domain,) if self.params.within == "domain" else ()

    def _strata(self, context: Context) -> Any:
        record = read_json(context.state / RECORD)
        rest = RemainingRows.stored(draw_test_rows(self.params, context), record)
        codes = [
            Codes(Domains(context.shards, column), tuple(values))
            for column, values in zip(self._columns(), record["domains"], strict=True)
        ]
        if self.params.marginals:
            return Pairs(rest, codes[0], codes[1])
        return Strata(rest, codes[0] if codes else None)


@dataclass(frozen=True)
class Pairs:
    """One key for the two groups of each row; -1 for dropped and test rows. Picklable."""

    rest: RemainingRows
    first: Codes
    second: Codes

    def __call__(self, table: pa.Table) -> Int64:
        """Return (n,) keys; see :class:`operators.splits.sharded.ParticipatingRows`."""
        # The code is -1 for values that ``fit`` has not seen; they form a group of their own.
        keys = strata(self.first(table) + 1, self.second(table))
        return np.where(self.rest(table), keys, -1)


def _pair(keys: Int64) -> tuple[Int64, Int64]:
    """Return the two codes that :func:`operators.splits.hashed_split.strata` joined into each key."""
    return keys >> 32, (keys & 0xFFFFFFFF) - 1


def _sizes(
    reader: Any, apply: Apply, columns: tuple[str, ...], n_folds: int, shard: int
) -> tuple[Mapping[str, int], npt.NDArray[np.int64]]:
    found = apply(reader.read(shard, columns))
    values, counts = np.unique(found["split"].to_pylist(), return_counts=True)
    folds = found[FOLD].to_numpy() if n_folds else np.empty(0, np.int64)
    parts = {str(value): int(n) for value, n in zip(values, counts, strict=True)}
    return parts, np.bincount(folds[folds >= 0], minlength=n_folds)


def _apply(
    feature_map: Any, rule: dict[str, Any], row_strata: Any, n_folds: int, table: pa.Table
) -> pa.Table:
    parts, keys = row_strata.rest.draw.parts(table, row_strata.rest.test), row_strata(table)
    rows = np.flatnonzero(keys >= 0)
    folds = np.full(table.num_rows, NO_FOLD, np.int32)
    if len(rows):
        ids = table[ROW_ID].to_numpy()[rows]
        with limit_threads(1):
            phi = feature_map.features(vectors_to_numpy(table[FEATURES])[rows], ids)
            found = _by_prices(phi, ids, keys[rows], rule, n_folds)
        known = np.flatnonzero(np.isin(ids, rule["row_ids"]))
        found[known] = rule["parts"][np.searchsorted(rule["row_ids"], ids[known])]
        if n_folds:
            folds[rows] = found
            found = found == 0
        parts[rows] = np.where(found, VALIDATION, TRAIN)
    columns = split_column(parts)
    return columns.append_column(FOLD, pa.array(folds)) if n_folds else columns


def _by_prices(
    phi: npt.NDArray[np.float32], ids: Int64, keys: Int64, rule: dict[str, Any], n_folds: int
) -> npt.NDArray[Any]:
    """Return the fold (n,) of each row or, without folds, whether it is a validation row (n,)."""
    if n_folds:
        from operators.splits.folds import place

        return place(phi.astype(np.float64), keys, rule["centroids"], rule["names"], rule["prices"])
    from operators.splits.in_memory import project

    gain = float(rule["sign"]) * project(phi, ids, rule["direction"], float(rule["offset"]))
    for codes, name in zip(_pair(keys), ("first", "second"), strict=True):
        at = np.minimum(np.searchsorted(rule[name], codes), len(rule[name]) - 1)
        gain -= np.where(rule[name][at] == codes, rule[f"{name}_prices"][at], 0.0)
    return np.asarray(gain < 0)
