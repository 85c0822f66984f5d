"""Search for the rows on which an operator raises, so that the other rows of the batch can be processed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engine.core.errors import RowsieveError
from operators.base import Apply, ResourceError

NO_ROWS_FAULT = (RowsieveError, ResourceError, MemoryError, OSError)
"""Errors of the machine or the run, which no single row causes."""


def apply_without_faulty(apply: Apply, table: pa.Table, allowed: int) -> tuple[pa.Table, Mapping[int, str]]:
    """Call ``apply`` on all rows except those on which it raises.

    If the batch raises, its halves are tried, and halves of these, down to single rows. The result is that of
    one more call on all remaining rows, so it does not depend on the search.

    Parameters
    ----------
    apply
        The function that an operator's ``open`` returned.
    table
        Its input.
    allowed
        Most faulty rows; with 0 there is no search.

    Returns
    -------
    The result for the remaining rows, in their order, and the error of each faulty row by its position.

    Raises
    ------
    Exception
        The error of the whole batch, if more than ``allowed`` rows raise alone, if none does, or if the error
        is one of ``NO_ROWS_FAULT``.

    """
    try:
        return apply(table), {}
    except NO_ROWS_FAULT:
        raise
    except Exception as error:
        faults: dict[int, str] = {}
        if allowed:
            _search(apply, table, np.arange(table.num_rows), allowed, faults)
        if not 0 < len(faults) <= allowed:
            raise
        error.__traceback__ = None  # it holds the batch
    kept = np.delete(np.arange(table.num_rows), list(faults))
    return apply(table.take(kept)), faults


def _search(
    apply: Apply, table: pa.Table, rows: npt.NDArray[np.int64], allowed: int, faults: dict[int, str]
) -> None:
    """Collect the faulty rows among ``rows``, which raise together; stop when there are too many."""
    halves = np.array_split(rows, 2) if len(rows) > 1 else [rows]
    for half in halves:
        if len(faults) > allowed:
            return
        try:
            apply(table.take(half))
        except NO_ROWS_FAULT:
            raise
        except Exception as error:
            if len(half) == 1:
                faults[int(half[0])] = f"{type(error).__name__}: {error}"
            elif len(half):  # an error without any row is not the fault of a row
                _search(apply, table, half, allowed, faults)
