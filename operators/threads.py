"""Independent parts of one task on several threads of its process, for kernels of NumPy and scikit-learn.

NumPy and scikit-learn let other threads run while they compute. Each part is computed with one thread, so
that the result is the same for any number of them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import lru_cache, partial
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

T = TypeVar("T")
R = TypeVar("R")


class _Library(ctypes.Structure):
    """``dl_phdr_info`` of link.h: what the C library says about one shared library that is loaded."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("n_headers", ctypes.c_uint16),
        ("loaded", ctypes.c_ulonglong),
        ("unloaded", ctypes.c_ulonglong),
    )


_VISIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Library), ctypes.c_size_t, ctypes.c_void_p)


def available_threads() -> int:
    """Return ``OMP_NUM_THREADS``, which Ray sets to the CPUs of a task; without it the cores there are."""
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if limit.isdecimal():
        return max(1, int(limit))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_threads(limit: int) -> AbstractContextManager[Any]:
    """Limit BLAS and OpenMP to so many threads: ``threadpoolctl.threadpool_limits``, without its search.

    The search for their libraries takes 3 to 5 ms, and is repeated only when libraries were loaded since.
    """
    limited: AbstractContextManager[Any] = _controller(_loads()).limit(limits=limit)
    return limited


@lru_cache(maxsize=1)
def _controller(loads: object) -> Any:
    """Return the libraries that are loaded; ``loads`` tells one state of the process from another."""
    return ThreadpoolController()


def _loads() -> object:
    """Return how many libraries were loaded and unloaded so far; something new where nothing counts them."""
    found: list[tuple[int, int]] = []

    def visit(library: Any, size: int, data: Any) -> int:
        if size >= ctypes.sizeof(_Library):
            found.append((library.contents.loaded, library.contents.unloaded))
        return 1  # the counts are those of the process: the first library has them

    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).dl_iterate_phdr(_VISIT(visit), None)
    return found[0] if found else object()


def in_threads(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return ``work(item)`` for every item, in order, computed on at most ``available_threads`` threads.

    Call it within ``limit_threads(1)``: that holds for BLAS in the whole process, while OpenMP counts
    threads for each thread, where this function sets the same limit.
    """
    threads = min(available_threads(), len(items))
    if threads <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads, initializer=partial(limit_threads, 1)) as pool:
        return list(pool.map(work, items))
