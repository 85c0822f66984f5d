"""The loop for a GPU, here on the CPU: the steps of the other loop, and no number read in a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine.recipe.trainers import parse_params
from engine.training.data.rows import Dataset, dataset_of_arrays
from engine.training.fit import device_loop, device_rows, epochs
from engine.training.fit.callbacks import StepEnd
from engine.training.fit.kernel import TrainingOutcome, fit, model_spec
from engine.training.fit.loop import DivergedError
from engine.training.fit.sampling import Draw, plan_epoch
from engine.training.objectives import ClassLosses, objective_of
from engine.training.rules import Batch, Chi2Doro, CvarDoro, Erm, GroupDro, Rule
from engine.training.rules.on_device import DeviceBatch, OnHost, device_form
from operators.communicator import SingleProcess, Slots
from operators.models import build
from tests.unit.communicators import train_together

STEPPED: dict[str, Any] = {"optimizer": "sgd", "epochs": 3, "batch_size": 64, "lr": 0.05}
TRAINERS: dict[str, dict[str, Any]] = {
    "erm": {"trainer": "erm"},
    "gdro": {"trainer": "gdro", "adjustment": 0.5, "clip": 0.5},
    "gdro, rows in no group": {"trainer": "gdro", "noise": "erm", "sampling": "shuffle", "model": "mlp"},
    "cvar_doro": {"trainer": "cvar_doro", "eps": 0.05},
    "chi2_dro": {"trainer": "chi2_dro", "eps": 0.05},
    "jtt": {"trainer": "jtt", "first_epochs": 2},
    "boosted_cvar": {"trainer": "boosted_cvar", "rounds": 3, "round_epochs": 1},
    "adamw": {"trainer": "erm", "optimizer": "adamw"},
    "squared": {"trainer": "gdro", "objective": "squared"},
}


def rows(n: int = 500, **changes: Any) -> Dataset:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    y = (X[:, 0] + rng.normal(size=n) > 0).astype(int)
    given: dict[str, Any] = {"groups": rng.integers(-1, 3, n), "weight": rng.uniform(0.2, 2, n)}
    return dataset_of_arrays(X, y, **{**given, "target": X[:, 1] * 7.0, "n_shards": 3, **changes})


def sent_ahead(data: Dataset, values: dict[str, Any], **options: Any) -> TrainingOutcome:
    """Train by the loop for a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epochs, "steps_are_sent_ahead", lambda device: True)
        return fit(data, parse_params(values), **options)


@pytest.mark.parametrize("name", sorted(TRAINERS))
@pytest.mark.parametrize("room", [True, False], ids=["held there", "sent by steps"])
def test_both_loops_take_the_same_steps(name: str, room: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_rows, "has_room", lambda *of: room)
    values = {**STEPPED, **TRAINERS[name]}
    expected, found = fit(rows(), parse_params(values)), sent_ahead(rows(), values)
    assert [note["loss"] for note in found.curve] == pytest.approx([note["loss"] for note in expected.curve])
    assert len(found.states) == len(expected.states)
    for mine, theirs in zip(found.states, expected.states, strict=True):
        for key, value in theirs.items():
            torch.testing.assert_close(mine[key], value, rtol=1e-4, atol=1e-5)


def test_several_workers_get_the_bytes_of_one() -> None:
    values = {**STEPPED, "trainer": "gdro", "slots": 3}
    alone = sent_ahead(rows(), values).states[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epochs, "steps_are_sent_ahead", lambda device: True)
        params = parse_params(values)
        for outcome in train_together(2, lambda member: fit(rows(), params, communicator=member)):
            assert all(torch.equal(value, alone[key]) for key, value in outcome.states[0].items())


