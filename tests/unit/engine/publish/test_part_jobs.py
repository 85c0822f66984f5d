"""The parts of a version are written by tasks that are as small for thousands of shards as for a few."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.execution.local_executor import LocalExecutor
from engine.plan.planner import make_plan
from engine.publish import publisher
from engine.publish.publisher import publish
from tests.data import small_recipe


class Sizes(LocalExecutor):
    """Keeps the size of each task, and ends before the first runs."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def map(self, fn: Callable[[Any], Any], items: Sequence[Any], **_: Any) -> Iterator[Any]:
        self.sizes = [len(pickle.dumps(item)) for item in items]
        raise InterruptedError


class NoLease:
    """A lease whose parts nobody writes."""

    def parts_folder(self, final: Path) -> Path:
        return final


def test_a_task_does_not_hold_the_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "_made_from", lambda *_: "0" * 32)
    sizes = []
    for n_shards in (2, 40):
        folder, executor = tmp_path / str(n_shards), Sizes()
        plan = make_plan(small_recipe(folder, shards=n_shards))
        with pytest.raises(InterruptedError):
            next(publish(plan, executor, NoLease(), {}))  # type: ignore[arg-type]
        assert len(executor.sizes) == n_shards
        sizes.append(max(executor.sizes))
    assert sizes[0] == sizes[1] < 500
