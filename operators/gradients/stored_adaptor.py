"""``gradients`` from arrays on disk: no model, no probe, each shard reads its own rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from operators.base import (
    GRADIENT,
    LABEL,
    ROW_ID,
    VECTOR,
    Apply,
    Context,
    DatasetDelta,
    Executor,
    Operator,
    OperatorError,
    OperatorParams,
    ReportContext,
)
from operators.columns import numpy_to_vectors
from operators.gradients.params import GradientsParams, StoredParams
from operators.gradients.stored import StoredRows, open_stored
from operators.report import ReportSection


class StoredGradients(Operator[GradientsParams]):
    """Adds row i of a stored array to row i of the plan, whatever its shard."""

    name = "gradients"
    version = 1
    Params: ClassVar[type[OperatorParams]] = GradientsParams
    fits_on_all_rows = True

    def __init__(self, params: GradientsParams) -> None:
        super().__init__(params)
        self._root = os.getcwd()  # workers have working directories of their own

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the required column: labels. Rows that were set aside have none, and get no gradient."""
        return (LABEL,)

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Return the added column of vectors, as long as the stored ones."""
        return (pa.field(GRADIENT, VECTOR),)

    @property
    def files(self) -> tuple[str, ...]:
        """Return the stored files, whose content is part of the fingerprint. Raises OperatorError."""
        return tuple(str(file.path) for file in self._open().files)

    def _open(self) -> StoredRows:
        stored = self.params.stored or StoredParams(path="")
        path = Path(self._root, os.path.expanduser(stored.path))
        try:
            return open_stored(path, stored.format, stored.dtype, stored.shape)
        except ValueError as error:
            raise OperatorError(f"operators.gradients.stored: {error}") from error

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Check that there is one stored row for each of the plan's.

        Returns
        -------
        ``numbers_per_row``.

        Raises
        ------
        OperatorError
            There are more or fewer.
        """
        rows = self._open()
        planned = sum(shard.n_rows for shard in context.shards.shards)
        if rows.n_rows != planned:
            raise OperatorError(
                f"operators.gradients.stored: {rows.files[0].path} holds {rows.n_rows} rows, and the source "
                f"{planned}. Row i of the one belongs to row i of the other, files in sorted order: store "
                f"the gradients of exactly these files again."
            )
        return {"numbers_per_row": float(rows.width)}

    @property
    def can_predict(self) -> bool:
        """Return True: every row of the plan has a stored one, whatever the other operators learn from."""
        return True

    def partial_fit(self, context: Context, delta: DatasetDelta, executor: Executor) -> dict[str, float]:
        """Check the number of stored rows again, as :meth:`fit` does. Raises OperatorError."""
        return self.fit(context, executor)

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """Draw maps of gradient space."""
        from operators.gradients.report import gradient_section

        return gradient_section(context, GRADIENT)

    def open(self, context: Context) -> Apply:
        """Find the files once; then read, for each shard, the rows it asks for.

        Raises
        ------
        OperatorError
            A row holds a number that is not finite; ``source.on_error: quarantine`` sets it aside.
        """
        rows = self._open()

        def apply(table: pa.Table) -> pa.Table:
            places = table.column(ROW_ID).to_numpy()
            found = rows.read(places)
            wrong = np.flatnonzero(~np.isfinite(found).all(axis=1))
            if len(wrong):
                raise OperatorError(
                    f"operators.gradients.stored: row {places[wrong[0]]} of the stored gradients holds a "
                    f"number that is not finite in float32. Correct it, or set such rows aside with "
                    f"source.on_error: quarantine."
                )
            return pa.table({GRADIENT: numpy_to_vectors(found)})

        return apply
