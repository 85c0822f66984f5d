"""FAISS itself: imported only where an index is asked for, with its threads set by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def load_faiss() -> Any:
    """Return the module ``faiss``.

    Raises
    ------
    ImportError
        It is not installed. The text names the extra that brings it.
    """
    try:
        import faiss
    except ImportError as error:
        raise ImportError(
            f"operators.neighbours needs FAISS, which does not import here ({error}). Run `pip install "
            "'rowsieve[cpu]'`, or `pip install 'rowsieve[gpu]'` on a machine with an NVIDIA GPU; never both, "
            "as they unpack into the same folder."
        ) from error
    return faiss


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let FAISS use ``count`` threads inside the block.

    OpenMP's own default is read once per process, and a count set in one Ray task leaks into the
    next one of the same process: so it is always set, and put back.
    """
    faiss = load_faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(max(1, count))
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