class Reads(TorchDispatchMode):
    """Counts numbers that the host reads of a tensor."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            self.count += 1
        return func(*args, **(kwargs or {}))


def reads(values: dict[str, Any], *, ahead: bool) -> int:
    with Reads() as mode:
        (sent_ahead if ahead else lambda data, given: fit(data, parse_params(given)))(rows(), values)
    return mode.count


@pytest.mark.parametrize("name", ["erm", "gdro", "cvar_doro", "chi2_dro", "squared"])
def test_the_host_reads_no_number_in_a_step(name: str) -> None:
    values = {**STEPPED, **TRAINERS[name], "clip": 0.5, "slots": 1, "epochs": 1}
    few, many = {**values, "batch_size": 250}, {**values, "batch_size": 50}
    assert reads(few, ahead=True) == reads(many, ahead=True)
    assert reads(many, ahead=False) > reads(few, ahead=False)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize(
    "rule", [Erm(), GroupDro([9, 9, 9], 0.1, 0.5), CvarDoro(0.3, 0.1), Chi2Doro(0.3, 0.1)]
)
@pytest.mark.parametrize("room", [True, False])
def test_steps_are_taken_on_a_device_that_has_no_numbers(
    rule: Rule, optimizer: str, room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a tensor of torch's device ``meta``, or mixing it with one of the host, is an error."""
    monkeypatch.setattr(device_rows, "has_room", lambda *of: room)
    device, data = torch.device("meta"), rows()
    params = parse_params({"trainer": "gdro", "model": "mlp", "clip": 0.5, "optimizer": optimizer})
    slots = Slots(SingleProcess(device), 3, 2)
    model = build(model_spec(params, data), 0).to(device)
    network = epochs.Network(model, params, ClassLosses(objective_of("cross_entropy")))
    source = device_rows.step_rows(data.train, slots, network.row_losses.answers, device)
    counts = [sum(len(data.train[shard]) for shard in slots.shards(slot)) for slot in range(2)]
    epoch = plan_epoch(Draw(), slots, counts, 64, (0, 0, 0))
    steps: list[int] = []
    with pytest.raises(NotImplementedError, match="no data"):
        device_loop.run_epoch_on_device(
            network, rule, source, slots, epoch, 1.0, lambda step, n, loss: steps.append(step)
        )
    assert steps == [*range(1, epoch.steps + 1)]


class LossReader:
    """A callback that reads the loss of the first steps."""

    def __init__(self, until: int) -> None:
        self.until, self.losses = until, [0.0]

    def on_step(self, event: StepEnd) -> None:
        if event.step <= self.until:
            self.losses.append(event.loss)

    def on_epoch(self, event: Any) -> None:
        pass

    def on_phase_end(self, event: Any) -> None:
        pass


def test_a_callback_reads_losses_only_if_it_asks() -> None:
    values = {**STEPPED, "trainer": "erm", "epochs": 1}
    counts, losses = [], []
    for until in (0, 2, 5):
        reader = LossReader(until)
        with Reads() as mode:
            sent_ahead(rows(), values, callbacks=[reader])
        counts.append(mode.count)
        losses.append(reader.losses)
    assert (counts[1] - counts[0], counts[2] - counts[0]) == (2, 5)
    told = LossReader(5)
    fit(rows(), parse_params(values), callbacks=[told])
    assert losses[2] == pytest.approx(told.losses)


@pytest.mark.parametrize("trainer", ["erm", "gdro", "cvar_doro"])
def test_rows_without_a_loss_are_named_as_on_the_cpu(trainer: str) -> None:
    data = rows()
    data.train[1].X[[3, 5], 2] = np.nan
    values = {**STEPPED, "trainer": trainer, "standardize": False, "epochs": 1, "sampling": "shuffle"}
    with pytest.raises(DivergedError) as expected:
        fit(data, parse_params(values))
    with pytest.raises(DivergedError) as found:
        sent_ahead(data, values)
    assert str(found.value) == str(expected.value)
    assert "row_id:" in str(found.value)


