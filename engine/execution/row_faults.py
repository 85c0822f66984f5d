"""When a batch fails: which of its rows are to blame, so that the others can go on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engine.core.errors import RowsieveError
from operators.base import Apply, ResourceError

NO_ROWS_FAULT = (RowsieveError, ResourceError, MemoryError, OSError)
"""Errors that say something of the machine or the run, never of a row."""


def apply_without_faulty(apply: Apply, table: pa.Table, allowed: int) -> tuple[pa.Table, Mapping[int, str]]:
    """``apply`` on all rows but those that make it raise.

    Where the whole batch raises, halves of it are tried, and halves of these, down to single rows. The
    result is that of one more call on all rows that are left, so it does not depend on the search.

    Parameters
    ----------
    apply : what an operator's ``open`` returned.
    table : (n rows) its input.
    allowed : most rows to blame; 0 means that an error is an error.

    Returns
    -------
    The result for the rows that are left, in their order, and position -> error of the faulty ones.

    Raises
    ------
    Exception
        What ``apply`` raised on the whole batch, if more than ``allowed`` rows raise alone (then it is no
        matter of rows), if none does, or if the error is one of ``NO_ROWS_FAULT``.

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
    """Collect the faulty ones among ``rows``, known to raise together; stop once there are too many."""
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
            else:
                _search(apply, table, half, allowed, faults)
