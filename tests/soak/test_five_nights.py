"""Five of the nights of `make soak`, with a fault in each from the second on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.growth import check, rows_per_run, summary, time_fit
from tests.soak.measures import Figures
from tests.soak.nights import Soak
from tests.soak.world import CALM_NIGHTS, FAULTS, Night, plan

FAULTS_OF_FIVE = ("", "killed", "MLflow away", "changed file", "damaged file")


@pytest.fixture
def soak(tmp_path: Path) -> Iterator[Soak]:
    found = Soak(tmp_path, compare_every=3, export_every=2, remove_every=5, retrain_every=2)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_five_nights(soak: Soak) -> None:
    for number, fault in enumerate(FAULTS_OF_FIVE, 1):
        soak.night(Night(number, fault))
    check(soak.figures)
    assert [figure.outcome for figure in soak.figures] == ["full", *["predict"] * 4]
    assert sum(bool(figure.compared) for figure in soak.figures) == 2
    assert "5 nights in 1.0 min" in summary(soak.figures, 60.0)


def test_every_fault_has_its_nights() -> None:
    nights = plan(50, 0)
    assert all(not night.fault for night in nights[:CALM_NIGHTS])
    assert {night.fault for night in nights} == {"", *FAULTS}
    assert min(sum(night.fault == fault for night in nights) for fault in FAULTS) >= 3
    assert plan(50, 0) == nights
    assert plan(50, 1) != nights


def figures(night: int, **changes: object) -> Figures:
    """Return the figures of one of thirty nights on which nothing grows but the rows."""
    rows = {"runs": night, "metrics": 99 * night, "params": 75 * night, "tags": 5 * night, "inputs": night}
    files = {".lease": 1, "reports": 15, "runs": 11, "runs/increments": 4, "store": 100 * night}
    cpu = 1 + 0.002 * 100 * (night % 3) + 0.001 * 100 * night
    values = {"seconds": 9.0, "cpu_seconds": cpu, "handles": 20, "threads": 1}
    values |= {"peak_mib": 700.0, "mib": 690.0, "files": files, "versions": 5, "stored": 45, "mlflow": rows}
    values |= {"new_rows": 100 * (night % 3), "rows": 100 * night, "shards": night, "state_files": 3}
    return Figures(**({"night": night, "fault": "", "outcome": "predict"} | values | changes))  # type: ignore[arg-type]


def test_the_time_is_fitted_to_new_rows_and_all_rows() -> None:
    assert time_fit([figures(night) for night in range(1, 31)]) == pytest.approx((1.0, 2.0, 1.0))


GROWING = {
    "handles": lambda night: {"handles": 20 + night},
    "threads": lambda night: {"threads": 1 + night},
    "memory": lambda night: {"mib": 600.0 + 3 * night},
    "states": lambda night: {"state_files": 3 + night},
    "temporary": lambda night: {"temporary": int(night == 20)},
    "decisions": lambda night: {"files": {".lease": 1, "reports": 15, "runs": 11, "runs/increments": night}},
    "metrics": lambda night: {
        "mlflow": {"runs": night, "metrics": 99 * night**2, "params": 1, "tags": 1, "inputs": 1}
    },
}


@pytest.mark.parametrize("kind", ["nothing", *GROWING])
def test_what_grows_is_found(kind: str) -> None:
    found = [figures(night, **GROWING[kind](night) if kind in GROWING else {}) for night in range(1, 31)]
    if kind == "nothing":
        check(found)
        return
    with pytest.raises(AssertionError):
        check(found)


def test_rows_of_mlflow_are_counted_for_each_run() -> None:
    nights = [figures(1), figures(3)]
    assert rows_per_run(nights, "metrics") == [99.0]
    assert rows_per_run([figures(1)], "metrics") == [0.0]
