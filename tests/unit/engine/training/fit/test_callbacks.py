"""Callbacks of a training: what they are told, and that they change nothing."""

from __future__ import annotations

import logging
import re
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.recipe.trainers import parse_params
from engine.training.fit import callbacks as module
from engine.training.fit.callbacks import Callback, EpochEnd, PhaseEnd, StepEnd, installed_callbacks
from engine.training.fit.kernel import fit
from tests.unit.engine.training.fit.test_training import data


class Diary:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.on_step = self.on_epoch = self.on_phase_end = self.events.append

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class Broken:
    """Raises on an epoch."""

    def on_step(self, event: StepEnd) -> None:
        pass

    def on_epoch(self, event: EpochEnd) -> None:
        if event.epoch == 2:
            raise KeyboardInterrupt

    def on_phase_end(self, event: PhaseEnd) -> None:
        raise AssertionError("the phase did not end")


def test_steps_epochs_and_phases_are_told_in_order() -> None:
    diary = Diary()
    params = parse_params({"trainer": "jtt", "first_epochs": 2, "epochs": 1, "batch_size": 128})
    told = fit(data(300), params, seed=1, callbacks=[diary])
    silent = fit(data(300), params, seed=1).states[0]
    assert {k: v.tolist() for k, v in told.states[0].items()} == {k: v.tolist() for k, v in silent.items()}
    epochs, steps = diary.of(EpochEnd), diary.of(StepEnd)
    assert [(event.phase, event.epoch) for event in epochs] == [(1, 1), (1, 2), (2, 1)]
    assert [event.loss for event in epochs] == [note["loss"] for note in told.curve]
    assert [(event.number, event.total) for event in epochs] == [(1, 3), (2, 3), (3, 3)]
    assert diary.of(PhaseEnd) == [PhaseEnd(1, 2), PhaseEnd(2, 2)]
    first = [event for event in steps if (event.phase, event.epoch) == (1, 1)]
    assert [event.step for event in first] == [1, 2]
    n = told.counts.n_rows
    assert sum(event.rows for event in first) == n > 128
    mean = sum(event.rows * event.loss for event in first) / n
    assert mean == pytest.approx(epochs[0].loss)
    kinds = [type(event).__name__ for event in diary.events[:7]]
    assert kinds == ["StepEnd", "StepEnd", "EpochEnd", "StepEnd", "StepEnd", "EpochEnd", "PhaseEnd"]


@pytest.mark.parametrize(
    "values",
    [{"trainer": "erm"}, {"model": "sklearn:LogisticRegression"}],
    ids=["solved by L-BFGS", "estimator"],
)
def test_models_without_steps_tell_one_epoch(values: dict[str, Any]) -> None:
    diary = Diary()
    told = fit(data(300), parse_params(values), callbacks=[diary])
    assert diary.events == [EpochEnd(1, 1, told.curve[0]["loss"], number=1, total=1), PhaseEnd(1, 1)]


def test_scores_on_validation_rows_are_told() -> None:
    diary = Diary()
    params = parse_params({"trainer": "gdro", "epochs": 2, "keep": "best"})
    told = fit(data(300), params, callbacks=[diary])
    found = [(event.worst_group_accuracy, event.accuracy) for event in diary.of(EpochEnd)]
    assert found == [(note["worst_group_accuracy"], note["accuracy"]) for note in told.curve]


def test_an_exception_ends_a_training_that_can_be_continued(tmp_path: Path) -> None:
    params = parse_params({"trainer": "gdro", "epochs": 4, "checkpoint_every": 1})
    with pytest.raises(KeyboardInterrupt):
        fit(data(300), params, folder=tmp_path, content="rows", callbacks=[Broken()])
    diary = Diary()
    resumed = fit(data(300), params, folder=tmp_path, content="rows", callbacks=[diary])
    assert [(event.epoch, event.number, event.total) for event in diary.of(EpochEnd)] == [
        (epoch, epoch, 4) for epoch in (2, 3, 4)
    ]
    assert resumed.curve == fit(data(300), params).curve


def test_other_workers_are_silent() -> None:
    diary = Diary()
    module.Callbacks([diary], rank=1).on_phase_end(PhaseEnd(1, 1))
    assert diary.events == []


def test_callbacks_of_installed_packages(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here = __name__
    points = [
        EntryPoint("good", f"{here}:Diary", module.ENTRY_POINTS),
        EntryPoint("absent", f"{here}:Absent", module.ENTRY_POINTS),
        EntryPoint("other", "builtins:dict", module.ENTRY_POINTS),
    ]
    monkeypatch.setattr(module, "entry_points", lambda group: points if group == module.ENTRY_POINTS else ())
    with caplog.at_level(logging.WARNING, logger="rowsieve"):
        found = installed_callbacks()
    assert [type(one) for one in found] == [Diary]
    assert isinstance(found[0], Callback)
    text = caplog.text
    assert "absent" in text
    assert "AttributeError" in text
    assert "other (builtins:dict) lacks one of the methods" in text


def test_the_example_of_the_page_runs() -> None:
    page = (Path(engine.__file__).parent / "training" / "README.md").read_text("utf-8")
    (example,) = (text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "on_step" in text)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 3)).astype(np.float32), rng.integers(0, 2, 120)
    space: dict[str, Any] = {"X": X, "y": y, "groups": y}
    exec(example, space)
    assert [place[:2] for place in space["losses"].found] == [(1, 1), (1, 2), (1, 3)]
