"""The recipe's section ``train``: when it trains, what it leaves, and that it does so once."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import InputError, RowsieveError
from engine.core.json_files import write_json
from engine.execution.local_executor import LocalExecutor
from engine.publish.withdrawn_models import WITHDRAWN_TAG
from engine.recipe.incremental import TrainSection
from engine.recipe.recipe import Recipe
from engine.recipe.trainers import parse_params
from engine.runs.plugins import training
from engine.runs.plugins.training import decide_training
from engine.runs.retraction import retract
from engine.runs.runner import run
from engine.runs.training_record import training_file
from engine.storage.run_store import sweep
from engine.storage.withdrawals import Withdrawal
from engine.training.data.features import FeatureMaker
from engine.training.data.version import Version
from engine.training.fit.job import FEATURES
from engine.training.serving import stored_models
from engine.training.serving.pyfunc import write_served_model
from engine.training.training_run import TrainSpec, train
from tests.data import recipe_for, spurious_table, write_shards
from tests.unit.engine.training.publishing import publish

ERM: dict[str, Any] = {"trainer": "erm", "params": {"epochs": 2, "batch_size": 32}}


def recipe(folder: Path, **sections: Any) -> Recipe:
    value = recipe_for(folder / "data", folder / "out", **sections)
    value["operators"]["weights"] = {"method": "uniform", "trust": "all"}
    return Recipe.parse(value)


def figure(name: str, *, over: bool) -> dict[str, Any]:
    return {"name": name, "over": over, "excess": 0.2, "threshold": 0.1}


PREDICT: dict[str, Any] = {"outcome": "predict"}


@pytest.mark.parametrize(
    ("when", "record", "trains", "why"),
    [
        ("always", None, True, "always"),
        ("never", None, False, "never"),
        ("drift", None, True, "no base"),
        (
            "drift",
            {**PREDICT, "why": "x", "drift": [figure("noise", over=False)]},
            False,
            "no significant drift",
        ),
        ("drift", {**PREDICT, "fitted": {"a": "it cannot place new rows"}}, False, "no new rows"),
        ("drift", {**PREDICT, "fitted": {"b": "a is fitted again"}}, False, "no new rows"),
        (
            "drift",
            {**PREDICT, "fitted": {"cues": "rows are gone"}},
            True,
            "learnt again: cues (rows are gone)",
        ),
        ("drift", {"outcome": "predict", "drift": [figure("noise", over=True)]}, True, "drift of noise"),
        ("drift", {"outcome": "refit", "why": "drift of shares", "drift": []}, True, "learnt again"),
    ],
)
def test_when_it_trains(when: str, record: dict[str, Any] | None, trains: bool, why: str) -> None:
    manifest = {"version": "v1", "incremental": record}
    value = {"name": "x", "source": {"path": "p", "label": "y"}, "output": {"path": "out"}}
    found = decide_training(TrainSection(when=when), Recipe.parse(value), Path("out"), manifest, pytest.fail)
    assert found[0] is trains
    assert why in found[1]


def test_a_champion_of_withdrawn_rows_is_a_reason_to_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_champions_version", lambda *_: "v1")
    record = Withdrawal(version="v1", why="labels of May", at=1.0, was_current=True)
    write_json(tmp_path / "withdrawn" / "v1.json", record.model_dump(), root=tmp_path)
    manifest = {"version": "v2", "incremental": {"outcome": "predict", "drift": [], "base": "v1"}}
    value = {"name": "x", "source": {"path": "p", "label": "y"}, "output": {"path": str(tmp_path)}}
    section = TrainSection(when="drift", register_as="m")
    found = decide_training(section, Recipe.parse(value), tmp_path, manifest, pytest.fail)
    assert found == (True, "the champion was trained on v1, which was withdrawn: labels of May")


@pytest.mark.parametrize(
    ("champion", "drifted", "trains", "why"),
    [
        (None, None, True, "no champion yet"),
        ("v3", "v2", False, "no significant drift"),
        ("v1", "v2", True, "the champion is older than version v2: drift of columns"),
        ("v1", "v1", False, "no significant drift"),
    ],
)
def test_a_drift_whose_training_failed_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch, champion: str | None, drifted: str | None, trains: bool, why: str
) -> None:
    """Version v4 has not drifted; what happened since the champion was trained?"""

    def manifest(_: Any, version: str) -> dict[str, Any]:
        record = {"outcome": "predict", "base": f"v{int(version[1]) - 1}"}
        return {
            "version": version,
            "incremental": {**record, "drift": [figure("columns", over=version == drifted)]},
        }

    monkeypatch.setattr(training, "_champions_version", lambda *_: champion)
    monkeypatch.setattr(training, "version_folder", lambda output, name: name)
    monkeypatch.setattr(training, "read_manifest", lambda name: manifest(None, name))
    monkeypatch.setattr(training, "is_published", lambda output, name: name >= "v1")
    value = {"name": "x", "source": {"path": "p", "label": "y"}, "output": {"path": "out"}}
    section = TrainSection(when="drift", register_as="m")
    found = decide_training(section, Recipe.parse(value), Path("out"), manifest(None, "v4"), pytest.fail)
    assert found[0] is trains
    assert why in found[1]


def test_bases_in_a_circle_end_the_search_for_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes to a shared output can make two versions each other's base."""
    bases = {"v4": "v3", "v3": "v4"}

    def manifest(version: str) -> dict[str, Any]:
        record = {"outcome": "predict", "base": bases[version], "drift": []}
        return {"version": version, "incremental": record}

    reads: list[str] = []

    def read(name: str) -> dict[str, Any]:
        reads.append(name)
        assert len(reads) < 10, "the search does not end"
        return manifest(name)

    monkeypatch.setattr(training, "_champions_version", lambda *_: "v1")
    monkeypatch.setattr(training, "version_folder", lambda output, name: name)
    monkeypatch.setattr(training, "read_manifest", read)
    monkeypatch.setattr(training, "is_published", lambda output, name: True)
    value = {"name": "x", "source": {"path": "p", "label": "y"}, "output": {"path": "out"}}
    section = TrainSection(when="drift", register_as="m")
    found = decide_training(section, Recipe.parse(value), Path("out"), manifest("v4"), pytest.fail)
    assert found == (False, "no significant drift beyond the thresholds")


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"trainer": "gdroo"}, "did you mean|Did you mean"),
        ({"params": {"epoch": 3}}, "epochs"),
        ({"when": "sometimes"}, r"train\.when"),
        ({"when": "accuracy < champion", "register_as": "m"}, "no challenger"),
        ({"when": "accuracy < 0.8"}, "register_as"),
        ({"promote_if": "accuracy > champion"}, "register_as"),
        ({"when": "average_accuracy < 0.8", "register_as": "m"}, "champion has no average_accuracy"),
        ({"when": "true_worst_group_accuracy < 0.8", "register_as": "m"}, "has no true_worst_group"),
        ({"register_as": "a/b"}, r"train\.register_as 'a/b': MLflow takes no '/'.*such as a-b"),
        ({"register_as": " "}, r"train\.register_as ' ': .*no blank name"),
        ({"register_as": "a'b\"c"}, r"train\.register_as .*such as a-b-c"),
    ],
)
def test_a_section_that_cannot_be_used(section: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Recipe.parse(recipe_for(Path("p"), Path("o"), train=section))


def test_trains_on_what_was_published_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shards(tmp_path / "data", spurious_table(), 2)
    plain = run(recipe(tmp_path))
    assert plain.training is None
    with monkeypatch.context() as patched:  # published, but the training is broken off
        patched.setattr("engine.runs.plugins.training._train", broken_off)
        with pytest.raises(RowsieveError, match="RuntimeError: power cut"):
            run(recipe(tmp_path, train=ERM))
    first = run(recipe(tmp_path, train=ERM))
    assert first.reused
    assert first.version == plain.version
    assert first.training
    assert first.training["trained"]
    assert 0 <= first.training["scores"]["validation"]["worst_group_accuracy"] <= 1
    assert (tmp_path / "out" / "models" / first.training["model"] / "training.json").exists()
    with monkeypatch.context() as patched:
        patched.setattr("engine.runs.plugins.training._train", broken_off)
        assert run(recipe(tmp_path, train=ERM)).training == first.training
    assert training_file(tmp_path / "out", first.version).exists()


def test_a_score_of_the_champion_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run failed once there was a champion: no training has left its record for the rows yet."""
    operators: dict[str, Any] = {"groups": {"method": "none"}, "weights": {"method": "uniform"}, "split": {}}
    publish(spurious_table(800).drop_columns(["vector"]).to_pandas(), tmp_path, operators)
    trained = train(TrainSpec(tmp_path / "out", parse_params({"trainer": "erm"})), LocalExecutor())
    maker = FeatureMaker(trained.version.reader(), trained.folder / FEATURES)
    write_served_model(trained.model, trained.version, maker, tmp_path / "served")
    monkeypatch.setattr(stored_models, "champion_of", lambda *_: ("1", tmp_path / "served"))
    monkeypatch.setattr(training, "client", lambda _: None)
    section = TrainSection(when="worst_group_accuracy < 0.01", register_as="m")

    def why() -> str:
        manifest = {"version": trained.version.name}
        trains, text = decide_training(section, recipe(tmp_path), tmp_path / "out", manifest, LocalExecutor)
        assert not trains
        return text

    scores = trained.evaluations["validation"].groupings["inferred"].groups
    worst, best = sorted(scores, key=lambda group: group.accuracy or 0.0)
    assert worst.accuracy is not None
    assert best.accuracy is not None
    assert worst.accuracy < best.accuracy
    assert f"worst_group_accuracy {worst.accuracy:.4f}" in why()
    monkeypatch.setattr(Version, "wrong_labels", lambda _: {worst.group: 0.95})
    assert f"worst_group_accuracy {best.accuracy:.4f}" in why(), "as the rule of promotion counts it"
    assert [path.name for path in (tmp_path / "out").glob(".*")] == [".lease"]


def test_what_a_killed_run_left_of_the_champion_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def killed(client: Any, name: str, scratch: Path, output: Path) -> Any:
        seen.append(scratch)
        shutil.copytree(scratch, scratch.with_name(f".copy-of{scratch.name}"))

    monkeypatch.setattr(stored_models, "champion_of", killed)
    monkeypatch.setattr(training, "client", lambda _: None)
    section = TrainSection(when="accuracy < 0.01", register_as="m")
    out = tmp_path / "out"
    out.mkdir()
    assert decide_training(section, recipe(tmp_path), out, {}, pytest.fail) == (True, training.NO_CHAMPION)
    assert (
        [path.parent for path in (out / "runs").iterdir()] == [path.parent for path in seen] == [out / "runs"]
    )
    sweep(out / "runs", root=out)
    assert not list((out / "runs").iterdir())


def broken_off(*_: Any) -> Any:
    raise RuntimeError("power cut")


@pytest.mark.slow  # MLflow's database
def test_registers_promotes_and_holds_back(tmp_path: Path) -> None:
    import mlflow

    from engine.training.serving.stored_models import withdrawn_data

    write_shards(tmp_path / "data", spurious_table(), 2)
    section = ERM | {"register_as": "m", "promote_if": "worst_group_accuracy > champion + 0.01"}
    tracked = {"tracking": {"enabled": True}}
    first = run(recipe(tmp_path, train=section, **tracked)).training
    assert first
    assert first["promoted"]["promoted"]
    training_file(tmp_path / "out", first["version"]).unlink()  # as if killed before it was written
    again = run(recipe(tmp_path, train=section, **tracked)).training
    assert again
    assert again["registered"]["version"] == first["registered"]["version"] == "1"
    assert "champion already" in again["promoted"]["reason"]
    other = run(recipe(tmp_path, train={**section, "params": {"epochs": 3}}, **tracked)).training
    assert other
    assert other["registered"]["version"] == "2"
    rule = {**section, "when": "accuracy < 0.01"}
    held = run(recipe(tmp_path, train=rule, **tracked)).training
    assert held
    assert not held["trained"]
    assert "champion on the new rows" in held["why"]
    uri = f"sqlite:///{tmp_path / 'out' / 'mlflow.db'}"
    client = mlflow.MlflowClient(uri)
    assert len(client.search_model_versions("name = 'm'")) == 2
    assert "withdrawn" not in other["promoted"]["reason"]
    done = retract(tmp_path / "out", first["version"], "labels of May", move_aliases=True)
    moved = {alias: number for model in done.models for alias, number in model.moved.items()}
    assert moved == {"champion": None, "challenger": None}
    strict = {**section, "promote_if": "worst_group_accuracy > champion + 0.99"}
    later = run(recipe(tmp_path, train=strict, seed=1, **tracked)).training
    assert later
    assert not later["promoted"]["promoted"]
    told = f"was trained on the version {first['version']}, which was withdrawn: labels of May"
    assert f"; champion 1 {told}. It stays champion, and the yardstick" in later["promoted"]["reason"]
    client.delete_model_version_tag("m", "1", WITHDRAWN_TAG)  # as if MLflow had not been told
    assert withdrawn_data(client, "m", "1", tmp_path / "out") == told
    shutil.rmtree(tmp_path / "out")
