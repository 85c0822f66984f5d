"""The cluster split on Ray: the bytes of the run in this process, with any workers, and after a kill."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from engine.execution.ray_executor import RayExecutor
from operators.base import SPLIT, Context, Resources
from tests.unit.in_memory import MemoryReader, run_operator, split_table
from tests.unit.operators.splits.test_splits_operator import Split, rows

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_cluster")]

PARAMS: dict[str, Any] = {"method": "cluster", "kernel": "rbf", "landmarks": 30, "n_init": 2, "test": 0.1}


class KillOnce:
    """Runs a function, then kills its worker, once: the files are there, the answer is not."""

    def __init__(self, mark: Path, fn: Callable[[Any], Any]) -> None:
        self.mark, self.fn = mark, fn

    def __call__(self, item: Any) -> Any:
        result = self.fn(item)
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return result


class Killing:
    """A Ray executor whose workers die once in each kind of task."""

    kind: ClassVar[Any] = "ray"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def map(self, fn: Any, items: Sequence[Any], *, resources: Any = None) -> Iterator[Any]:
        name = getattr(fn, "func", fn).__name__
        names = {"write", "gains", "sums"}
        wrapped = KillOnce(self.folder / name, fn) if name in names else fn
        return RayExecutor().map(wrapped, items, resources=Resources(actors=2))


@pytest.mark.slow
def test_killed_workers_change_nothing(tmp_path: Path) -> None:
    kind = Split.variant(PARAMS)
    tables = split_table(rows(150, 0), [40, 90])
    for name in ("alone", "ray", "marks"):
        (tmp_path / name).mkdir()
    alone, figures = run_operator(kind(kind.Params(**PARAMS)), tables, tmp_path / "alone")
    operator, reader = kind(kind.Params(**PARAMS)), MemoryReader(tables)
    context = Context(reader, tmp_path / "ray", {}, 0)
    assert operator.fit(context, Killing(tmp_path / "marks")) == figures
    apply = operator.open(context)
    found = [apply(reader.read(shard, operator.requires)) for shard in range(len(tables))]
    assert pa.concat_tables(found)[SPLIT].to_pylist() == alone[SPLIT].to_pylist()
    assert {mark.name for mark in (tmp_path / "marks").iterdir()} == {"write", "gains", "sums"}
