"""``max_mean_loss``: which strength of weighting a training takes, on which rows, and its records."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import rowsieve
from engine.cli.app import app
from engine.core.errors import InputError
from engine.execution.local_executor import LocalExecutor
from engine.recipe.trainers import parse_params
from engine.training import TrainResult, TrainSpec, fit_arrays, train
from engine.training.data.features import dataset_of_version
from engine.training.data.rows import join
from engine.training.data.strength import MAX_ROWS, read_strength, strength_weights_of
from engine.training.data.version import open_version
from engine.training.fit.job import TrainingJob
from operators.base import OperatorError
from operators.cues import fit, full_factor, load_state
from operators.cues.limits import Limits
from operators.cues.models.curve_points import choose
from operators.cues.models.trade_off import trade_off
from operators.cues.models.weight_path import WeightPath
from operators.cues.row_weights import right_label
from tests.unit.engine.training.publishing import publish

CUES: dict[str, Any] = {"cues": {}, "groups": {"method": "cues"}, "weights": {}}
SPLIT = {"validation": 0.2, "test": 0.2}
OPERATORS: dict[str, Any] = {**CUES, "split": SPLIT}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Labels, a core of 4 columns, and a column that follows the label in 92 % of 5,000 rows; 3 % flips."""
    rng = np.random.default_rng(3)
    n = 5000
    y = (rng.random(n) < 0.45).astype(int)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    X[:, :4] += (2 * y[:, None] - 1) * 0.7
    X[:, 5] = np.where(rng.random(n) < 0.92, y, 1 - y) * 2.0 + 0.1 * rng.normal(size=n)
    label = np.where(rng.random(n) < 0.03, 1 - y, y)
    return pd.DataFrame(X, columns=[f"f{j}" for j in range(6)]).assign(label=label)


def trained(output: Path, **values: Any) -> TrainResult:
    return train(TrainSpec(output, parse_params(values)), LocalExecutor())


def rows_of(output: Path, split: str = "train") -> pd.DataFrame:
    found = rowsieve.open(str(output)).to_pandas()
    return found[found["split"] == split].sort_values("row_id")


def test_the_choice_is_that_of_the_kernel_on_the_train_rows(published: Path) -> None:
    record = trained(published, max_mean_loss=0.02).record["strength"]
    rows = rows_of(published)
    X, y, ids = rows[[f"f{j}" for j in range(6)]].to_numpy(np.float32), rows["label"], rows["row_id"]
    labels = y.to_numpy()
    state = fit(X, labels, ids.to_numpy())  # operators learn from train rows
    factor = full_factor(state, X, labels, ids.to_numpy())
    assert state.least_share is not None
    path = WeightPath.fit(factor, labels, np.bincount(labels), cap=20.0, min_effective=state.least_share)
    Z = ((X - X.mean(axis=0, dtype=float)) / X.std(axis=0, dtype=float)).astype(np.float32)
    groups, right = rows["group"].to_numpy(), right_label(state, X, labels)
    points = trade_off(Z, labels, ids.to_numpy(), path, factor, groups, right_label=right)
    curve = record["trade_off"]["points"]
    for name, part in (("mean_accuracy", "mean"), ("worst_accuracy", "worst"), ("strength", "strength")):
        np.testing.assert_allclose([p[name] for p in curve], [getattr(p, part) for p in points], atol=0.003)
    chosen = points[choose(points, 0.02)].strength
    assert record["strength"] == chosen
    assert 1 < chosen < 2
    assert (record["end"], record["trade_off"]["rows"]) == ("cues", len(rows))


