"""An executor that reports the progress of a fit by counting the pieces of work that it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar

from operators.base import Executor, Resources

T = TypeVar("T")
R = TypeVar("R")
Watcher = Callable[[int, int, int], None]
"""Called with the number of the pass over the data (from 1), its finished pieces, and all its pieces."""


class ProgressExecutor:
    """Implements ``operators.base.Executor``. Every call of :meth:`map` is one pass over the data."""

    def __init__(self, executor: Executor, watcher: Watcher) -> None:
        self.kind: Literal["local", "ray"] = executor.kind
        self._executor, self._watcher = executor, watcher
        self._passes = 0

    def map(
        self, fn: Callable[[T], R], items: Sequence[T], *, resources: Resources | None = None
    ) -> Iterator[R]:
        """Yield the results of the wrapped executor, and report each of them."""
        self._passes += 1
        number, total = self._passes, len(items)
        self._watcher(number, 0, total)
        found = self._executor.map(fn, items, resources=resources or Resources())
        for done, result in enumerate(found, start=1):
            self._watcher(number, done, total)
            yield result
