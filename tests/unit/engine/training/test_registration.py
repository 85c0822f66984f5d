"""``rowsieve retrain`` with MLflow: registered, served, compared with the champion, traced back."""

from __future__ import annotations

import html
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import mlflow
import numpy as np
import pyarrow.dataset
import pytest
from mlflow.exceptions import RestException
from mlflow.utils.search_utils import SearchModelVersionUtils
from typer.testing import CliRunner, Result

import engine
from engine.cli.app import app
from engine.core.errors import InfeasibleError, InputError
from engine.publish.lineage import trace
from engine.recipe.promotion import Condition, PromotionRule
from engine.storage.manifest import read_manifest
from engine.training import Ensemble, promotion, registration
from engine.training.data import version
from engine.training.data.version import open_version
from engine.training.page import sentences
from engine.training.promotion import PromotionDecision
from engine.training.registration import RegisteredModel
from engine.training.retrain import find_dataset, parse_grid, parse_settings
from engine.training.serving.stored_models import champion_of, trained_on
from operators.groups.by_cue import ByCue
from operators.groups.params import CueGroupsParams
from tests.data import free_port, small_recipe

QUICK = ["--executor", "local", "--set", "epochs=3", "--set", "batch_size=32"]


@pytest.fixture(scope="module")
def published() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        engine.run(small_recipe(Path(folder), tracking={"enabled": True}))
        yield Path(folder) / "out"


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["retrain", *arguments, *QUICK])


