"""A registered model takes the rows of the source: in this process, over HTTP, without Rowsieve."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from mlflow.exceptions import MlflowException
from typer.testing import CliRunner

from engine.cli.app import app
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from tests.data import free_port, recipe_for, write_shards

CONSTRAINTS = Path(__file__).resolve().parents[5] / "deploy" / "constraints.txt"
N = 400
CITIES = ["Oslo", "Rome", "Lima"]


def raw_table(seed: int = 0) -> pa.Table:
    """Whole numbers with gaps, floats, texts with gaps, booleans and dates; the label follows two of them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, N)
    age = np.where(y == 1, rng.integers(40, 70, N), rng.integers(20, 50, N))
    city = np.where(rng.random(N) < 0.8, np.array(CITIES)[y], "Lima")
    days = 18_000 + rng.integers(0, 900, N)
    return pa.table(
        {
            "age": pa.array([None if i % 13 == 0 else int(value) for i, value in enumerate(age)], pa.int64()),
            "score": rng.normal(size=N),
            "city": pa.array([None if i % 17 == 0 else str(value) for i, value in enumerate(city)]),
            "member": pa.array(rng.random(N) < 0.5),
            "hired": pa.array(days * 86_400_000_000, pa.timestamp("us")),
            "seen": pa.array(days * 86_400, pa.timestamp("s", "UTC")),
            "label": pa.array(["yes" if value else "no" for value in y]),
            "truth": pa.array(["a"] * N),
        }
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a registered MLflow model whose features are made by `encode`."""
    folder = tmp_path_factory.mktemp("raw")
    write_shards(folder / "data", raw_table(), 2)
    recipe = recipe_for(folder / "data", folder / "out", tracking={"enabled": True})
    recipe["operators"] = {"groups": {"method": "none"}, "weights": {"method": "uniform"}, "split": {}}
    run(Recipe.parse(recipe))
    options = ["--executor", "local", "--register", "raw"]
    done = CliRunner().invoke(app, ["retrain", "--dataset", str(folder / "out"), *options])
    assert done.exit_code == 0, done.output
    (found,) = (path.parent for path in (folder / "out" / "mlartifacts").rglob("MLmodel"))
    return found


def rows_as_json() -> list[dict[str, Any]]:
    """Ten rows as a client would send them."""
    frame = raw_table(seed=1).slice(1, 10).drop_columns(["label", "truth"]).to_pandas()
    frame["hired"] = frame["hired"].dt.strftime("%Y-%m-%d")
    frame["seen"] = frame["seen"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    found: list[dict[str, Any]] = json.loads(frame.to_json(orient="records"))
    return found


def test_the_signature_has_the_columns_of_the_source(model: Path) -> None:
    found = mlflow.models.Model.load(str(model))
    inputs = {column.name: column for column in found.signature.inputs.inputs}
    assert list(inputs) == ["age", "score", "city", "member", "hired", "seen", "request_id"]
    assert [name for name, column in inputs.items() if not column.required] == ["request_id"]
    assert str(inputs["city"].type) == "DataType.string"
    assert [str(inputs[name].type) for name in ("age", "member")] == ["Any", "Any"]
    assert str(inputs["hired"].type) == "DataType.datetime"
    assert found.metadata["rowsieve.columns"]["age"] == "int64, may be missing"
    example = found.load_input_example(str(model))
    assert list(example.columns) == ["age", "score", "city", "member", "hired", "seen"]


def test_requirements_are_exact_and_name_no_stranger(model: Path) -> None:
    lines = (model / "requirements.txt").read_text().split()
    assert all("==" in line and "+" not in line for line in lines)
    names = {line.partition("==")[0] for line in lines}
    assert {"torch", "mlflow", "pyarrow"} <= names
    assert not {"rowsieve", "transformers", "ray"} & names
    assert {path.name for path in (model / "code").iterdir()} == {
        "connectors",
        "engine",
        "operators",
    }


def test_gaps_unknown_values_and_extra_columns(model: Path) -> None:
    served = mlflow.pyfunc.load_model(str(model))
    frame = raw_table(seed=1).to_pandas()
    labels = frame.pop("label")
    answers = served.predict(frame.drop(columns=["truth"]))
    assert (answers["prediction"] == labels).mean() > 0.8
    assert answers["reason"].isna().all()
    extra = served.predict(frame.assign(more=1))
    pd.testing.assert_frame_equal(extra, answers)
    with pytest.raises(MlflowException, match=r"missing inputs \['city'\]"):
        served.predict(frame.drop(columns=["city", "truth"]))
    assert served.predict(frame.assign(city=None))["reason"].isna().all()
    for seen in (frame["seen"].dt.tz_convert("Asia/Tokyo"), frame["seen"].dt.strftime("%Y-%m-%d %H:%M:%S")):
        pd.testing.assert_frame_equal(served.predict(frame.assign(seen=seen)), answers)
    unknown = served.predict(frame.assign(city="Atlantis"))
    assert unknown["reason"].isna().all()
    ages = frame["age"].astype(object)
    ages[3], ages[4] = "forty", None
    spoilt = served.predict(frame.assign(age=ages))
    assert spoilt["prediction"][3] is None
    assert spoilt["reason"][3] == "column 'age' is not a number (value: 'forty')"
    rest = np.setdiff1d(np.arange(N), [3, 4])
    assert spoilt["prediction"][rest].tolist() == answers["prediction"][rest].tolist()


def post(port: int, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/invocations",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def serving(python: Path, model: Path, folder: Path) -> Iterator[int]:
    """Run ``mlflow models serve`` with an interpreter until the block ends; yield its port."""
    port = free_port()
    command = [str(python), "-m", "mlflow", "models", "serve", "-m", str(model), "-p", str(port)]
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MLFLOW_TRACKING_URI")}
    environment["PATH"] = f"{python.parent}:{environment['PATH']}"
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--env-manager", "local", "--workers", "1"],
            cwd=folder, stdout=log, stderr=subprocess.STDOUT, env=environment,
        )  # fmt: skip
        try:
            _wait(port, process, folder / "serve.log")
            yield port
        finally:
            process.terminate()
            process.wait(60)


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])


def check_requests(port: int, model: Path) -> None:
    """Send rows as JSON: good ones, gaps, unknown values, extra and missing columns, one bad row."""
    rows = rows_as_json()
    good = post(port, {"dataframe_records": rows})["predictions"]
    assert [row["reason"] for row in good] == [None] * len(rows)
    assert {row["prediction"] for row in good} <= {"no", "yes"}
    assert all(0 <= row["probability_yes"] <= 1 for row in good)
    changed = [dict(row) for row in rows]
    changed[0]["age"] = "forty"
    changed[1]["city"] = "Atlantis"
    changed[2]["age"] = None
    changed[3]["colour"] = "red"
    found = post(port, {"dataframe_records": changed})["predictions"]
    assert found[0] == {
        "prediction": None,
        "probability_no": None,
        "probability_yes": None,
        "reason": "column 'age' is not a number (value: 'forty')",
    }
    assert [row["reason"] for row in found[1:]] == [None] * (len(rows) - 1)
    for now, then in zip(found[4:], good[4:], strict=True):  # one row fewer: other sums in float32
        assert now["prediction"] == then["prediction"]
        assert now["probability_yes"] == pytest.approx(then["probability_yes"], rel=1e-4)
    without = [{key: value for key, value in row.items() if key != "score"} for row in rows]
    with pytest.raises(urllib.error.HTTPError, match="400"):
        post(port, {"dataframe_records": without})
    empty = [dict.fromkeys(row) for row in rows]
    assert all(row["reason"] is None for row in post(port, {"dataframe_records": empty})["predictions"])
    posted = [{**rows[0], "member": value} for value in ("perhaps", None, True, False)]
    wrong, gap, yes, no = post(port, {"dataframe_records": posted})["predictions"]
    assert wrong["reason"] == "column 'member' is neither true nor false (value: 'perhaps')"
    assert [one["reason"] for one in (gap, yes, no)] == [None] * 3
    assert yes["probability_yes"] != no["probability_yes"]
    with pytest.raises(urllib.error.HTTPError, match="400"):
        post(port, {"dataframe_records": [{**rows[0], "hired": "some day"}]})


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_request_over_http(model: Path, tmp_path: Path) -> None:
    for port in serving(Path(sys.executable), model, tmp_path):
        check_requests(port, model)


class Payload:
    """Runs when it is unpickled."""

    def __init__(self, trace: str) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (self.trace,)


def hostile_requests(good: dict[str, Any], folder: Path) -> dict[str, tuple[bytes, str]]:
    """Return the bodies of hostile requests with their types, by name."""
    names = list(good)

    def rows(**changed: Any) -> tuple[bytes, str]:
        values = [[*(good | changed).values()], [*good.values()]]
        text = json.dumps({"dataframe_split": {"columns": names, "data": values}})
        return text.encode(), "application/json"

    os.mkfifo(folder / "pipe")  # opening it would wait for ever
    deep = '[["deep"]]'
    found = {
        "path": rows(city=str(folder / "pipe"), age=str(folder / "pipe")),
        "infinite": rows(score=float("inf"), age=float("nan")),
        "huge numbers": rows(age=10**400, score=-(10**400)),
        "huge text": rows(city="a " * 2_000_000),
        "wrong types": rows(age={"a": 1}, score=[1], city=3, member="x"),
        "controls": rows(age="\x1b]0;x\x07\nforged"),
        "page": rows(age="<script>alert(1)</script>"),
        "deep": (
            rows(city=[["deep"]])[0].replace(deep.encode(), b"[" * 900 + b"]" * 900),
            "application/json",
        ),
        "too deep": (b"[" * 100_000 + b"]" * 100_000, "application/json"),
        "columns": (
            json.dumps(
                {"dataframe_records": [good | {f"more {number}": 1 for number in range(20_000)}]}
            ).encode(),
            "application/json",
        ),
        "no JSON": (b"\xff\xfe", "application/json"),
    }
    pickled = pickle.dumps(Payload(str(folder / "trace")))
    for kind in (
        "application/json",
        "application/octet-stream",
        "application/vnd.apache.parquet",
        "text/csv",
    ):
        found[f"pickle as {kind}"] = (pickled, kind)
    return found


def is_same(answer: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Return whether two answers are one, up to the rounding of products of matrices of other shapes."""
    labels = [key for key in wanted if not key.startswith("probability")]
    close = all(abs(answer[key] - wanted[key]) < 1e-6 for key in wanted.keys() - set(labels))
    return close and all(answer[key] == wanted[key] for key in labels)


def test_hostile_requests_end_neither_the_service_nor_other_rows(model: Path, tmp_path: Path) -> None:
    """MLflow's own application answers: an error of the request, or a reason for the row."""
    from mlflow.pyfunc import scoring_server
    from starlette.testclient import TestClient

    client = TestClient(
        scoring_server.init(mlflow.pyfunc.load_model(str(model))), raise_server_exceptions=False
    )
    good = rows_as_json()[0]
    names, wanted = list(good), None
    for name, (body, kind) in {"good": (b"", ""), **hostile_requests(good, tmp_path)}.items():
        began = time.process_time()
        if body:
            answer = client.post("/invocations", content=body, headers={"Content-Type": kind})
            assert answer.status_code in (200, 400, 415, 500), name
            assert time.process_time() - began < 10, name
            assert "\x1b" not in answer.text, name
            if answer.status_code == 200 and len(found := answer.json()["predictions"]) == 2:
                assert is_same(found[1], wanted), (name, found[1], wanted)
        request = {"dataframe_split": {"columns": names, "data": [[*good.values()]]}}
        (after,) = client.post("/invocations", json=request).json()["predictions"]
        wanted = wanted or after
        assert is_same(after, wanted), (name, after, wanted)
    assert wanted is not None
    assert wanted["reason"] is None
    assert not (tmp_path / "trace").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_model_runs_where_rowsieve_is_not_installed(model: Path, tmp_path: Path) -> None:
    """In a new virtual environment with the model's requirements alone, loaded and served."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "clean")], check=True)
    python = tmp_path / "clean" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", "-r", str(model / "requirements.txt")]
    install += ["--no-compile", "-c", str(CONSTRAINTS)]  # what the requirements ask for in turn
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode and "Could not" in done.stderr and "No matching distribution" not in done.stderr:
        pytest.skip(f"no package registry can be reached: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr[-2000:]
    listed = subprocess.run([str(python), "-m", "pip", "list"], capture_output=True, text=True, check=True)
    assert "rowsieve" not in listed.stdout
    for port in serving(python, model, tmp_path):
        check_requests(port, model)
