"""Runs, models and records that MLflow holds under the product's former name are still found."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.publish.lineage import trace
from engine.publish.mlflow_outbox import Record, deliver
from engine.publish.tracking import client
from engine.publish.withdrawn_models import WITHDRAWN_TAG, WithdrawnTag, tag_runs_and_models
from engine.runs.history import prune
from engine.runs.runner import run
from engine.training.retrain import find_dataset
from tests.data import small_recipe


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A version whose run and model on MLflow carry the former tags; the output folder and its name."""
    from mlflow.entities import Dataset, DatasetInput

    folder = tmp_path_factory.mktemp("former")
    version = run(small_recipe(folder)).version
    server = client(folder / "out")
    experiment = server.create_experiment(
        "winnow", artifact_location=(folder / "out" / "mlartifacts").as_uri()
    )
    tags = {"winnow.version": version, "winnow.output": str(folder / "out"), "winnow.record": "a" * 32}
    made = server.create_run(experiment, tags=tags)
    server.log_inputs(made.info.run_id, [DatasetInput(Dataset("small", "d", "winnow", "{}"), [])])
    server.create_registered_model("digits")
    server.create_model_version(
        "digits", f"{folder}/model", made.info.run_id, tags={"winnow.version": version}
    )
    return folder / "out", version


def test_lineage_finds_the_run_and_the_model(former: tuple[Path, str]) -> None:
    output, version = former
    found = trace(version, output)
    assert [entry["output"] for entry in found["runs"]] == [str(output)]
    assert [(model["name"], model["version"]) for model in found["models"]] == [("digits", "1")]


def test_a_dataset_is_found_by_its_name(
    former: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{former[0] / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)
    assert find_dataset("small@v1") == f"{former[0]}@v1"


def test_a_waiting_record_is_not_delivered_as_a_second_run(former: tuple[Path, str]) -> None:
    server = client(former[0])
    record = Record("a" * 32, "winnow", "name", 1000, status="FINISHED", end_ms=2000)
    experiment = server.get_experiment_by_name("winnow").experiment_id
    (before,) = server.search_runs([experiment])
    assert deliver(record, server, former[0]) == before.info.run_id
    assert len(server.search_runs([experiment])) == 1


def test_a_withdrawal_tags_the_run_and_the_model(former: tuple[Path, str]) -> None:
    output, version = former
    server = client(output)
    (known,) = server.search_runs([server.get_experiment_by_name("winnow").experiment_id])
    for why in ("bad labels", None):
        tag_runs_and_models(output, version, WithdrawnTag(why), standing=(), move_aliases=False)
        assert server.get_run(known.info.run_id).data.tags.get(WITHDRAWN_TAG) == why
        assert server.get_model_version("digits", "1").tags.get(WITHDRAWN_TAG) == why


def test_prune_keeps_the_version_behind_a_model(former: tuple[Path, str]) -> None:
    output, version = former
    for seed in (11, 12):
        run(small_recipe(output.parent, seed=seed))
    prune(output, 1)
    assert (output / "versions" / version / "manifest.json").exists()
