"""Parts of a task on several threads."""

import _ctypes
import ctypes
import shutil
import threading
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info

from operators import threads
from operators.outliers.assessment import assess
from operators.outliers.verdict import fit
from operators.threads import available_threads, in_threads, limit_threads


@pytest.mark.parametrize(("value", "threads"), [("1", 1), ("3", 3), ("2,1", 2), ("0", 1)])
def test_the_number_of_threads_is_that_of_openmp(
    monkeypatch: pytest.MonkeyPatch, value: str, threads: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert available_threads() == threads


def test_results_have_the_order_of_the_items_and_every_part_computes_with_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    both = threading.Barrier(3, timeout=30)

    def work(item: int) -> tuple[int, int]:
        both.wait()
        return item, max(found["num_threads"] for found in threadpool_info())

    with limit_threads(1):
        assert in_threads(work, range(3)) == [(0, 1), (1, 1), (2, 1)]


def counts() -> list[int]:
    return [found["num_threads"] for found in threadpool_info()]


def test_a_limit_holds_for_every_library_and_ends_with_the_block() -> None:
    with limit_threads(2):
        outer = counts()
        with limit_threads(1):
            assert counts() == [1] * len(outer)
        assert counts() == outer
    assert max(outer) == 2


def test_libraries_are_searched_for_again_only_when_others_were_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    searches = []
    real = ThreadpoolController
    monkeypatch.setattr(threads, "ThreadpoolController", lambda: searches.append(1) or real())
    threads._controller.cache_clear()
    for _ in range(3):
        with limit_threads(1):
            pass
    assert len(searches) == 1
    shutil.copy(_ctypes.__file__, tmp_path / "another.so")
    ctypes.CDLL(str(tmp_path / "another.so"))
    with limit_threads(1):
        pass
    assert len(searches) == 2


def test_where_loads_are_not_counted_every_limit_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: None) -> object:
        return object()

    searches = []
    real = ThreadpoolController
    monkeypatch.setattr(threads, "ThreadpoolController", lambda: searches.append(1) or real())
    monkeypatch.setattr(ctypes, "CDLL", absent)
    monkeypatch.setattr(real, "limit", lambda self, limits: nullcontext())
    for _ in range(2):
        with limit_threads(1):
            pass
    assert len(searches) == 2


def test_an_error_of_a_part_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda item: 1 // item, [1, 0])


def test_outliers_gives_the_same_bytes_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, ids = rng.standard_normal((1500, 5)).astype(np.float32), np.arange(1500)
    y = (X @ rng.standard_normal((5, 3))).argmax(axis=1)
    y[:40] = (y[:40] + 1) % 3
    found = []
    for number in ("1", "4"):
        monkeypatch.setenv("OMP_NUM_THREADS", number)
        verdicts = assess(fit(X, y, ids), X, y, ids)
        found.append((verdicts.posterior.tobytes(), verdicts.score.tobytes(), verdicts.kind.tobytes()))
    assert found[0] == found[1]
