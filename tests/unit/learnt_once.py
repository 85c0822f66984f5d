"""Groups and cues from memory where they were learnt from the same rows before, for tests of other things.

Many tests of whole runs have the same rows. ``few_trees`` does the same for the evidence of ``outliers``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import pytest

from operators.cues import fit_task
from operators.cues.robust_weights import fit
from operators.grasp import kernel
from operators.grasp.kernel import infer_class

LEARNT: dict[bytes, bytes] = {}
"""Pickled results by the digest of the pickled arguments; of the last ``MOST`` calls."""
MOST = 300


@contextmanager
def remember_fits() -> Iterator[None]:
    """Set it within the block and restore it behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "infer_class", infer_once)
        patch.setattr(fit_task, "fit", fit_once)
        yield


def infer_once(gradients: Any, *, keep: Callable[[Any], None] | None = None, **options: Any) -> Any:
    """Return the groups of a class; ``keep`` gets the labels of all cells as it would."""

    def infer() -> Any:
        cells: list[Any] = []
        return infer_class(gradients, keep=cells.append, **options), cells

    found, cells = _once("groups", infer, gradients, options)
    if keep is not None:
        keep(*cells)
    return found


def fit_once(*rows: Any, **options: Any) -> Any:
    """Return what ``cues`` learns from rows."""
    return _once("cues", lambda: fit(*rows, **options), rows, options)


def _once(name: str, learn: Callable[[], Any], *arguments: Any) -> Any:
    """Return a result of its own for each call, as the caller may change it."""
    key = sha256(pickle.dumps((name, arguments))).digest()
    if key not in LEARNT:
        LEARNT[key] = pickle.dumps(learn())
        if len(LEARNT) > MOST:
            del LEARNT[next(iter(LEARNT))]
    return pickle.loads(LEARNT[key])