def test_rows_that_report_the_score_and_true_groups_have_no_part(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    real = trade_off

    def spied(Z: Any, y: Any, ids: Any, *others: Any, **more: Any) -> Any:
        seen.append(ids)
        return real(Z, y, ids, *others, **more)

    monkeypatch.setattr("operators.cues.models.trade_off.trade_off", spied)
    spec = TrainSpec(published, parse_params({"max_mean_loss": 0.02}), folder=tmp_path / "model")
    train(spec, LocalExecutor())
    (ids,) = seen
    assert ids.tolist() == rows_of(published)["row_id"].tolist()


def test_a_larger_loss_gives_a_stronger_weighting_and_a_better_worst_group(published: Path) -> None:
    results = [trained(published, max_mean_loss=loss) for loss in (0.0, 0.02, 1.0)]
    strengths = [result.record["strength"]["strength"] for result in results]
    assert strengths == sorted(strengths)
    assert strengths[0] < strengths[-1] == 2
    worst = [r.evaluations["test"].groupings["inferred"].worst_group_accuracy or 0 for r in results]
    mean = [r.evaluations["test"].accuracy or 0 for r in results]
    assert worst[-1] > worst[0] + 0.1
    assert mean[-1] < mean[0]


def test_without_a_rule_nothing_changes(published: Path) -> None:
    result = trained(published)
    assert "strength" not in result.record
    assert not (result.folder / "strength.json").exists()
    job = TrainingJob(result.version, parse_params({}), 0, result.folder)
    found = join(list(dataset_of_version(result.version, job.maker, "erm").train))  # type: ignore[attr-defined]
    assert found.weight.tolist() == rows_of(published)["weight"].astype(float).tolist()


def test_shards_do_not_matter(frame: pd.DataFrame, published: Path, tmp_path: Path) -> None:
    one = trained(published, max_mean_loss=0.02)
    three = trained(publish(frame, tmp_path, OPERATORS, shards=3), max_mean_loss=0.02)
    kept = [(result.folder / "strength.json").read_bytes() for result in (one, three)]
    assert kept[0] == kept[1]


def test_a_bounded_sample_is_drawn_from_many_rows(
    frame: pd.DataFrame, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_ROWS == 50_000
    monkeypatch.setattr("engine.training.data.strength.MAX_ROWS", 1000)
    spec = TrainSpec(published, parse_params({"max_mean_loss": 0.02}), folder=tmp_path / "a")
    one = train(spec, LocalExecutor())
    assert 850 < one.record["strength"]["trade_off"]["rows"] < 1150
    output = publish(frame, tmp_path / "b", OPERATORS, shards=4)
    four = train(TrainSpec(output, spec.params, folder=tmp_path / "c"), LocalExecutor())
    assert (one.folder / "strength.json").read_bytes() == (four.folder / "strength.json").read_bytes()
    assert not (one.folder / ".strength-sample").exists()


def test_hosts_that_share_no_disk_make_the_scratch_folder(published: Path, tmp_path: Path) -> None:
    class WithoutEmptyFolders(LocalExecutor):
        """Hosts exchange files, so that an empty folder exists on one of them only."""

        def map(self, fn: Any, items: Any, **more: Any) -> Any:
            for folder in (tmp_path / "model").glob(".strength-sample"):
                if not any(folder.iterdir()):
                    folder.rmdir()
            return super().map(fn, items, **more)

    spec = TrainSpec(published, parse_params({"max_mean_loss": 0.02}), folder=tmp_path / "model")
    assert train(spec, WithoutEmptyFolders()).record["strength"]["strength"] > 1


def test_rows_of_weight_zero_keep_it_and_the_others_get_the_weights_of_the_path(published: Path) -> None:
    params = parse_params({"max_mean_loss": 1.0})
    result = train(TrainSpec(published, params), LocalExecutor())
    reweigh = strength_weights_of(params, result.folder)
    assert reweigh is not None
    maker = TrainingJob(result.version, params, 0, result.folder).maker
    data = dataset_of_version(result.version, maker, "erm")
    rows = data.train[0]
    rows.weight[:5] = 0.0
    found = reweigh(rows, data.group_names).weight
    assert (found[:5] == 0).all()
    record = read_strength(result.folder)
    kept = record["path"]
    limits = Limits(np.array(kept["mean"]), np.array(kept["trust"]), kept["cap"])
    factor = full_factor(load_state(result.folder / "strength-cues"), rows.X, rows.y, rows.row_id)
    expected = WeightPath(np.array(kept["counts"]), limits).weights(record["strength"], factor, rows.y)
    np.testing.assert_allclose(found[5:], expected[5:])
    assert kept["counts"] == np.bincount(rows.y).tolist()


def test_without_cues_the_path_ends_at_the_balance_of_the_groups(frame: pd.DataFrame, tmp_path: Path) -> None:
    operators = {
        "probe": {},
        "groups": {"method": "jtt", "epochs": 1, "min_rows": 0},
        "weights": {"method": "uniform", "trust": "all"},
        "split": SPLIT,
    }
    output = publish(frame, tmp_path, operators=operators)
    result = trained(output, max_mean_loss=1.0)
    record = read_strength(result.folder)
    assert (record["end"], record["strength"]) == ("groups", 2)
    rows = rows_of(output)
    for (c, g), group in rows.groupby(["label", "group"]):
        in_class = rows[rows["label"] == c]
        expected = len(in_class) / (in_class["group"].nunique() * len(group))
        (cell,) = [value for a, b, value in record["cells"] if (a, b) == (c, g)]
        assert cell == pytest.approx(expected)
    assert record["trade_off"]["grouping"] == "groups"


def test_groups_that_are_the_classes_end_the_path_at_class_balance(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    operators = {"groups": {"method": "none"}, "weights": {"method": "uniform"}, "split": SPLIT}
    result = trained(publish(frame, tmp_path, operators=operators), max_mean_loss=1.0)
    record = result.record["strength"]
    assert (record["end"], record["strength"]) == ("class balance", 1)
    assert record["trade_off"]["grouping"] == "classes"


def test_the_recipe_records_the_choice_in_mlflow_and_in_the_report(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    section = {"params": {"max_mean_loss": 0.02}, "register_as": "cue"}
    output = publish(frame, tmp_path, OPERATORS, train=section, tracking={"enabled": True})
    (record,) = [json.loads(path.read_text()) for path in (output / "runs").glob("*.train.json")]
    folder = output / "models" / record["model"]
    strength = read_strength(folder)["strength"]
    assert record["strength"] == strength
    page = (folder / "report.html").read_text()
    assert f"The strength of weighting is {strength:g}" in page
    assert f"{strength:g} (chosen)" in page
    client = mlflow.MlflowClient(f"sqlite:///{output / 'mlflow.db'}")
    run = client.get_run(record["registered"]["run_id"])
    assert run.data.params["strength"] == str(strength)
    assert run.data.params["max_mean_loss"] == "0.02"
    steps = client.get_metric_history(run.info.run_id, "trade_off.mean_accuracy")
    assert len(steps) == 9
    files = {entry.path for entry in client.list_artifacts(run.info.run_id)}
    assert {"strength.json", "importance.json", "plots"} <= files
    plots = {entry.path for entry in client.list_artifacts(run.info.run_id, "plots")}
    assert {"plots/strength.png", "plots/importance.png"} <= plots
    first, *_ = record["importance"]["columns"]
    loss = run.data.metrics[f"importance.balanced_accuracy.{first['column']}"]
    assert loss == pytest.approx(first["balanced_accuracy"]["mean"])
    assert f"importance.worst_group_accuracy.{first['column']}" in run.data.metrics


def command(output: Path, *settings: str) -> Any:
    return CliRunner().invoke(app, ["retrain", "--dataset", str(output), "--executor", "local", *settings])


@pytest.mark.slow
def test_the_command_says_what_was_chosen(published: Path) -> None:
    done = command(published, "--set", "max_mean_loss=0.02")
    assert done.exit_code == 0, done.output
    assert "The strength of weighting is" in done.stdout
    found = json.loads(command(published, "--set", "max_mean_loss=0.02", "--json").stdout)
    assert found["strength"]["max_mean_loss"] == 0.02


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_mean_loss": 2}, "less than or equal to 1; got 2"),
        ({"max_mean_loss": -0.1}, "greater than or equal to 0; got -0.1"),
        ({"max_mean_los": 0.1}, "Did you mean 'max_mean_loss'"),
        ({"max_mean_loss": "much"}, "valid number"),
        ({"max_mean_loss": float("nan")}, "nan"),
        ({"max_mean_loss": 0.1, "weights": False}, "weights is false"),
        ({"max_mean_loss": 0.1, "trainer": "gdro"}, "it belongs to erm"),
    ],
)
def test_bad_rules_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_params(values)
    section = {"trainer": values.get("trainer", "erm")}
    section["params"] = {key: value for key, value in values.items() if key != "trainer"}
    recipe = {"name": "a", "source": {"path": "a", "label": "b"}, "output": {"path": "c"}, "train": section}
    with pytest.raises(InputError, match=message):
        rowsieve.Recipe.parse(recipe)


def test_arrays_are_no_version() -> None:
    X, y = np.zeros((20, 2)), np.arange(20) % 2
    with pytest.raises(OperatorError, match="chosen on a published version"):
        fit_arrays(X, y, parse_params({"max_mean_loss": 0.1}))


def test_too_few_train_rows_are_an_error(frame: pd.DataFrame, tmp_path: Path) -> None:
    few = pd.concat([frame[frame["label"] == 0][:40], frame[frame["label"] == 1][:1]], ignore_index=True)
    operators = {"groups": {"method": "none"}, "weights": {"method": "uniform"}, "split": {"validation": 0.2}}
    output = publish(few, tmp_path, operators=operators)
    with pytest.raises(InputError, match=r"max_mean_loss: .*less than two classes"):
        trained(output, max_mean_loss=0.1)


def test_a_change_of_cues_trains_anew(published: Path, tmp_path: Path) -> None:
    from engine.training.fit.job import training_fingerprint

    version = open_version(published)
    other: Callable[[], Any] = lambda: {  # noqa: E731
        **version.manifest,
        "operators": [
            entry | ({"fingerprint": "other"} if entry["name"] == "cues" else {})
            for entry in version.manifest["operators"]
        ],
    }
    changed = type(version)(version.folder, other())
    for values, same in (({}, True), ({"max_mean_loss": 0.1}, False)):
        params = parse_params(values)
        both = {training_fingerprint(v, params, 0) for v in (version, changed)}
        assert (len(both) == 1) is same
