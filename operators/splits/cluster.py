"""``split`` with ``method: cluster``: constrained kernel k-means over shards."""

from __future__ import annotations

import json
import shutil
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
from operators.splits.adaptor import ROUNDED, Split, split_column
from operators.splits.at_random import draw_test_rows
from operators.splits.by_domain import Codes, Domains, RemainingRows
from operators.splits.hashed_split import PARTS, VALIDATION, strata
from operators.splits.params import ClusterParams
from operators.splits.shift import settings_of, stored_landmarks
from operators.threads import limit_threads

STRATA, RULE, MAP = "strata.json", "rule.npz", "map.npz"


class Cluster(Split[ClusterParams]):
    """Takes validation rows far from the training rows, with exact shares of every label or domain."""

    Params: ClassVar[type[OperatorParams]] = ClusterParams
    rule_reads_features = True

    def fit_rule(self, context: Context, executor: Executor) -> dict[str, float]:
        """Choose the validation rows; store the feature map and the thresholds of the gain per stratum.

        Returns rows by part; ``mmd``, and ``mmd_random``, its root mean square over random splits;
        ``objective``, ``steps``; ``start_mmd_min`` and ``start_mmd_max`` over the starts.

        Raises
        ------
        OperatorError
            No split has these shares, or the kernel is degenerate.
        """
        try:
            with limit_threads(1):
                return self._fit(context, executor)
        except ValueError as error:
            raise OperatorError(f"operators.split: {error}") from None

    def _fit(self, context: Context, executor: Executor) -> dict[str, float]:
        # Imported here because planning imports this module and must not load scikit-learn.
        from operators.splits.hashed_split import count_strata
        from operators.splits.kernel import iterate, mmd_of, random_mmd
        from operators.splits.selection import make_quotas
        from operators.splits.sharded import ParticipatingRows, RowFiles, ShardedRows, draw_sample
        from operators.splits.start import generator, make_start

        params = self.params
        test, counts = draw_test_rows(self.params, context).thresholds(executor, params, 0.0, params.test)
        codes: tuple[str, ...] = ()
        if params.within == "domain":
            rest = RemainingRows(draw_test_rows(self.params, context), test)
            codes = tuple(
                sorted(Domains(context.shards, params.domain).sizes(executor, rest, params.resources))
            )
        record = {"test": sorted(test.items()), "domains": codes}
        (context.state / STRATA).write_text(json.dumps(record), "utf-8")
        taking = ParticipatingRows(context.shards, (LABEL, GROUP, IS_OUTLIER), self._strata(context))
        sizes = count_strata(executor, taking.shards, partial(_keys, taking), params.resources)
        sizes.pop(-1, None)
        names = np.array(sorted(sizes), np.int64)
        settings = settings_of(params, stored_landmarks(params, context))
        quotas = make_quotas(
            names, np.array([sizes[int(name)] for name in names]), settings.holdout, settings.tolerance
        )

        def sample(seed: int) -> tuple[npt.NDArray[Any], Int64]:
            drawn = draw_sample(executor, taking, seed, params.resources)
            return drawn.X, np.searchsorted(names, drawn.keys)[:, None]

        start = make_start(sample, sum(sizes.values()), settings, generator(context.seed % 2**32))
        start.feature_map.save(context.state / MAP)
        work = context.state / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        rows = ShardedRows(executor, RowFiles(work, taking), start.feature_map, quotas, params.resources)
        fit = iterate(rows, start.centroids, params.max_iter)
        shutil.rmtree(work)
        direction, offset, sign = fit.rule
        np.savez(
            context.state / RULE,
            direction=direction,
            offset=offset,
            sign=sign,
            **fit.chosen.selection._asdict(),
        )
        taken = float(fit.chosen.count)
        return counts | {
            "validation": taken,
            "train": counts["train"] - taken,
            "mmd": mmd_of(rows, fit.chosen),
            "mmd_random": random_mmd(rows.scatter, rows.n, fit.chosen.count),
            "objective": rows.scatter - fit.between[-1],
            "steps": float(len(fit.between)),
            "start_mmd_min": min(start.mmds),
            "start_mmd_max": max(start.mmds),
        }

    def asked_shares(self) -> Mapping[str, tuple[float, str]]:
        """Return the least share of validation rows that ``tolerance`` allows."""
        params = self.params
        remedy = "Set split.within: label, or raise" if params.within == "domain" else "Raise"
        least = params.validation * max(1 - params.tolerance, 0)
        return {PARTS[VALIDATION]: (least, f"{ROUNDED}{remedy} split.tolerance.")}

    def open_rule(self, context: Context) -> Apply:
        """Return a function that splits the rows of a table by their features and stratum."""
        from operators.splits.features import FeatureMap

        feature_map = FeatureMap.load(context.state / MAP)
        with np.load(context.state / RULE) as found:
            rule = dict(found)
        return partial(_apply, feature_map, rule, self._strata(context))

    def _strata(self, context: Context) -> Strata:
        record = read_json(context.state / STRATA)
        rest = RemainingRows.stored(draw_test_rows(self.params, context), record)
        if self.params.within == "label":
            return Strata(rest, None)
        return Strata(rest, Codes(Domains(context.shards, self.params.domain), tuple(record["domains"])))


@dataclass(frozen=True)
class Strata:
    """Function that returns each row's stratum, by label and domain; -1 for dropped and test rows.
    Picklable.
    """

    rest: RemainingRows
    codes: Codes | None

    def __call__(self, table: pa.Table) -> Int64:
        """Return the stratum (n,) of each row of a table."""
        codes = np.zeros(table.num_rows, np.int64) if self.codes is None else self.codes(table)
        return np.where(self.rest(table), strata(table[LABEL].to_numpy(), codes), -1)


def _keys(taking: Any, shard: int) -> Int64:
    keys: Int64 = taking.read(shard).keys
    return keys


def _apply(feature_map: Any, rule: dict[str, Any], row_strata: Strata, table: pa.Table) -> pa.Table:
    from operators.splits.in_memory import project
    from operators.splits.sharded import GainThresholds

    parts, keys = row_strata.rest.draw.parts(table, row_strata.rest.test), row_strata(table)
    rows = np.flatnonzero(keys >= 0)
    if len(rows):
        ids = table[ROW_ID].to_numpy()[rows]
        with limit_threads(1):
            phi = feature_map.features(vectors_to_numpy(table[FEATURES])[rows], ids)
            gain = project(phi, ids, rule["direction"], float(rule["offset"]))
        thresholds = GainThresholds(rule["names"], rule["ends"], rule["ties"])
        parts[rows[thresholds.mask(keys[rows], int(rule["sign"]) * gain, ids)]] = VALIDATION
    return split_column(parts)
