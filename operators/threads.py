"""Independent parts of one task on several threads of its process, for kernels of NumPy and scikit-learn.

NumPy and scikit-learn let other threads run while they compute. Each part is computed with one thread, so
that the result is the same for any number of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

T = TypeVar("T")
R = TypeVar("R")


def available_threads() -> int:
    """Return ``OMP_NUM_THREADS``, which Ray sets to the CPUs of a task; without it the cores there are."""
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if limit.isdecimal():
        return max(1, int(limit))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return ``work(item)`` for every item, in order, computed on at most ``available_threads`` threads.

    Call it within ``threadpool_limits(1)``: that holds for BLAS in the whole process, while OpenMP counts
    threads for each thread, where this function sets the same limit.
    """
    threads = min(available_threads(), len(items))
    if threads <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads, initializer=partial(threadpool_limits, 1)) as pool:
        return list(pool.map(work, items))
