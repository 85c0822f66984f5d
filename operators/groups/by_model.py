"""Methods that split each class by the predictions of a model: EIIL and JTT."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.arrays import Float64, Mask
from operators.base import (
    FEATURES,
    LABEL,
    Apply,
    Context,
    Executor,
    OperatorParams,
    Resources,
)
from operators.columns import vectors_to_numpy
from operators.groups.base import GroupsBase, group_columns
from operators.groups.params import EiilParams, JttParams
from operators.groups.small_groups import least_rows
from operators.groups.state import class_names, read_group_record, write_group_record
from operators.probe.params import ProbeParams

Part = Callable[[pa.Table], Mask]
P = TypeVar("P", EiilParams, JttParams)


class ByModel(GroupsBase[P], Generic[P]):
    """Group 2y + 1 for the rows of class y that a model, kept in the state, sets apart; 2y for the rest.

    A class of which one part has too few rows is not split: all of its rows are in group 2y.
    """

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the required columns: features and labels."""
        return FEATURES, LABEL

    def open(self, context: Context) -> Apply:
        """Return a function that groups the rows of a table by the model, which is loaded once."""
        part, whole = self._part(context.state), read_group_record(context.state).get("whole", ())

        def apply(table: pa.Table) -> pa.Table:
            y = table.column(LABEL).to_numpy()
            apart = part(table) & ~np.isin(y, whole)
            return group_columns((2 * y + apart).astype(np.int32))

        return apply

    def _write(self, context: Context, executor: Executor) -> None:
        """Count both parts of every class by the stored model, and record the classes that are not split."""
        write_group_record(context.state, self.params)
        counts: Counter[tuple[int, bool]] = Counter()
        shards = [shard.index for shard in context.shards.shards]
        for found in executor.map(partial(self._counts, context), shards, resources=self.params.resources):
            counts.update(found)
        whole = []
        for y in range(len(class_names(context.states["ingest"]))):
            sizes = counts[y, False], counts[y, True]
            least = least_rows(sum(sizes), self.params.min_rows, self.params.min_share)
            if min(sizes) < least or not any(sizes):
                whole.append(y)
        write_group_record(context.state, self.params, whole=whole)

    def _counts(self, context: Context, shard: int) -> dict[tuple[int, bool], int]:
        table = context.shards.read(shard, [FEATURES, LABEL])
        if not table.num_rows:
            return {}
        y, apart = table.column(LABEL).to_numpy(), self._part(context.state)(table)
        return Counter(zip(y.tolist(), apart.tolist(), strict=True))

    def _part(self, state: Path) -> Part:
        raise NotImplementedError


class Eiil(ByModel[EiilParams]):
    """Two environments per class, by the sign of the derivative of a row's loss by a scale of the logits.

    This is the maximum of the soft IRM penalty over all rows; see :mod:`operators.groups.eiil`.
    """

    version = 3
    Params: ClassVar[type[OperatorParams]] = EiilParams
    uses = ("ingest", "probe")

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Copy the probe into the state, and add up derivatives shard by shard.

        Returns ``penalty`` (soft IRM, at its maximum) and ``minority_share``, the smaller environment's.
        """
        from operators.groups.eiil import penalty
        from operators.models.storage import copy

        copy(context.states["probe"], context.state)
        self._write(context, executor)
        shards = [shard.index for shard in context.shards.shards]
        sums = np.zeros(4)
        for found in executor.map(partial(_derivative_sums, context), shards, resources=self.resources):
            sums += found
        positive, negative, n_positive, n_rows = sums.tolist()
        n = max(int(n_rows), 1)
        share = min(n_positive, n_rows - n_positive) / n
        return {"penalty": penalty(positive, negative, n), "minority_share": share}

    def _part(self, state: Path) -> Part:
        from operators.groups.eiil import environments

        derivatives = _derivatives(state, self.params.resources)
        return lambda table: environments(derivatives(table))


class Jtt(ByModel[JttParams]):
    """Two groups per class: the rows that an early-stopped model gets right, and those it gets wrong.

    Source: Liu et al.: Just Train Twice, ICML 2021, section 3: the error set E = {i : f(x_i) != y_i} of a
    model trained for few epochs. Its second training, which repeats E, is left to ``weights``.
    """

    version = 4
    Params: ClassVar[type[OperatorParams]] = JttParams

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Train as the operator ``probe`` does, by Adam for ``epochs`` passes, and store the model.

        Returns ``error_share`` and ``train_loss``. Raises OperatorError where rows cannot be used.
        """
        from operators.probe.adaptor import Probe

        metrics = Probe(self._training()).fit(context, executor)
        self._write(context, executor)
        return {"error_share": 1 - metrics["train_accuracy"], "train_loss": metrics["train_loss"]}

    def _training(self) -> ProbeParams:
        values = self.params.model_dump(exclude={"method", "min_rows", "min_share"})
        if self.params.model == "logistic":
            # The probe solves `logistic` to a tolerance. A network without hidden layers can be stopped
            # early.
            values |= {"model": "mlp", "hidden": ()}
        return ProbeParams.model_validate(values)

    def _part(self, state: Path) -> Part:
        from operators.models import load, prepare_device
        from operators.probe.scoring import predict

        resources = self.params.resources
        model = load(state).to(prepare_device(resources.cpus, resources.gpus))

        def wrong(table: pa.Table) -> Mask:
            y = table.column(LABEL).to_numpy()
            return np.asarray(predict(model, vectors_to_numpy(table.column(FEATURES)), y)[0] != y)

        return wrong


def _derivatives(state: Path, resources: Resources) -> Callable[[pa.Table], Float64]:
    from operators.groups.eiil import scale_derivatives
    from operators.models import load, prepare_device
    from operators.probe.scoring import logits

    model = load(state).to(prepare_device(resources.cpus, resources.gpus))

    def derivatives(table: pa.Table) -> Float64:
        if not table.num_rows:  # without rows the width of the vectors is not known
            return np.empty(0)
        Z = logits(model, vectors_to_numpy(table.column(FEATURES)))
        return scale_derivatives(Z, table.column(LABEL).to_numpy())

    return derivatives


def _derivative_sums(context: Context, shard: int) -> npt.NDArray[Any]:
    """Return the sums of positive and of negative derivatives, the rows with positive ones, and all rows."""
    table = context.shards.read(shard, [FEATURES, LABEL])
    if not table.num_rows:
        return np.zeros(4)
    g = _derivatives(context.state, Resources())(table)
    return np.array([g[g > 0].sum(), g[g < 0].sum(), np.count_nonzero(g > 0), len(g)])
