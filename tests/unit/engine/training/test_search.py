"""Random search with equal budgets, several seeds, early stopping, and the strength of regularisation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import engine
from engine.cli.app import app
from engine.core.errors import InputError
from engine.execution.local_executor import LocalExecutor
from engine.recipe.trainers import LATER_KEYS, parse_params
from engine.training import search as training_search
from engine.training.data.version import open_version
from engine.training.fit.in_memory import fit_arrays
from engine.training.fit.job import training_fingerprint
from engine.training.fit.kernel import fit
from engine.training.fit.learner import HEAD, Learner, step_size_factor
from engine.training.objectives import ClassLosses, CrossEntropy
from engine.training.retrain import parse_grid
from engine.training.search import Candidate, Range, candidates_of, search_parameters
from engine.training.training_run import TrainSpec
from tests.data import small_recipe
from tests.unit.engine.training.fit.test_training import data


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    engine.run(small_recipe(folder))
    return folder / "out"


def test_random_candidates_are_as_many_as_asked_different_and_repeatable() -> None:
    axes: dict[str, Any] = {"lr": Range(1e-4, 1e-1), "hidden": [[8], [16]], "epochs": Range(2, 50)}
    found = candidates_of(axes, 200, seed=1)
    assert len(found) == 200
    assert found == candidates_of(axes, 200, seed=1)
    assert found != candidates_of(axes, 200, seed=2)
    lr = np.array([cell["lr"] for cell in found])
    assert ((lr >= 1e-4) & (lr <= 1e-1)).all()
    assert 0.23 < (lr < 10**-3).mean() < 0.43  # a third of the decades
    assert all(isinstance(cell["epochs"], int) for cell in found)
    assert len(candidates_of({"lr": [0.1, 0.2]}, 10, seed=0)) == 2
    assert candidates_of({"a": [1, 2], "b": [3]}, None, 0) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]
    with pytest.raises(InputError, match=r"--grid lr: a range has no cells; give --trials"):
        search_parameters(TrainSpec("none", parse_params({})), {"lr": Range(1, 2)}, LocalExecutor())


def test_poor_candidates_are_pruned_after_each_seed(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight cells, four are trained with the second seed and two with the third; one fails."""
    tried: list[tuple[float, int]] = []

    def scored(spec: TrainSpec, *more: Any) -> Candidate:
        lr, seed = spec.params.lr, spec.seed
        tried.append((lr, seed))
        if lr == 1e38:
            return Candidate({}, "", None, None, "it diverged")
        noise = float(np.random.default_rng([int(1e6 * lr), seed]).normal(0, 0.05))
        return Candidate({}, f"{lr}-{seed}", 0.5 + lr + noise, 0.5)

    monkeypatch.setattr(training_search, "try_one", scored)
    spec = TrainSpec(published, parse_params({"trainer": "gdro"}), seed=4)
    rates = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 5e-2, 1e-1, 1e38]
    pruned = search_parameters(spec, {"lr": rates}, LocalExecutor(), seeds=3, prune=True)
    assert [len({lr for lr, seed in tried if seed == spec.seed + more}) for more in range(3)] == [8, 4, 2]
    full = search_parameters(spec, {"lr": rates}, LocalExecutor(), seeds=3)
    by_lr = {one.values["lr"]: one for one in pruned.candidates}
    assert by_lr[1e38].fault
    assert not by_lr[1e38].pruned
    assert sum(one.pruned for one in pruned.candidates) == 5
    for mine, whole in zip(pruned.candidates, full.candidates, strict=True):
        assert mine.by_seed == whole.by_seed[: len(mine.by_seed)]
    finished = [one for one in full.candidates if one.score and not by_lr[one.values["lr"]].pruned]
    best = max(one.score for one in finished if one.score is not None)
    assert pruned.candidates[pruned.best].score == best
    with pytest.raises(InputError, match="give --seeds 2 or more"):
        search_parameters(spec, {"lr": rates}, LocalExecutor(), prune=True)


