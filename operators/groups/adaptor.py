"""The adaptor of methods that split one class at a time (:class:`~operators.groups.kernel.GroupMethod`)."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from operators.arrays import NOISE, Labels
from operators.base import (
    LABEL,
    Apply,
    Context,
    Executor,
    Operator,
    OperatorError,
    OperatorParams,
    Resources,
)
from operators.groups.base import (
    GroupsBase,
    LabelClass,
    apply_by_class,
    column_to_numpy,
    stored_labels,
)
from operators.groups.kernel import GroupMethod, GroupResult
from operators.groups.small_groups import centre_distances, least_rows, merge_small, to_groups
from operators.groups.sorted_shards import Gather, class_gatherer, count_rows, remove_sorted
from operators.groups.state import (
    class_names,
    number_groups,
    read_arrays,
    read_group_record,
    write_arrays,
    write_group_record,
    write_labels,
)


class ClassWise(GroupsBase[OperatorParams]):
    """Adds the groups of a method that splits one class at a time, with one worker per class.

    ``fit`` stores ``groups.json``, which has the group of each of the method's clusters, and per class
    ``labels-<class>.parquet`` and ``model-<class>.npz``. A worker holds the columns of one class and the
    memory that the method needs.
    """

    Method: ClassVar[type[GroupMethod[Any]]]

    def __reduce__(self) -> tuple[Any, ...]:
        # The class is made from its method, so workers cannot import it by name.
        return _rebuild, (self.Method, self.params), self.__dict__

    @property
    def method(self) -> GroupMethod[Any]:
        """A new instance of the method. Whatever it keeps in itself is not part of the plan."""
        return self.Method(self.params)

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the required columns: those of the method, and labels."""
        return (*self.method.columns, LABEL)

    @property
    def resources(self) -> Resources:
        """Resources of one actor."""
        resources: Resources = getattr(self.params, "resources", Resources())
        return resources

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Split every class into groups.

        Returns
        -------
        ``groups`` (that have a row) and ``outlier_share``.

        Raises
        ------
        OperatorError
            No class has a row, or vectors have different lengths.
        """
        names = class_names(context.states["ingest"])
        run = partial(executor.map, resources=self.resources)
        counts = count_rows(context.shards, run, len(names))
        gather = class_gatherer(context.shards, run, self.method.columns, counts, context.state)
        split = partial(_fit_class, gather, context.state, self.method, context.seed)
        records = number_groups([one for one in run(split, list(enumerate(names))) if one is not None])
        remove_sorted(context.state)
        if not records:
            raise OperatorError(
                "operators.groups: no class has a row. Check the rejected rows (`rowsieve quarantine`) and "
                "correct the source."
            )
        write_group_record(context.state, self.params, classes=records)
        rows = sum(record["n_rows"] for record in records)
        return {
            "groups": float(sum(record["n_found"] for record in records)),
            "outlier_share": sum(record["n_noise"] for record in records) / rows,
        }

    def open(self, context: Context) -> Apply:
        """Return a function that reads the stored labels of a table's rows."""
        return self._apply(context.state, partial(stored_labels, context.state))

    def open_for_new_rows(self, context: Context) -> Apply:
        """Return a function that assigns new rows by the method's ``predict``."""

        def predicted(index: int, rows: pa.Table) -> Labels:
            columns = {name: column_to_numpy(rows.column(name)) for name in self.method.columns}
            return self.method.predict(read_arrays(context.state, index), columns)

        return self._apply(context.state, predicted)

    def _apply(self, state: Path, label: LabelClass) -> Apply:
        record = read_group_record(state)
        offsets = {entry["class"]: entry["offset"] for entry in record["classes"]}
        # States of earlier versions name no group of a cluster: there each cluster is a group.
        group_of = {entry["class"]: entry.get("group_of") for entry in record["classes"]}

        def grouped(index: int, rows: pa.Table) -> Labels:
            return to_groups(label(index, rows), group_of[index])

        return apply_by_class(offsets, grouped, str(record["params"]["method"]))


@cache
def class_wise(method: type[GroupMethod[Any]]) -> type[Operator[Any]]:
    """Return the operator class that runs ``method``."""
    body = {
        "Method": method,
        "Params": method.Params,
        "version": method.version,
        "__doc__": method.__doc__,
        "__module__": method.__module__,
    }
    return type(method.__name__, (ClassWise,), body)


def _rebuild(method: type[GroupMethod[Any]], params: OperatorParams) -> Operator[Any]:
    return class_wise(method)(params)


def _fit_class(
    gather: Gather, state: Path, method: GroupMethod[Any], seed: int, named: tuple[int, str]
) -> dict[str, Any] | None:
    """Split one class, store its labels and state, and return its record."""
    index, name = named
    row_ids, columns = gather(index)
    if not len(row_ids):
        return None
    result = method.fit(columns, seed)
    labels = np.asarray(result.labels, np.int32)
    write_labels(state, index, row_ids, labels)
    write_arrays(state, index, result.state)
    group_of = _merged(result, labels, method.params)
    found = to_groups(labels[labels != NOISE], group_of)
    return {
        "class": index,
        "name": name,
        "n_rows": len(labels),
        "n_groups": int(group_of.max(initial=-1)) + 1,
        "n_found": len(np.unique(found)),
        "group_of": group_of.tolist(),
        "n_noise": int(np.count_nonzero(labels == NOISE)),
        "scores": dict(result.scores),
    }


def _merged(result: GroupResult, labels: Labels, params: OperatorParams) -> Labels:
    """Return the group (n_groups,) of each group that the method found, after small ones were merged."""
    least = least_rows(len(labels), getattr(params, "min_rows", 0), getattr(params, "min_share", 0.0))
    apart = np.full((result.n_groups, result.n_groups), np.inf)
    if result.centres is not None:
        apart = centre_distances(result.centres)
    return merge_small(np.bincount(labels[labels != NOISE], minlength=result.n_groups), apart, least)
