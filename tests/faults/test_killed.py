"""The driver is killed at any moment: the same command goes on, redoes nothing, ends with the same bytes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.faults.killing import complete, count_events, methods_in, published, recipe_in, run_and_kill

FEW, SOME, MANY = 2, 8, 24


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes], int]:
    """The folder of the data, what an unbroken run publishes, and how many files it makes on its way."""
    folder = tmp_path_factory.mktemp("unbroken")
    n_events = count_events(folder, recipe_in(folder))
    return folder, published(folder / "out"), n_events


def check_moments(
    unbroken: tuple[Path, dict[str, bytes], int],
    n_moments: int,
    seed: int,
    make: Callable[[Path, str], dict[str, Any]] = recipe_in,
) -> None:
    """Kill one run each at random moments, then let it go on."""
    folder, reference, n_events = unbroken
    rng = np.random.default_rng(seed)
    kept = []
    for index, event in enumerate(rng.integers(1, n_events, n_moments).tolist()):
        recipe = make(folder, f"killed{seed}-{index}")
        run_and_kill(folder, recipe, event, delay=rng.uniform(0, 0.01))
        kept.append(complete(folder, recipe, reference))
    assert max(kept) > min(kept)


@pytest.mark.slow
def test_killed_at_some_moments(unbroken: tuple[Path, dict[str, bytes], int]) -> None:
    check_moments(unbroken, FEW, seed=0)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_killed_at_many_moments(unbroken: tuple[Path, dict[str, bytes], int]) -> None:
    check_moments(unbroken, MANY, seed=1)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_killed_at_some_moments_of_every_method(tmp_path: Path) -> None:
    n_events = count_events(tmp_path, methods_in(tmp_path))
    check_moments((tmp_path, published(tmp_path / "out"), n_events), SOME, seed=2, make=methods_in)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_killed_again_and_again(unbroken: tuple[Path, dict[str, bytes], int]) -> None:
    """Every run is killed, each a few files later: a fit that is killed starts over, so it needs its time."""
    folder, reference, _ = unbroken
    recipe = recipe_in(folder, "again")
    killed = 0
    while run_and_kill(folder, recipe, events=12 + 4 * killed):
        killed += 1
    assert killed >= 3
    complete(folder, recipe, reference)


@pytest.mark.faults
def test_a_power_cut_that_lost_a_part_costs_that_part_alone(
    unbroken: tuple[Path, dict[str, bytes], int],
) -> None:
    """A commit record without its part, or with half of it, counts for nothing."""
    folder, reference, _ = unbroken
    recipe = recipe_in(folder, "cut")
    run_and_kill(folder, recipe, events=10**6)
    parts = sorted((folder / "cut").glob("store/*/part-00001.parquet"))
    parts[0].write_bytes(parts[0].read_bytes()[:-7])
    parts[1].unlink()
    parts[2].with_suffix(".json").write_text("{")
    (folder / "cut" / "CURRENT").unlink()
    for manifest in (folder / "cut").glob("versions/*/manifest.json"):
        manifest.unlink()
    hurt = {str(path.with_suffix(suffix)) for path in parts[:3] for suffix in (".json", ".parquet")}
    before = {path: Path(path).stat().st_ino for path in map(str, parts) if path not in hurt}
    run_and_kill(folder, recipe, events=10**6)
    assert published(folder / "cut") == reference
    assert {path: Path(path).stat().st_ino for path in before} == before
