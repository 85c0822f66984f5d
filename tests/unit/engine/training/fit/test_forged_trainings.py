"""A model's folder in a shared output: what is forged in it is refused by name when a training goes on."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.core.errors import InputError
from engine.training.fit.checkpoint import Checkpoints, Progress
from engine.training.fit.job import read_record
from operators.base import OperatorError
from operators.communicator import SingleProcess, Slots

RECORD = {"trainer": "erm", "train_rows": 3, "groups": {"0": 2, "-1": 1}, "curve": [{"loss": 0.5}]}
POINT = {"strength": 0.5, "mean_accuracy": 0.9, "worst_accuracy": 0.8}
STRENGTH = {"strength": 0.5, "max_mean_loss": 0.1, "end": "cues", "trade_off": {"rows": 9, "points": [POINT]}}


class Touch:
    """Unpickling it would make a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ([], "training.json"),
        ({}, "trainer"),
        (RECORD | {"groups": [1]}, "groups"),
        (RECORD | {"groups": {"x": 1}}, "groups"),
        (RECORD | {"curve": 5}, "curve"),
        (RECORD | {"train_rows": "many"}, "train_rows"),
        (RECORD | {"strength": 5}, "strength"),
        (RECORD | {"strength": STRENGTH | {"trade_off": {"rows": 1, "points": []}}}, "points"),
    ],
    ids=range(8),
)
def test_a_forged_record_of_a_training(values: object, named: str, tmp_path: Path) -> None:
    (tmp_path / "training.json").write_text(json.dumps(values))
    with pytest.raises(InputError, match=rf"training\.json is damaged or forged.*{named}|{named}"):
        read_record(tmp_path)
    (tmp_path / "training.json").write_text(json.dumps(RECORD | {"strength": STRENGTH}))
    assert read_record(tmp_path)["groups"] == RECORD["groups"]


def checkpoints(folder: Path) -> Checkpoints:
    return Checkpoints(folder / "checkpoints", Slots(SingleProcess(), 1, 1), "mine", folder)


def latest(text: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / "LATEST").write_text(text)


def state(text: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / "00001-00002" / "state.json").write_text(text)


def pickled(folder: Path) -> None:
    (folder / "00001-00002" / "common.safetensors").write_bytes(pickle.dumps(Touch(folder / "touched")))


def pipe(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)  # opening it would wait for ever

    return change


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (latest("../../.."), "LATEST"),
        (latest("/etc"), "LATEST"),
        (latest("0" * 10**6), "larger than"),
        (pipe("LATEST"), "regular file"),
        (state("[" * 100_000), "nested more than"),
        (state("[]"), "_Record"),
        (state(json.dumps({"fingerprint": "mine", "phase": -1, "epoch": 2, "notes": {}})), "phase"),
        (state(json.dumps({"fingerprint": "mine", "phase": 1, "epoch": 2, "notes": 5})), "notes"),
        (pipe("00001-00002/common.safetensors"), "regular file"),
        (pickled, "common.safetensors is damaged or forged"),
    ],
    ids=range(10),
)
def test_a_forged_checkpoint(change: Callable[[Path], Any], named: str, tmp_path: Path) -> None:
    kept = checkpoints(tmp_path)
    kept.save(Progress(1, 2, {"w": torch.ones(2)}, {}, {"best": 3}))
    found = kept.load()
    assert found is not None
    assert (found.phase, found.epoch, found.notes) == (1, 2, {"best": 3})
    change(tmp_path / "checkpoints")
    with pytest.raises(
        OperatorError, match=rf"checkpoints holds no checkpoint.*{named}.*train again"
    ) as caught:
        kept.load()
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "checkpoints" / "touched").exists()