def batch(seed: int, n: int = 40) -> tuple[Batch, DeviceBatch]:
    """A batch with equal losses, rows without weight and rows in no group, twice."""
    rng = np.random.default_rng(seed)
    loss = np.round(rng.exponential(2.0, n), seed % 3)
    weight, group = rng.choice([0.0, 0.5, 1.0, 3.0], n), rng.integers(-1, 4, n)
    if seed == 0:
        loss, weight = np.full(n, 0.7), np.zeros(n)
    host = Batch(loss, weight, group, n)
    return host, DeviceBatch(*(torch.from_numpy(one) for one in (loss, weight, group)), n)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "make",
    [
        Erm,
        lambda: GroupDro([7, 0, 2, 9], 0.3, 1.0),
        lambda: CvarDoro(0.3, 0.07),
        lambda: CvarDoro(1.0, 0.0),
        lambda: Chi2Doro(0.3, 0.07),
        lambda: Chi2Doro(0.01, 0.0),
        lambda: Chi2Doro(1.0, 0.2),
    ],
)
def test_the_form_on_a_device_is_the_rule(make: Any, seed: int) -> None:
    rule: Rule = make()
    form = device_form(rule, torch.device("cpu"))
    assert not isinstance(form, OnHost)
    for step in range(3):
        host, there = batch(seed + step)
        np.testing.assert_allclose(form.weigh(there).numpy(), rule.weigh(host), rtol=1e-6, atol=1e-9)
    assert form.state().keys() == rule.state.keys()
    for key, value in form.state().items():
        np.testing.assert_allclose(value, rule.state[key], rtol=1e-12)


class Heaviest:
    """A rule of somebody else, which knows no device."""

    sees_all = True

    def __init__(self) -> None:
        self.state = {"steps": np.zeros(1)}

    def weigh(self, batch: Batch) -> Any:
        self.state["steps"] += 1
        return (batch.loss == batch.loss.max()).astype(float)


def test_a_rule_without_such_a_form_is_called_on_the_host() -> None:
    rule = Heaviest()
    form = device_form(rule, torch.device("cpu"))
    host, there = batch(3)
    assert form.weigh(there).tolist() == Heaviest().weigh(host).tolist()
    assert form.state()["steps"] == [1]


class Kinds(TorchDispatchMode):
    """Notes the number types that matrices are multiplied in."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default):
            self.found.add(found.dtype)
        return found


@pytest.mark.parametrize("ahead", [False, True])
def test_matrices_are_multiplied_in_bfloat16_if_asked(ahead: bool) -> None:
    values = {**STEPPED, "trainer": "gdro", "model": "mlp", "slots": 1}
    train = sent_ahead if ahead else (lambda data, given: fit(data, parse_params(given)))
    kinds, outcomes = [], []
    for amp in (False, True):
        with Kinds() as mode:
            outcomes.append(train(rows(), {**values, "amp": amp}))
        kinds.append(mode.found)
    # Scores of rows, behind the training, are always float32.
    assert kinds == [{torch.float32}, {torch.float32, torch.bfloat16}]
    assert {value.dtype for value in outcomes[1].states[0].values()} == {torch.float32}
    plain, mixed = (outcome.curve[-1]["loss"] for outcome in outcomes)
    assert mixed != plain
    assert mixed == pytest.approx(plain, rel=0.02)


@pytest.mark.parametrize(("reproducible", "threads"), [("exact", 1), ("statistical", 2)])
def test_a_statistical_training_uses_the_threads_of_its_resources(reproducible: str, threads: int) -> None:
    found = []

    class Watch(LossReader):
        def on_epoch(self, event: Any) -> None:
            found.append(torch.get_num_threads())

    before = torch.get_num_threads()
    params = parse_params({**STEPPED, "reproducible": reproducible, "resources": {"cpus": 2}, "epochs": 1})
    fit(rows(), params, callbacks=[Watch(0)])
    assert (found, torch.get_num_threads()) == ([threads], before)
