"""Training on published versions: the rows, their groups and features, and what is left in the folder."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest

import engine
from engine.core.errors import InputError, LockedError
from engine.execution.local_executor import LocalExecutor
from engine.storage.lease import hold_lease
from engine.training import Ensemble, TrainResult, TrainSpec, parse_params, train, training_run
from engine.training.data.features import FeatureMaker, dataset_of_version
from engine.training.data.version import Version, VersionReader, open_version
from engine.training.search import search_parameters
from operators.metrics.group_scores import MIN_ROWS
from tests.data import recipe_for, spurious_table, write_shards
from tests.unit.engine.training.publishing import publish as publish_frame
from tests.unit.operators.embed.test_embed_run import text_recipe

SMALL = {"trainer": "gdro", "epochs": 4, "batch_size": 32, "checkpoint_every": 1}
SPLIT = {"split": {"validation": 0.3, "test": 0.2}}


def publish(folder: Path, **sections: Any) -> Path:
    """Publish a version with a few faulty rows, which are set aside."""
    table = spurious_table()
    a = table.column("a").to_numpy().copy()
    a[[3, 100]] = np.inf
    write_shards(folder / "data", table.set_column(0, "a", pa.array(a)))
    source = {"on_error": "quarantine", "max_error_rate": 0.1}
    recipe = recipe_for(folder / "data", folder / "out", source=source, operators=SPLIT, **sections)
    engine.run(engine.Recipe.parse(recipe))
    return folder / "out"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("published"))


def run(
    dataset: Path | str, folder: Path | None = None, truth: str | None = None, **values: Any
) -> TrainResult:
    spec = TrainSpec(dataset, parse_params({**SMALL, **values}), seed=1, folder=folder, truth=truth)
    return train(spec, LocalExecutor())


@pytest.mark.parametrize(
    ("name", "words"),
    [("vector", r"'vector' of .* has the type .*list<.*name no groups"), ("trut", "Did you mean 'truth'")],
)
def test_a_column_that_names_no_groups_is_refused_before_the_training(
    published: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    monkeypatch.setattr(training_run, "_run", pytest.fail)
    with pytest.raises(InputError, match=f"truth: .*{words}"):
        run(published, truth=name)


def table_of(output: Path) -> pa.Table:
    return pyarrow.dataset.dataset(open_version(output).folder / "data").to_table()


def test_rows_are_the_published_ones(published: Path, tmp_path: Path) -> None:
    version = open_version(published)
    maker = FeatureMaker(version.reader(), tmp_path)
    maker.fit(LocalExecutor())
    data = dataset_of_version(version, maker, "own_group")
    frame = table_of(published).to_pandas()
    assert (data.n_features, data.n_classes, maker.classes) == (4, 2, ["no", "yes"])
    seen = 0
    for name, shards in data.splits.items():
        expected = frame[frame.split == name].set_index("row_id")
        for shard in range(len(shards)):
            rows = shards[shard]
            seen += len(rows)
            own = expected.loc[rows.row_id]
            np.testing.assert_array_equal(rows.X[:, :2], own[["a", "b"]].to_numpy(np.float32))
            np.testing.assert_array_equal(rows.X[:, 2:], np.stack(own["vector"]))
            assert np.array_equal(rows.y, own["label"] == "yes")
            assert np.array_equal(rows.weight, own["weight"])
            named = np.array(data.group_names)[rows.group]
            assert np.array_equal(named, np.where(own["group"] >= 0, own["group"], -1 - rows.y))
    assert seen == len(frame) - 2


def test_the_width_of_the_features_is_known_without_reading_rows(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task of a training has read the first shard for it, whatever its own one was."""
    version = open_version(published)
    maker = FeatureMaker(version.reader(), tmp_path)
    maker.fit(LocalExecutor())
    monkeypatch.setattr(FeatureMaker, "read", pytest.fail)
    data = dataset_of_version(version, maker, "own_group")
    assert (maker.n_features, data.n_features, data.widths) == (4, 4, (1, 1, 2))


def test_wrong_labels_are_read_from_the_state_of_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VersionReader, "stored_state", lambda *_: tmp_path)
    version = Version(tmp_path, {"operators": [{"name": "groups"}]})
    assert version.wrong_labels() == {}
    (tmp_path / "groups.json").write_text('{"classes": [], "wrong_labels": {"1": 0.75}}')
    assert version.wrong_labels() == {"1": 0.75}
    assert Version(tmp_path, {"operators": []}).wrong_labels() == {}