def test_a_search_without_a_winner_names_a_fault(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The better of two candidates fails with its second seed, after the other was pruned."""

    def tried(spec: TrainSpec, *more: Any) -> Candidate:
        if spec.params.lr == 0.2 and spec.seed == 1:
            return Candidate({}, "", None, None, "it diverged")
        return Candidate({}, "folder", spec.params.lr, 0.5)

    monkeypatch.setattr(training_search, "try_one", tried)
    spec = TrainSpec(published, parse_params({"trainer": "gdro"}))
    with pytest.raises(InputError, match=r"it diverged.* 1 others were pruned.*without --prune"):
        search_parameters(spec, {"lr": [0.1, 0.2]}, LocalExecutor(), seeds=2, prune=True)


def test_tables_of_two_searches_with_a_faulty_cell_each_are_two_files(published: Path) -> None:
    spec = TrainSpec(published, parse_params({"trainer": "gdro", "epochs": 1, "batch_size": 64}))

    def tables() -> set[Path]:
        return set((published / "models").glob("grid-*.json"))

    before = tables()
    for faulty in (1e37, 1e38):
        search_parameters(spec, {"lr": [0.01, faulty]}, LocalExecutor())
    assert len(tables() - before) == 2
    search_parameters(spec, {"lr": [0.01, 1e38]}, LocalExecutor())
    assert len(tables() - before) == 2


def test_grids_and_ranges_are_read() -> None:
    found = parse_grid(["lr=1e-3..0.1", "epochs=2..8", "hidden=[8],[4, 4]"])
    assert found == {"lr": Range(1e-3, 0.1), "epochs": Range(2, 8), "hidden": [[8], [4, 4]]}
    for faulty in ("lr=0..1", "lr=1..0.1", "lr=a..b", "lr=1..2..3", "lr=1...inf", "lr=1..inf", "lr=true..5"):
        with pytest.raises(InputError, match=r"low\.\.high"):
            parse_grid([faulty])


def test_a_draw_is_within_its_range() -> None:
    generator = np.random.default_rng(0)
    for low, high in ((0.12346, 0.12349), (0.12341, 0.12344)):  # 0.1235 is above one, 0.1234 below the other
        assert all(low <= Range(low, high).draw(generator) <= high for _ in range(20))
    assert 2 <= Range(2, 3).draw(generator) <= 3


def test_a_search_scores_the_mean_of_its_seeds(published: Path) -> None:
    params = parse_params({"trainer": "erm", "optimizer": "sgd", "epochs": 2, "batch_size": 32})
    spec = TrainSpec(str(published), params, seed=4)
    found = search_parameters(spec, {"lr": Range(1e-4, 0.3)}, LocalExecutor(), trials=3)
    assert len(found.candidates) == 3
    for one in found.candidates:
        assert len(one.by_seed) == 3
        assert one.score == pytest.approx(np.mean(one.by_seed))
    assert found.spec.seed == 4
    scores = [one.score or 0 for one in found.candidates]
    assert scores[found.best] == max(scores)
    single = search_parameters(spec, {"lr": [0.1, 0.2]}, LocalExecutor())
    assert [len(one.by_seed) for one in single.candidates] == [1, 1]
    (table,) = [
        kept
        for path in (published / "models").glob("grid-*.json")
        if len((kept := json.loads(path.read_text("utf-8")))["candidates"]) == 3
    ]
    assert table["candidates"][0]["by_seed"]


def test_the_command_searches_and_says_what_validation_scores_are_worth(published: Path) -> None:
    base = ["retrain", "--dataset", str(published), "--executor", "local", "--set", "optimizer=sgd"]
    done = CliRunner().invoke(
        app, [*base, "--set", "epochs=1", "--grid", "lr=0.01..0.1", "--trials", "2", "--seeds", "1"]
    )
    assert done.exit_code == 0, done.output
    shown = " ".join(done.output.split())
    assert "best of 2 cells" in shown
    assert "split.test" in shown
    refused = CliRunner().invoke(app, [*base, "--trials", "2"])
    assert refused.exit_code != 0
    assert "--grid" in refused.output


def test_patience_ends_a_phase_and_keeps_the_best_epoch() -> None:
    values = {"trainer": "erm", "model": "mlp", "hidden": [6], "keep": "best", "batch_size": 32, "lr": 0.1}
    whole = fit(data(), parse_params({**values, "epochs": 30}), seed=1)
    stopped = fit(data(), parse_params({**values, "epochs": 30, "patience": 3}), seed=1)
    scores = [(note["worst_group_accuracy"], note["accuracy"]) for note in whole.curve]
    best, expected = 0, len(scores)
    for epoch in range(1, len(scores)):
        if scores[epoch] > scores[best]:
            best = epoch
        elif epoch - best >= 3:
            expected = epoch + 1
            break
    assert expected < 30
    assert len(stopped.curve) == expected
    assert stopped.curve == whole.curve[:expected]
    assert stopped.best_epoch == best + 1
    with pytest.raises(InputError, match="keep to best"):
        parse_params({"patience": 3})


def test_an_early_stop_survives_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"trainer": "erm", "model": "mlp", "keep": "best", "patience": 3, "checkpoint_every": 1}
    params = parse_params({**values, "hidden": [6], "batch_size": 32, "lr": 0.1, "epochs": 30})
    whole = fit(data(), params, seed=1)
    from engine.training.fit import epochs

    true_epoch, calls = epochs.run_epoch, [0]

    def failing(*arguments: Any) -> float:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return true_epoch(*arguments)

    monkeypatch.setattr(epochs, "run_epoch", failing)
    with pytest.raises(KeyboardInterrupt):
        fit(data(), params, seed=1, folder=tmp_path, content="rows")
    monkeypatch.undo()
    assert fit(data(), params, seed=1, folder=tmp_path, content="rows").curve == whole.curve


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear"])
def test_step_sizes_follow_the_schedule(schedule: str) -> None:
    """Against torch's own schedulers, by epochs."""
    params = parse_params({"schedule": schedule, "warmup": 0.2, "optimizer": "sgd"})
    ours = [step_size_factor(params, epoch, 20) for epoch in range(20)]
    assert ours[:4] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    weight = nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([weight], lr=1.0)
    rules: dict[str, Any] = {
        "constant": torch.optim.lr_scheduler.ConstantLR(optimiser, factor=1.0),
        "cosine": torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 16),
        "linear": torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, 16),
    }
    rule, theirs = rules[schedule], []
    optimiser.param_groups[0]["lr"] = 1.0
    for _ in range(16):
        theirs.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        rule.step()
    assert ours[4:] == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_step_is_torch_s(optimizer: str, clip: float | None) -> None:
    torch.manual_seed(0)
    model, twin = nn.Linear(3, 2), nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    values: dict[str, Any] = {"model": "mlp", "optimizer": optimizer, "lr": 0.1, "weight_decay": 0.3}
    learner = Learner(model, parse_params({**values, "clip": clip}), ClassLosses(CrossEntropy()))
    kinds: dict[str, Any] = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    more = {"momentum": 0.9} if optimizer == "sgd" else {}
    theirs = kinds[optimizer](
        [{"params": [twin.weight], "weight_decay": 0.3}, {"params": [twin.bias], "weight_decay": 0.0}],
        lr=0.1,
        **more,
    )
    for _ in range(4):
        gradients = [torch.randn(2, 3) * 2, torch.randn(2) * 2]
        learner.step(torch.cat([torch.zeros(HEAD), *(g.flatten() for g in gradients)]), 1)
        for parameter, gradient in zip(twin.parameters(), gradients, strict=True):
            parameter.grad = gradient.clone()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(twin.parameters(), clip)
        theirs.step()
    for ours, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, other, atol=1e-5, rtol=1e-4)


