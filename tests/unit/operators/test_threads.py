"""Parts of a task on several threads."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from operators.outliers.assessment import assess
from operators.outliers.verdict import fit
from operators.threads import available_threads, in_threads


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

    with threadpool_limits(1):
        assert in_threads(work, range(3)) == [(0, 1), (1, 1), (2, 1)]


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
    for threads in ("1", "4"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        verdicts = assess(fit(X, y, ids), X, y, ids)
        found.append((verdicts.posterior.tobytes(), verdicts.score.tobytes(), verdicts.kind.tobytes()))
    assert found[0] == found[1]
