"""Every example of the page on trainers runs as it stands, and its model does what the weights ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rowsieve
from tests.paper.trainers import examples, publish, scores, trained

pytest.importorskip("torch")
OF_THEIR_OWN = ("", "Lightning", "Ray Train")
TITLES = [title for title in examples() if title not in OF_THEIR_OWN]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("trainers")
    publish(found, seed=0, rows=3000)
    return found


@pytest.mark.parametrize("title", TITLES)
def test_example(title: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(title, folder, monkeypatch)


@pytest.mark.slow
def test_example_of_lightning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pytorch_lightning", reason="needs pytorch-lightning, of rowsieve[dev]")
    check("Lightning", folder, monkeypatch)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.usefixtures("ray_cluster")
def test_example_of_ray_train(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check("Ray Train", folder, monkeypatch)


def check(title: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(examples()[""], names)
    worst, mean = scores(trained(title, names), rowsieve.open(folder / "curated" / "churn"), seed=0)
    assert worst > 0.5  # by the cue alone it is 0, by the same regression without weights .43
    assert mean > 0.7