def test_a_schedule_or_clipping_takes_steps() -> None:
    assert parse_params({"trainer": "erm"}).uses_lbfgs
    for values in ({"schedule": "cosine"}, {"warmup": 0.1}, {"clip": 1.0}):
        assert not parse_params({"trainer": "erm", **values}).uses_lbfgs
        with pytest.raises(InputError, match="without schedule"):
            parse_params({"trainer": "erm", "optimizer": "lbfgs", **values})


def test_models_that_were_trained_before_these_keys_are_found_again(published: Path) -> None:
    """The fingerprint of a training that sets none of them is what it was without them.

    Where features are standardised, a version with vectors, such as this one, is trained anew.
    """
    base = {"trainer": "gdro", "lr": 0.05, "standardize": False}
    version, params = open_version(published), parse_params(base)
    values = params.model_dump(mode="json", exclude={*params.execution_only, *params.mixture_only})
    from engine.core.digests import digest

    before = {key: value for key, value in values.items() if key not in LATER_KEYS} | {"epochs": 50}
    assert training_fingerprint(version, params, 3) == digest([version.manifest["content"], before, 3])
    for changed in ({"clip": 1}, {"standardize": True}):
        other = training_fingerprint(version, parse_params({**base, **changed}), 3)
        assert other != digest([version.manifest["content"], before, 3])
    scaled = {**before, "standardize": True}
    found = training_fingerprint(version, parse_params({**base, "standardize": True}), 3)
    assert found != digest([version.manifest["content"], scaled, 3])


