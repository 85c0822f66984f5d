"""Workers of one training on hosts that share no disk: they exchange files through an object store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from connectors.storage import ObjectPath, place_of
from engine.storage.object_run_store import private_copy
from engine.training.fit.checkpoint import Checkpoints, Progress
from engine.training.fit.kernel import TrainingOutcome, fit
from operators.communicator import Communicator, SingleProcess, Slots
from tests.s3 import S3Server
from tests.unit.communicators import train_together
from tests.unit.engine.training.fit.test_training import HERE, Fails, data, params

BOOSTED = {"trainer": "boosted_cvar", "rounds": 4, "round_epochs": 2, "boosting": "lp"}


@pytest.fixture
def place(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectPath:
    monkeypatch.setattr("engine.storage.object_run_store.local_cache", lambda: tmp_path / "cache")
    return cast(ObjectPath, place_of(s3.uri(s3.bucket(), "model")))


def on_copy(place: ObjectPath, options: Any) -> Callable[[Communicator], TrainingOutcome]:
    """The training as a worker with a disk of its own carries it out."""

    def work(communicator: Communicator) -> TrainingOutcome:
        with private_copy(place) as folder:
            return fit(data(), options, communicator=communicator, folder=folder, remote=place)

    return work


@pytest.mark.parametrize("values", [BOOSTED, {"trainer": "gdro", "epochs": 8}], ids=["boosted", "gdro"])
def test_other_workers_continue_with_the_same_bytes(
    values: dict[str, Any], place: ObjectPath, tmp_path: Path
) -> None:
    options = params(**values, model=f"{HERE}:Fails", checkpoint_every=1)
    Fails.total, Fails.at = 0, -1
    fit(data(), options, folder=tmp_path / "one")
    whole = Fails.total
    Fails.total, Fails.at = 0, whole * 7 // 10
    with pytest.raises(KeyboardInterrupt):
        on_copy(place, options)(SingleProcess())
    assert (place / "checkpoints" / "LATEST").exists()
    done, Fails.at = Fails.total, -1
    train_together(2, on_copy(place, options))
    assert Fails.total - done < 2 * whole * 6 // 10  # two workers count their shares each
    models = {path.name: path.read_bytes() for path in (tmp_path / "one" / "models").iterdir()}
    assert {path.name: path.read_bytes() for path in (place / "models").below()} == models
    assert not (place / "checkpoints").below()
    assert not list((tmp_path / "cache").iterdir())


def test_a_worker_that_was_believed_lost_replaces_no_newer_checkpoint(place: ObjectPath) -> None:
    def checkpoints(folder: Path) -> Checkpoints:
        slots = Slots(SingleProcess(), 1, 1)
        return Checkpoints(folder / "checkpoints", slots, "mine", folder, place / "checkpoints")

    def state(epoch: int) -> Progress:
        return Progress(0, epoch, {"w": torch.full((2,), float(epoch))})

    with private_copy(place) as first:
        old = checkpoints(first)
        assert old.load() is None
        old.save(state(1))
        with private_copy(place) as second:
            new = checkpoints(second)
            found = new.load()
            assert found is not None
            assert found.epoch == 1
            for epoch in (2, 3):
                new.save(state(epoch))
        with pytest.raises(FileExistsError):
            old.save(state(2))
    with private_copy(place) as third:
        last = checkpoints(third)
        found = last.load()
        assert found is not None
        assert found.epoch == 3
        new.save(state(4))
        with pytest.raises(OSError, match="another worker continues"):
            last.load()
    with private_copy(place) as fourth:
        checkpoints(fourth).clear()
    assert not place.below()