def test_a_training_that_is_found_again_tells_of_the_same_wrong_labels(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training of an earlier release has recorded none: its worst group was one of wrong labels."""
    run(published, tmp_path / "model")
    monkeypatch.setattr(Version, "wrong_labels", lambda self: {"0": 0.9})
    again, new = run(published, tmp_path / "model"), run(published, tmp_path / "new")
    assert (again.reused, new.reused) == (True, False)
    tables = [one.evaluations["validation"].groupings["inferred"] for one in (again, new)]
    assert [table.wrong_labels for table in tables] == [{"0": 0.9}] * 2
    assert tables[0].worst_group == tables[1].worst_group
    monkeypatch.setattr(Version, "wrong_labels", lambda self: {})
    assert (
        run(published, tmp_path / "new").evaluations["validation"].groupings
        == new.evaluations["validation"].groupings
    )


@pytest.mark.slow
def test_a_group_in_which_most_labels_are_wrong_is_not_the_worst(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, 6000)
    frame = pd.DataFrame(rng.normal(size=(6000, 4)) + (2 * truth[:, None] - 1) * 0.7, columns=[*"abcd"])
    frame["cue"] = np.where(rng.random(6000) < 0.98, truth, 1 - truth)
    frame["label"] = np.where(rng.random(6000) < 0.06, 1 - truth, truth).astype(str)
    operators = {
        "cues": {"spurious": ["cue"]},
        "groups": {"method": "cues"},
        "weights": {},
        "split": {"validation": 0.5},
    }
    output = publish_frame(frame, tmp_path, operators)
    assert {*open_version(output).wrong_labels()} == {"1", "3"}
    result = run(output)
    assert {*result.record["wrong_labels"]} == {"1", "3"}
    table = result.evaluations["validation"].groupings["inferred"]
    accuracies = {group.group: group.accuracy or 0.0 for group in table.groups}
    assert min(accuracies, key=lambda name: accuracies[name]) in ("1", "3")
    assert table.worst_group in ("0", "2")
    assert table.notes().endswith("are left out of the worst group")
    shutil.rmtree(output / "store")
    assert open_version(output).wrong_labels() == {}


def test_versions_are_found_by_name(published: Path) -> None:
    name = open_version(published).name
    assert open_version(f"{published}@{name}").folder == open_version(published / "versions" / name).folder
    with pytest.raises(InputError, match=f"no published version 'v0'.*{name}"):
        open_version(f"{published}@v0")
    with pytest.raises(InputError, match="holds no published version"):
        open_version(published / "store")
    with pytest.raises(InputError, match=f"Did you mean '{published}'"):
        open_version(f"{published}x")


def test_a_training_leaves_a_model_its_scores_and_nothing_else(published: Path) -> None:
    result = run(published, truth="truth")
    assert not result.reused
    assert sorted(path.name for path in result.folder.iterdir()) == [
        ".lease",
        "ensemble.json",
        "evaluation.json",
        "features",
        "models",
        "selection.safetensors",
        "training.json",
    ]
    assert result.folder.parent == published / "models"
    frame = table_of(published).to_pandas()
    X = np.column_stack([frame["a"], frame["b"], np.stack(frame["vector"])]).astype(np.float32)
    right = result.model.predict(X) == (frame["label"] == "yes")
    for split in ("validation", "test"):
        mine = frame.split == split
        found = result.evaluations[split]
        assert found.rows == mine.sum()
        assert found.accuracy == pytest.approx(right[mine].mean())
        true = found.groupings["true"]
        truth = frame["truth"][mine].to_numpy()
        assert {s.group: s.accuracy for s in true.groups if s.rows} == pytest.approx(
            {name: right[mine][truth == name].mean() for name in np.unique(truth)}
        )
        sizes = frame["truth"][mine].value_counts()
        assert {s.group for s in true.groups if s.pooled} == set(sizes[sizes < MIN_ROWS].index)
        counts = frame["truth"][frame.split == "train"].value_counts()
        assert {s.group: s.train_rows for s in true.groups} == counts.to_dict()
    assert result.model.about["version"] == open_version(published).name
    again = run(published, truth="truth")
    assert again.reused
    assert again.evaluations == result.evaluations
    assert run(published, checkpoint_every=3).reused
    assert not run(published, step_size=0.5).reused


def test_one_training_at_a_time(published: Path, tmp_path: Path) -> None:
    with hold_lease(tmp_path, "another"), pytest.raises(LockedError, match="is being written by another"):
        run(published, tmp_path)


def test_a_version_without_its_store_gives_the_same_model(published: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(open_version(published).folder, copy)
    moved = run(copy, tmp_path / "moved")
    here = run(published, tmp_path / "here")
    for name in ("models/000.safetensors", "selection.safetensors", "training.json", "evaluation.json"):
        assert (moved.folder / name).read_bytes() == (here.folder / name).read_bytes()


def test_noise_is_what_the_parameters_say(published: Path, tmp_path: Path) -> None:
    frame = table_of(published).to_pandas()
    train_rows = frame[frame.split == "train"]
    noise = int((train_rows.group < 0).sum())
    assert noise > 0
    for setting, expected in (
        ("own_group", len(train_rows)),
        ("erm", len(train_rows)),
        ("drop", len(train_rows) - noise),
    ):
        result = run(published, tmp_path / setting, noise=setting)
        record = result.record
        assert record["train_rows"] == expected == sum(record["groups"].values())
        own = sum(rows for group, rows in record["groups"].items() if int(group) < 0)
        assert own == (0 if setting == "drop" else noise)
        table = result.evaluations["validation"].groupings["inferred"]
        scored = [(group.accuracy, group.train_rows) for group in table.groups if group.rows]
        total = sum(rows for _, rows in scored)
        assert table.average == pytest.approx(sum(float(a or 0) * rows for a, rows in scored) / total)


def test_a_folder_with_the_model_of_another_training_is_refused(published: Path, tmp_path: Path) -> None:
    first = run(published, tmp_path / "m", trainer="erm")
    with pytest.raises(InputError, match=r"m holds the model of another training \(erm\), .* Give an empty"):
        run(published, tmp_path / "m", trainer="gdro")
    assert run(published, tmp_path / "m", trainer="erm").reused
    earlier = {key: value for key, value in first.record.items() if key != "fingerprint"}
    (tmp_path / "m" / "training.json").write_text(json.dumps(earlier))
    assert run(published, tmp_path / "m", trainer="gdro").reused  # as before there were fingerprints


def test_the_description_names_the_mixture_that_it_holds(published: Path, tmp_path: Path) -> None:
    few = {"trainer": "boosted_cvar", "rounds": 2, "round_epochs": 1}

    def about(alpha: float | None = None, **values: Any) -> list[Any]:
        params = parse_params({**SMALL, **few, **values})
        train(TrainSpec(published, params, folder=tmp_path / "m", mix_alpha=alpha), LocalExecutor())
        found = json.loads((tmp_path / "m" / "ensemble.json").read_text())["about"]
        return [found["mixing"], found.get("alpha"), found["params"]["mixing"], found["params"]["alpha"]]

    assert about() == ["cvar", 0.1, "cvar", 0.1]
    assert about(alpha=0.4) == ["cvar", 0.4, "cvar", 0.4]
    assert about(mixing="average", alpha=None) == ["average", None, "average", 0.1]
    assert about(alpha=0.9, mixing="average") == ["cvar", 0.9, "cvar", 0.9]


def test_errors_name_the_place(published: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"truth: .* no column 'truht'. Did you mean 'truth'"):
        run(published, tmp_path, truth="truht")
    with pytest.raises(InputError, match=r"train.where is 'ray', but the executor is local"):
        run(published, tmp_path / "ray", where="ray")
    with pytest.raises(InputError, match=r"model 'nowhere:net': no module named 'nowhere'"):
        run(published, tmp_path / "model", model="nowhere:net")


def test_base_models_are_mixed_for_the_selection_rows(published: Path) -> None:
    result = run(published, trainer="boosted_cvar", rounds=3, round_epochs=1, boosting="regularized_lp")
    record = json.loads((result.folder / "training.json").read_text())
    assert record["models"] == len(result.model.models) == 3
    assert record["selection_split"] == "validation"
    scores = result.evaluations["validation"].cvar
    assert all(point.reweighted is not None for point in scores)
    for point in scores:
        assert float(point.reweighted or 0) <= point.deterministic + 1e-6


def test_vectors_of_an_encoder_a_prefix_and_no_held_out_rows(tmp_path: Path) -> None:
    sections: dict[str, Any] = {"output": {"prefix": "w_"}, "operators": {"split": {"validation": 0.0}}}
    engine.run(text_recipe(tmp_path, source={"on_error": "quarantine"}, **sections))
    version = open_version(tmp_path / "out")
    assert "w_group" in [field["name"] for field in version.manifest["schema"]]
    stored = run(tmp_path / "out", tmp_path / "stored")
    assert stored.evaluations == {}
    assert (stored.record["selection_split"], stored.record["train_rows"]) == ("train", 199)
    shutil.rmtree(tmp_path / "out" / "store")
    made_again = run(tmp_path / "out", tmp_path / "made_again")
    model = Path("models/000.safetensors")
    assert (stored.folder / model).read_bytes() == (made_again.folder / model).read_bytes()


def test_another_mixture_needs_no_training(published: Path) -> None:
    values: dict[str, Any] = {
        "trainer": "boosted_cvar",
        "rounds": 4,
        "round_epochs": 1,
        "epochs": 1,
        "lr": 0.001,
    }
    first = run(published, alpha=0.05, **values)
    second = run(published, alpha=0.6, **values)
    assert (first.reused, second.reused) == (False, True)
    np.testing.assert_array_equal(second.model.model_weights, first.model.reweight(0.6).model_weights)
    assert Ensemble.load(second.folder).about["alpha"] == 0.6
    assert run(published, mixing="average", **values).reused
    assert not run(published, alpha=0.6, boosting="lp", **values).reused


def test_the_grid_is_resumed_and_the_worst_inferred_group_decides(published: Path) -> None:
    spec = TrainSpec(published, parse_params({**SMALL, "epochs": 3}), seed=4, truth="truth")
    grid = {"lr": [1e-5, 0.1, 1e30], "step_size": [0.01, 0.3]}
    found = search_parameters(spec, grid, LocalExecutor())
    assert [one.values for one in found.candidates[:2]] == [{"lr": 1e-5, "step_size": s} for s in (0.01, 0.3)]
    assert all("lower train.lr" in one.fault.lower() for one in found.candidates[4:])
    scores = [one.score or 0.0 for one in found.candidates]
    assert scores[found.best] == max(scores)
    winner = train(found.spec, LocalExecutor())
    assert winner.reused
    table = winner.evaluations["validation"].groupings
    assert table["inferred"].worst_group_accuracy == max(scores)
    (record,) = (published / "models").glob("grid-*.json")
    assert json.loads(record.read_text())["best"] == found.best
    before = {path: path.stat().st_mtime_ns for path in (published / "models").rglob("*.safetensors")}
    assert search_parameters(spec, grid, LocalExecutor()).candidates == found.candidates
    assert before == {path: path.stat().st_mtime_ns for path in (published / "models").rglob("*.safetensors")}
    oracle = search_parameters(spec, grid, LocalExecutor(), criterion="oracle_worst_true_group")
    assert (
        oracle.candidates[0].score
        == train(
            replace(spec, params=parse_params({**SMALL, "epochs": 3, "lr": 1e-5, "step_size": 0.01})),
            LocalExecutor(),
        )
        .evaluations["validation"]
        .groupings["true"]
        .worst_group_accuracy
    )
    with pytest.raises(InputError, match="name a column with the true groups"):
        search_parameters(
            replace(spec, truth=None), grid, LocalExecutor(), criterion="oracle_worst_true_group"
        )
    with pytest.raises(InputError, match="stepsize: unknown key"):
        search_parameters(spec, {"stepsize": [1]}, LocalExecutor())
    with pytest.raises(InputError, match=r"None of the 1 cells .* diverged"):
        search_parameters(spec, {"lr": [1e38]}, LocalExecutor())


@pytest.mark.parametrize("encoded", [False, True], ids=["columns", "encode"])
def test_entries_of_a_vector_share_a_deviation(tmp_path: Path, encoded: bool) -> None:
    """As in the probe: an entry that one row of 300 has is not blown up to 17 standard deviations."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 300)
    kinds = np.zeros((300, 3), np.float32)
    kinds[np.arange(300), rng.integers(0, 2, 300)] = 1
    kinds[0] = [0, 0, 1]
    frame = pd.DataFrame({"size": 1000 * (label + rng.normal(size=300)), "age": rng.normal(size=300)})
    frame["kind"], frame["label"] = list(kinds), np.where(label, "yes", "no")
    operators: dict[str, Any] = {
        "groups": {"method": "none"},
        "weights": {"method": "uniform", "trust": "all"},
    }
    operators |= {"encode": {}} if encoded else {}
    out = publish_frame(frame, tmp_path, {**operators, "split": {"validation": 0.0}}, 2)
    for name in ("erm_plain", "gdro"):
        found = train(TrainSpec(out, parse_params({"trainer": name, "epochs": 1})), LocalExecutor())
        std = found.model.models[0].get_submodule("standardize").std.numpy()
        columns = [frame["size"], frame["age"]]
        expected = [np.std(column) for column in columns] + [np.sqrt((kinds.std(axis=0) ** 2).mean())] * 3
        np.testing.assert_allclose(np.sort(std), np.sort(expected), rtol=1e-4)