def test_schedules_train(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    X = (y[:, None] * 2 - 1 + rng.normal(0, 0.8, (300, 2))).astype(np.float32)
    values = {"model": "mlp", "hidden": [6], "epochs": 8, "lr": 0.02, "optimizer": "adamw"}
    params = parse_params({**values, "schedule": "cosine", "warmup": 0.2, "clip": 1.0})
    assert (fit_arrays(X, y, params).predict(X) == y).mean() > 0.9


class Tasks(LocalExecutor):
    """An executor that keeps the jobs of every map."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[Any] = []

    def map(self, fn: Any, items: Any, *, resources: Any = None) -> Any:
        self.jobs += [items]
        return super().map(fn, items, resources=resources)


def test_cells_that_share_a_training_are_one_task(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks with one folder ended the search: the second found the first one's lease."""
    tried: list[float] = []

    def scored(spec: TrainSpec, *more: Any) -> Candidate:
        tried.append(spec.params.alpha)  # type: ignore[attr-defined]
        return Candidate({}, f"{spec.params.lr}", spec.params.alpha, 0.5)  # type: ignore[attr-defined]

    monkeypatch.setattr(training_search, "try_one", scored)
    spec = TrainSpec(published, parse_params({"trainer": "boosted_cvar"}))
    executor = Tasks()
    found = search_parameters(spec, {"alpha": [0.1, 0.3, 0.3], "lr": [0.01, 0.1]}, executor)
    (jobs,) = executor.jobs
    assert [[one.params.lr for one in specs] for specs, _ in jobs] == [[0.01, 0.01], [0.1, 0.1]]
    assert [(c.values["alpha"], c.values["lr"]) for c in found.candidates] == [
        *((0.1, 0.01), (0.1, 0.1), (0.3, 0.01), (0.3, 0.1))
    ]
    assert [c.score for c in found.candidates] == [0.1, 0.1, 0.3, 0.3]
    assert [c.folder for c in found.candidates] == ["0.01", "0.1", "0.01", "0.1"]
    equal = training_search._try_in_process(([spec, spec], "worst_inferred_group"))
    assert equal[0] == equal[1]
    assert len(tried) == 5