def retrain(*arguments: str) -> dict[str, Any]:
    done = command(*arguments, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def worst_group(found: dict[str, Any]) -> float:
    table = found["evaluations"]["validation"]["groupings"]["inferred"]
    return float(table["worst_group_accuracy"])


def test_challenger_champion_and_the_way_back(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = open_version(published)
    base = ["--dataset", str(published), "--register", "small", "--truth", "truth"]
    rule = ["--promote-if", "worst_group_accuracy > champion + 0.01"]
    first = retrain(*base, *rule, "--trainer", "erm", "--set", "optimizer=sgd", "--set", "lr=1e-6")
    assert first["promoted"]["promoted"]
    assert "no champion yet" in first["promoted"]["reason"]
    good = retrain(*base, *rule, "--trainer", "gdro", "--set", "lr=0.2", "--set", "model=mlp")
    worst = [worst_group(found) for found in (first, good)]
    assert worst[1] > worst[0] + 0.01
    assert good["promoted"]["promoted"]
    again = retrain(*base, *rule, "--trainer", "gdro", "--set", "lr=0.2", "--set", "model=mlp")
    assert again["reused"]
    assert not again["promoted"]["promoted"]
    assert f"{worst[1]:.4f}, champion {worst[1]:.4f}" in again["promoted"]["reason"]

    uri = f"sqlite:///{published / 'mlflow.db'}"
    client = mlflow.MlflowClient(uri)
    aliases = client.get_registered_model("small").aliases
    assert {alias: int(number) for alias, number in aliases.items()} == {"champion": 2, "challenger": 3}
    run = client.get_run(client.get_model_version_by_alias("small", "champion").run_id)
    (used,) = run.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("small", version.manifest["content"])
    assert run.data.metrics["validation.worst_group_accuracy"] == pytest.approx(worst[1])
    assert "report.html" in {entry.path for entry in client.list_artifacts(run.info.run_id)}
    assert {entry.path for entry in client.list_artifacts(run.info.run_id, "plots/validation")} >= {
        "plots/validation/cvar.png"
    }
    assert run.info.run_id in [found["run_id"] for found in trace(version.name, published)["runs"]]

    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    served = mlflow.pyfunc.load_model("models:/small@champion")
    frame = pyarrow.dataset.dataset(version.folder / "data").to_table().to_pandas()
    model = Ensemble.load(good["folder"])
    X = np.column_stack([frame["a"], frame["b"], np.stack(frame["vector"])])
    answers = served.predict(frame[["a", "b", "vector"]])
    assert answers["prediction"].tolist() == np.array(["no", "yes"])[model.predict(X)].tolist()
    np.testing.assert_allclose(answers["probability_yes"], model.predict_proba(X)[:, 1])
    with pytest.raises(mlflow.MlflowException, match="missing"):
        served.predict(frame[["a", "b"]])
    spoilt = served.predict(frame[["a", "b", "vector"]].assign(a=np.inf))
    assert spoilt["reason"].str.contains("column 'a' is infinite").all()
    values = (np.nan, frame.loc[frame["split"] == "train", "a"].median())  # what `encode` has learnt from
    missing, filled = (served.predict(frame[["a", "b", "vector"]].assign(a=value)) for value in values)
    np.testing.assert_allclose(missing["probability_yes"], filled["probability_yes"], rtol=1e-5)


@pytest.mark.parametrize(("name", "remedy"), [("<b>m</b>", "b-m-b"), ("a:b", "a-b"), (" ", "model")])
def test_names_that_mlflow_refuses_are_refused_before_training(
    published: Path, name: str, remedy: str
) -> None:
    done = command("--dataset", str(published), "--trainer", "erm", "--register", name)
    assert done.exit_code == 2
    assert f"such as {remedy}." in " ".join(done.output.split())


@pytest.mark.slow
def test_an_ensemble_is_mixed_anew_and_samples_by_request(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = ["--dataset", str(published), "--trainer", "boosted_cvar", "--register", "mixture"]
    options = [*base, "--set", "rounds=4", "--set", "round_epochs=1", "--set", "boosting=lp"]
    first = retrain(*options)
    mixed = retrain(*options, "--alpha", "0.9")
    assert (first["reused"], mixed["reused"], mixed["models"]) == (False, True, 4)
    expected = Ensemble.load(first["folder"]).reweight(0.9).model_weights
    np.testing.assert_allclose(mixed["model_weights"], expected)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{published / 'mlflow.db'}")
    served = mlflow.pyfunc.load_model("models:/mixture@challenger")
    frame = pyarrow.dataset.dataset(open_version(published).folder / "data").to_table().to_pandas()
    rows = frame[["a", "b", "vector"]].assign(request_id=[str(i) for i in range(len(frame))])
    drawn = served.predict(rows, params={"sample": True, "seed": 3})
    X = np.column_stack([frame["a"], frame["b"], np.stack(frame["vector"])])
    chosen = Ensemble.load(mixed["folder"]).sample(X, rows["request_id"], seed=3)
    assert drawn["prediction"].tolist() == np.array(["no", "yes"])[chosen].tolist()
    with pytest.raises(ValueError, match="give each row's id in a column 'request_id'"):
        served.predict(frame[["a", "b", "vector"]], params={"sample": True})


def test_a_grid_from_the_command_line(published: Path) -> None:
    done = command(
        "--dataset",
        str(published),
        "--trainer",
        "gdro",
        "--grid",
        "lr=0.0001,0.1",
        "--grid",
        "step_size=0.01",
    )
    assert done.exit_code == 0, done.output
    assert "best of 2 cells: lr=" in done.stdout
    assert "inferred groups" in done.stdout


def test_datasets_are_found_by_name_on_the_server(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{published / 'mlflow.db'}")
    assert Path(find_dataset("small")) == published.resolve()
    assert find_dataset("small@v1") == f"{published.resolve()}@v1"
    with pytest.raises(InputError, match=r"no run on .* published a dataset 'large'"):
        find_dataset("large")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--trainer", "gdor"], "no trainer 'gdor'. Did you mean 'gdro'"),
        (["--trainer", "gdro", "--set", "stepsize=1"], "stepsize: unknown key. Did you mean 'step_size'"),
        (["--set", "lr"], "write it as key=value"),
        (["--grid", "lr="], "write it as key=value,value"),
        (["--promote-if", "accuracy > 0.5"], "give --register NAME too"),
        (["--register", "x", "--promote-if", "accuracy better"], "write METRIC, one of"),
        (["--alpha", "0.1"], "--alpha mixes the base models of boosted_cvar"),
        (["--trainer", "boosted_cvar", "--alpha", "2"], "--alpha 2.0: give the share"),
        (["--truth", "truht"], "no column 'truht'. Did you mean 'truth'"),
    ],
)
def test_bad_input_is_one_paragraph(published: Path, arguments: list[str], match: str) -> None:
    done = command("--dataset", str(published), *arguments)
    assert done.exit_code == 2
    assert match in done.stderr
    assert "Traceback" not in done.output


def test_a_dataset_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    done = command("--dataset", "nowhere")
    assert done.exit_code == 2
    assert "there is no folder 'nowhere'" in done.stderr
    (tmp_path / "crm_out").mkdir()
    (tmp_path / "crm_out" / "CURRENT").write_text("v1")
    assert "Did you mean 'crm_out'?" in command("--dataset", "crm_oot").stderr


def test_conditions() -> None:
    rule = Condition.parse("cvar_0.1 <= champion - 1e-2")
    assert (rule.metric, rule.sign, rule.relative, rule.bound) == ("cvar_0.1", "<=", True, -0.01)
    assert rule.evaluate({"cvar_0.1": 0.39}, {"cvar_0.1": 0.4})[0]
    assert not rule.evaluate({"cvar_0.1": 0.395}, {"cvar_0.1": 0.4})[0]
    assert rule.evaluate({"cvar_0.1": 0.395}, {"accuracy": 0.4}) == (
        False,
        "the champion has no cvar_0.1 on these rows",
    )
    absolute = Condition.parse("accuracy >.8")
    assert absolute.evaluate({"accuracy": 0.9}, None)[0]
    assert not absolute.evaluate({"accuracy": 0.8}, {"accuracy": 0.1})[0]
    with pytest.raises(InputError, match=r"no metric 'acuracy'. Did you mean 'accuracy'"):
        Condition.parse("acuracy > 1")
    with pytest.raises(InputError, match=r"Did you mean 'worst_group_accuracy'"):
        Condition.parse("worst_group_acuracy > champion with confidence .95")
    for metric in (
        "truth_worst_group_accuracy_low",
        "log_loss_cvar_0.25",
        "worst_group_loss",
        "average_loss",
    ):
        assert Condition.parse(f"{metric} > 0.1").metric == metric
    with pytest.raises(InputError, match=r"no metric 'auprc'. There are: accuracy"):
        Condition.parse("auprc > 0.9").evaluate({"accuracy": 0.9}, None)
    for text in ("accuracy", "accuracy = 1", "accuracy > champion + worst", "a > 1; b > 2"):
        with pytest.raises(InputError, match="--promote-if"):
            Condition.parse(text)


def test_settings_and_grids_are_yaml() -> None:
    assert parse_settings(["hidden=[3, 4]", "model=mlp"]) == {"hidden": [3, 4], "model": "mlp"}
    assert parse_grid(["lr=0.1,1e-2", "noise=erm,drop"]) == {"lr": [0.1, "1e-2"], "noise": ["erm", "drop"]}


def test_the_page_of_a_model_that_nobody_scored_says_so(published: Path) -> None:
    report = published / "reports" / f"{open_version(published).name}.html"
    report.parent.mkdir(exist_ok=True)
    report.touch()
    result = retrain("--dataset", str(published), "--trainer", "erm")
    page = (Path(result["folder"]) / "report.html").read_text("utf-8")
    assert "validation rows the model is worst on" in page
    assert page.count('<img src="data:image/png;base64,') == 4  # groups, tails, calibration, columns
    (link,) = re.findall(r'<a href="([^"]+)">its report</a>', page)
    assert Path(result["folder"], link).resolve() == report.resolve()
    unscored = SimpleNamespace(evaluations={}, regressions={})
    assert "nothing is known" in sentences(unscored, None)[0]  # type: ignore[arg-type]


def test_figures_by_class_say_that_they_tell_nothing_of_a_shortcut(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A robust model was worse than class-balanced ERM in its worst group, which was a class."""
    counts = {"unsplit_rows": 179.0, "minority_share": 0.0}
    (told,) = ByCue(CueGroupsParams()).warnings(counts, Path)
    told = f"operators.groups: {told}"
    monkeypatch.setattr(version, "read_manifest", lambda at: read_manifest(at) | {"warnings": [told]})
    rule = ["--register", "by class", "--promote-if", "worst_group_accuracy > 0.01"]
    done = command("--dataset", str(published), "--trainer", "erm", *rule)
    assert done.exit_code == 0, done.output
    text = (
        "the groups are the classes, so that the worst group says nothing of a shortcut: 179 rows break what"
    )
    assert f"warning: {text}" in done.stdout
    assert re.search(f"is champion now: .*worst_group_accuracy .*; {text}", done.stdout)
    (folder,) = re.findall(r"report: (.*)", done.stdout)
    assert text.replace("the groups", "The groups", 1) in html.unescape(
        Path(folder.strip()).read_text("utf-8")
    )
    monkeypatch.undo()
    assert open_version(published).undivided_groups == ""


@pytest.mark.slow
def test_a_promotion_that_costs_accuracy_without_a_bound_on_it_says_so(
    published: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A rule on the worst group alone let a model through that cost .19 of the accuracy."""
    scores = {"accuracy": 0.77, "worst_group_accuracy": 0.75}, {"accuracy": 0.961}
    bare = PromotionRule.parse("worst_group_accuracy > champion with confidence 0.95")
    assert bare.unbounded_loss(*scores) == (
        "its accuracy is 0.7700, the champion's was 0.9610, and the rule has no bound on it"
    )
    assert not bare.unbounded_loss({"accuracy": 0.945}, {"accuracy": 0.961})
    assert not bare.unbounded_loss({"loss": 2.0}, {"loss": 1.0})
    assert not PromotionRule.parse("accuracy > 0.5").unbounded_loss(*scores)

    base = ["--dataset", str(published), "--register", "costly"]
    rule = ["--promote-if", "log_loss > 0.0"]
    retrain(*base, *rule, "--trainer", "gdro", "--set", "lr=0.2", "--set", "model=mlp")
    worse = retrain(*base, *rule, "--trainer", "erm", "--set", "optimizer=sgd", "--set", "lr=1e-6")
    assert worse["promoted"]["promoted"]
    assert "the champion's was 1.0000, and the rule has no bound on it" in worse["promoted"]["reason"]
    assert "add ` and accuracy > champion - 0.005` to the rule" in caplog.text


class FailingClient:
    """A registry that answers a question for an alias with an error, and knows a model of these aliases."""

    def __init__(self, code: str, aliases: dict[str, str] | None = None) -> None:
        self.code, self.aliases = code, aliases

    def get_model_version_by_alias(self, name: str, alias: str) -> Any:
        raise RestException({"error_code": self.code, "message": "database is locked"})

    def get_registered_model(self, name: str) -> Any:
        if self.aliases is None:
            raise RestException({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no model"})
        return SimpleNamespace(aliases=self.aliases)


@pytest.mark.parametrize(
    "server",
    [
        FailingClient("RESOURCE_DOES_NOT_EXIST"),
        FailingClient("INVALID_PARAMETER_VALUE"),
        FailingClient("INVALID_PARAMETER_VALUE", {"challenger": "1"}),
    ],
    ids=["no_model", "no_model_by_value", "no_alias"],
)
def test_a_registry_that_knows_no_champion_has_none(server: Any, tmp_path: Path) -> None:
    assert champion_of(server, "m", tmp_path, tmp_path) is None
    assert trained_on(server, "m") is None


@pytest.mark.parametrize("code", ["INTERNAL_ERROR", "PERMISSION_DENIED", "INVALID_PARAMETER_VALUE"])
def test_a_registry_that_fails_is_not_a_registry_without_a_champion(code: str, tmp_path: Path) -> None:
    """The challenger was promoted without a comparison."""
    server: Any = FailingClient(code, {"champion": "1"})
    with pytest.raises(InfeasibleError, match=r"'m' is the champion: .*database is locked"):
        champion_of(server, "m", tmp_path, tmp_path)
    with pytest.raises(InfeasibleError, match="does not say"):
        trained_on(server, "m")


class BusyClient:
    """An MLflow client whose answers to questions for a model and to its creation are given."""

    def __init__(self, known: str, created: str) -> None:
        self.known, self.created = known, created

    def get_registered_model(self, name: str) -> None:
        if self.known:
            raise RestException({"error_code": self.known, "message": "no answer"})

    def create_registered_model(self, name: str) -> None:
        assert self.known, "it is there"
        if self.created:
            raise RestException({"error_code": self.created, "message": "no answer"})


def test_a_model_that_another_training_creates_at_the_same_time_is_taken() -> None:
    """The slower of the two ended with exit 2 after its training."""
    for known, created in (
        ("", ""),
        ("RESOURCE_DOES_NOT_EXIST", ""),
        ("RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"),
    ):
        registration._create_if_missing("m", cast(Any, BusyClient(known, created)))
    for known, created in (
        ("INTERNAL_ERROR", "INTERNAL_ERROR"),
        ("RESOURCE_DOES_NOT_EXIST", "PERMISSION_DENIED"),
    ):
        with pytest.raises(RestException, match="no answer"):
            registration._create_if_missing("m", cast(Any, BusyClient(known, created)))


@pytest.mark.parametrize("name", ["churn", "o'brien", 'the "old" one'])
def test_a_name_with_a_quotation_mark_is_found_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe's training of such a name was never registered, as MLflow refused the filter."""

    def search(text: str) -> list[Any]:
        (asked,) = SearchModelVersionUtils.parse_search_filter(text)
        tags = {registration.TRAINING_TAG: "abc"}
        return [SimpleNamespace(tags=tags, version="7", run_id="r")] if asked["value"] == name else []

    monkeypatch.setattr(registration, "client", lambda _: SimpleNamespace(search_model_versions=search))
    model, at = SimpleNamespace(models=[None]), SimpleNamespace(output=Path())
    result = SimpleNamespace(folder=Path("models/abc"), model=model, version=at)
    found = registration.registered_before(cast(Any, result), name)
    assert found is not None
    assert (found.name, found.version) == (name, "7")


def test_another_mixture_of_the_same_base_models_is_another_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed alpha was never registered: another model was compared than the one that was served."""

    def trained(*weights: float) -> Any:
        model = SimpleNamespace(models=weights, model_weights=np.array(weights))
        version = SimpleNamespace(output=tmp_path)
        return SimpleNamespace(folder=Path("models/abc"), model=model, version=version)

    def found(result: Any, tags: dict[str, str]) -> RegisteredModel | None:
        version = SimpleNamespace(tags=tags, version="7", run_id="r")
        server = SimpleNamespace(search_model_versions=lambda _: [version])
        monkeypatch.setattr(registration, "client", lambda _: server)
        return registration.registered_before(result, "m")

    old = {registration.TRAINING_TAG: "abc"}
    both = {**old, registration.MIXTURE_TAG: registration.mixture_digest(trained(0.5, 0.5))}
    same = found(trained(0.5, 0.5 + 1e-12), both)
    assert same is not None
    assert same.version == "7"
    assert found(trained(0.2, 0.8), both) is None
    assert found(trained(1.0), old) is not None
    assert found(trained(0.5, 0.5), old) is None
    assert found(trained(1.0), {registration.TRAINING_TAG: "other"}) is None


def test_what_a_killed_comparison_left_is_removed(tmp_path: Path) -> None:
    """It holds a copy of the champion. Another comparison may go on at present."""
    for name, days in ((".champion-old", 8), (".champion-new", 0), ("features", 8)):
        (tmp_path / name / "model").mkdir(parents=True)
        os.utime(tmp_path / name, (time.time() - days * 86_400,) * 2)
    version = SimpleNamespace(output=tmp_path)
    promotion._remove_left_behind(cast(Any, SimpleNamespace(folder=tmp_path, version=version)))
    assert {path.name for path in tmp_path.iterdir()} == {".champion-new", "features"}


def test_a_folder_below_one_with_an_at_sign_is_a_dataset(tmp_path: Path) -> None:
    folder = tmp_path / "me@work" / "out"
    folder.mkdir(parents=True)
    for name in (str(folder), f"{folder}@v1"):
        assert find_dataset(name) == name


def test_a_dataset_is_looked_up_on_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(InputError, match=r"does not say where the dataset 'churn' lies: .*Check MLFLOW_TR"):
        find_dataset("churn")


@pytest.mark.parametrize(
    ("champions", "promoted", "alias"),
    [
        (["1", "1"], True, "9"),
        (["1", "2", "2", "2"], True, "9"),
        (["1", "5"], False, "5"),
        (["1", "2", "3", "4", "6", "7"], False, "7"),
    ],
    ids=["unchanged", "once", "by_a_better_one", "every_time"],
)
def test_a_champion_that_changes_during_the_comparison_is_compared_anew(
    champions: list[str], promoted: bool, alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry tells these champions one after the other; version 5 is better than the challenger."""
    told, now = iter(champions), [""]

    def champion() -> str:
        now[0] = next(told, now[0])
        return now[0]

    def compare(*_: Any) -> promotion._Comparison:
        number = champion()
        return promotion._Comparison(number, PromotionDecision(number != "5", f"against {number}"))

    def set_alias(name: str, alias: str, version: str) -> None:
        now[0] = version

    server = SimpleNamespace(set_registered_model_alias=set_alias, set_tag=lambda *_: None)
    monkeypatch.setattr(promotion, "client", lambda _: server)
    monkeypatch.setattr(promotion, "_compare", compare)
    monkeypatch.setattr(promotion, "champion_version", lambda *_: SimpleNamespace(version=champion()))
    result = SimpleNamespace(scores={"test": None}, version=SimpleNamespace(output=Path()))
    job = rule = cast(Any, None)
    decision = promotion.promote(
        RegisteredModel("m", "9", "run", "uri"), cast(Any, result), job, rule, executor=cast(Any, object())
    )
    assert decision.promoted == promoted
    assert now == [alias]
    if alias == "7":
        assert "changed during each of 3 comparisons" in decision.reason


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ("worst_group_accuracy > 0.9 and worst_group_accuracy > champion", "; inferred: few"),
        ("true_worst_group_accuracy > 0.9", "; true: few"),
        ("accuracy > 0.9", ""),
    ],
)
def test_the_reason_names_groups_that_a_figure_of_the_worst_group_leaves_out(rule: str, named: str) -> None:
    conditions = promotion.PromotionRule.parse(rule).conditions
    scores = SimpleNamespace(notes=lambda grouping: f"{grouping}: few")
    assert promotion._notes(conditions, cast(Any, scores)) == named
