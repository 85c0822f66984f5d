"""The administrator's policy keeps recipes from clusters, schemes and hosts; and the policy file itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import rowsieve
from engine.cli.app import app
from engine.core.errors import InputError
from engine.core.policy import VARIABLES, Policy, apply_policy, current_policy
from engine.recipe.recipe import Recipe
from tests.data import recipe_for, spurious_table, write_shards

SMALL = {"name": "small", "source": {"path": "x.csv", "label": "y"}, "output": {"path": "out"}}


@pytest.fixture(autouse=True)
def no_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins and ends without a policy."""
    for variable in ("ROWSIEVE_POLICY", *VARIABLES.values()):
        monkeypatch.setenv(variable, "x")  # so that it is restored
        monkeypatch.delenv(variable)


def with_address(folder: Path) -> Path:
    write_shards(folder / "data", spurious_table(), 1)
    value = recipe_for(
        folder / "data", folder / "out", run={"executor": "ray", "address": "ray://evil:10001"}
    )
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(value))
    return path


@pytest.mark.parametrize("command", ["validate", "plan", "run", "status", "quarantine"])
def test_a_recipe_cannot_name_the_cluster(command: str, tmp_path: Path) -> None:
    path = with_address(tmp_path)
    done = CliRunner().invoke(app, [command, str(path)])
    assert done.exit_code == 2
    assert f"{path}: run.address: a recipe may not choose the Ray cluster" in done.output
    assert len(done.output.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_the_api_refuses_it_too(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"run\.address: a recipe may not choose"):
        rowsieve.run(yaml.safe_load(with_address(tmp_path).read_text()))


def test_the_command_line_and_the_operator_may_name_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = with_address(tmp_path)
    assert Recipe.load(path, ["run.address=auto"]).run.address == "auto"
    assert Recipe.load(path, ["run={executor: local}"]).run.address is None
    with pytest.raises(InputError, match=r"run\.address"):
        Recipe.load(path, ["run.executor=ray"])
    monkeypatch.setenv("ROWSIEVE_ADDRESSES", "auto, ray://evil:10001")
    assert Recipe.load(path).run.address == "ray://evil:10001"


@pytest.mark.parametrize("executor", ["auto", "ray"])
@pytest.mark.parametrize("way", ["command line", "environment", "operator's list"])
def test_no_run_is_a_ray_client(
    executor: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of ``ray://`` sends pickles, so that not even the operator's own address is one."""
    path = with_address(tmp_path)
    if way == "environment":
        monkeypatch.setenv("RAY_ADDRESS", "ray://evil:10001")
        given = ["--set", "run.address=null"]
    elif way == "command line":
        given = ["--set", "run.address=ray://evil:10001"]
    else:
        monkeypatch.setenv("ROWSIEVE_ADDRESSES", "ray://evil:10001")
        given = []
    monkeypatch.setattr("ray.init", lambda *_, **__: pytest.fail("connected"))
    given += ["--set", f"run.executor={executor}"] if way != "operator's list" else []
    done = CliRunner().invoke(app, ["run", str(path), *given])
    assert done.exit_code == 2, done.output
    key = "RAY_ADDRESS" if way == "environment" else "run.address"
    assert f"{key}: ray://evil:10001: a run joins Ray as a node" in done.output
    assert not (tmp_path / "out" / "versions").exists()


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"source": {"path": "http://169.254.169.254/latest", "label": "y"}}, "source.path"),
        ({"source": {"path": "S3://elsewhere/x", "label": "y"}}, "source.path"),
        ({"output": {"path": "gs://elsewhere"}}, "output.path"),
        (
            {"output": {"path": "out", "export": [{"format": "delta", "path": "az://x/t"}]}},
            "output.export.0.path",
        ),
        (
            {"operators": {"gradients": {"stored": {"path": "ftp://x/g.npy"}}}},
            "operators.gradients.stored.path",
        ),
    ],
)
def test_schemes_and_hosts_are_checked_for_every_path(
    change: dict[str, Any], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Recipe.parse(SMALL | change)
    monkeypatch.setenv("ROWSIEVE_SCHEMES", "file")
    with pytest.raises(InputError, match=f"r.yaml: {key}: the scheme '[a-z0-9]+' is not allowed"):
        Recipe.parse(SMALL | change, "r.yaml")
    monkeypatch.setenv("ROWSIEVE_SCHEMES", "file,http,s3,gs,az,ftp")
    monkeypatch.setenv("ROWSIEVE_HOSTS", "*.example.org,bucket")
    with pytest.raises(InputError, match=f"r.yaml: {key}: the host '[a-z0-9.]+' is not allowed"):
        Recipe.parse(SMALL | change, "r.yaml")


@pytest.mark.parametrize(
    "path", ["s3://bucket/in", "https://data.example.org:8443/x", "local/x.csv", "/abs/x"]
)
def test_what_is_allowed_passes(path: str) -> None:
    Policy(schemes=("file", "s3", "https"), hosts=("bucket", "*.example.org")).check_path("source.path", path)


@pytest.mark.parametrize(
    "path",
    ["https://data.example.org@evil.com/x", "https://evil.com/data.example.org", "https://[x/", "s3:///x"],
)
def test_a_host_is_not_mistaken_for_another_part(path: str) -> None:
    with pytest.raises(InputError, match="the host"):
        Policy(hosts=("bucket", "*.example.org")).check_path("source.path", path)


def test_the_file_replaces_the_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "policy.toml").write_text(
        'environment_names = ["DB"]\nfactories = []\naddresses = ["auto"]\n'
    )
    monkeypatch.setenv("ROWSIEVE_POLICY", str(tmp_path / "policy.toml"))
    monkeypatch.setenv("ROWSIEVE_FACTORIES", "os")
    monkeypatch.setenv("ROWSIEVE_HOSTS", "a,b")
    expected = Policy(hosts=("a", "b"), environment_names=("DB",), addresses=("auto",))
    assert current_policy() == apply_policy() == expected
    assert os.environ["ROWSIEVE_FACTORIES"] == ""
    assert os.environ["ROWSIEVE_ENVIRONMENT_NAMES"] == "DB"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shemes = []", "shemes: unknown key. Did you mean 'schemes'"),
        ("schemes = 's3'", "schemes: give a list of texts"),
        ("hosts = ['a,b']", "hosts: give a list of texts"),
        ("hosts = [", "not valid TOML"),
        ("hosts = " + "[" * 100_000, "nested too deeply"),
        (None, "cannot be read"),
    ],
)
def test_a_faulty_policy_stops_every_command(
    text: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "p.toml").write_text(text)
    monkeypatch.setenv("ROWSIEVE_POLICY", str(tmp_path / "p.toml"))
    done = CliRunner().invoke(app, ["operators"])
    assert done.exit_code == 2
    assert message in done.output
    with pytest.raises(InputError):
        Recipe.parse(SMALL)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("pipe", "not a regular file"),
        ("folder", "not a regular file"),
        ("device", "not a regular file"),
        ("everyone's", "chmod o-w"),
        ("huge", "larger than 1 MiB"),
    ],
)
def test_a_policy_is_a_file_of_its_operator(
    kind: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe was waited for, and a file that every user may write to was followed."""
    path = tmp_path / "p.toml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_text("strict = true" + "\n" * (2**21 if kind == "huge" else 1))
        path.chmod(0o666 if kind == "everyone's" else 0o600)
    monkeypatch.setenv("ROWSIEVE_POLICY", str(path))
    done = CliRunner().invoke(app, ["operators"])
    assert (done.exit_code, str(path) in done.output, message in done.output) == (2, True, True)


def test_the_policy_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.toml").write_text('schemes = ["file", "s3"]')
    monkeypatch.setenv("ROWSIEVE_POLICY", str(tmp_path / "p.toml"))
    monkeypatch.setenv("ROWSIEVE_ADDRESSES", "auto")
    shown = CliRunner().invoke(app, ["policy"])
    assert shown.exit_code == 0
    lines = {line.split()[0]: line for line in shown.output.splitlines()}
    assert "file, s3" in lines["schemes"]
    assert str(tmp_path / "p.toml") in lines["schemes"]
    assert "any" in lines["hosts"]
    assert "none" in lines["factories"]
    found = json.loads(CliRunner().invoke(app, ["policy", "--json"]).output)
    assert found["addresses"] == {"allowed": ["auto"], "from": "ROWSIEVE_ADDRESSES"}
    assert found["hosts"] == {"allowed": None, "from": "default"}
