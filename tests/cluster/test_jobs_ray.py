"""Jobs on a real head node with its dashboard and token authentication."""

import os
import re
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import engine
from engine.cli.app import app
from engine.core.errors import Exit, InputError
from engine.jobs import list_jobs, submit
from engine.jobs.key import JobState
from engine.jobs.package import collect
from engine.storage.withdrawals import current_version
from tests.cluster.head import PATIENCE, TOKEN, Head, running_head
from tests.data import recipe_for, small_recipe, spurious_table, write_shards

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with running_head() as found:
        yield found


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:1")  # what is asked for wins over it


def command(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_a_token_is_asked_for(head: Head, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, shards=4)
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with pytest.raises(InputError, match="refuses the token it was sent"):
        submit(recipe, head.address)
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}  # Ray itself keeps a token it has once read
    done = subprocess.run(
        [sys.executable, "-m", "engine.cli", "status", "some", "--address", head.address],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == Exit.BAD_INPUT
    assert "asks for a token, and none was sent (401)" in done.stderr


def test_a_run_on_its_own_cluster_is_submitted_once(head: Head, tmp_path: Path) -> None:
    write_shards(tmp_path / "data", spurious_table(), 2)
    mapping = recipe_for(tmp_path / "data", tmp_path / "out", run={"executor": "ray"})
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(mapping))
    arguments = ("submit", str(tmp_path / "r.yaml"), "--address", head.address)
    with ThreadPoolExecutor(2) as threads:  # two at the same moment
        recipe = engine.Recipe.load(tmp_path / "r.yaml")
        both = list(threads.map(lambda _: submit(recipe, head.address), range(2)))
    assert sorted(found.new for found in both) == [False, True]
    assert both[0].handle.id == both[1].handle.id
    version = engine.make_plan(recipe).version
    assert both[0].info.metadata["version"] == version
    code, said = command(*arguments, "--wait")
    assert (code, current_version(tmp_path / "out")) == (0, version)
    assert "nothing new is submitted" in said
    assert f"{version} " in said
    (job,) = (job for job in both[0].handle._client.list_jobs() if job.submission_id == both[0].handle.id)
    assert job.driver_info is not None  # the run has joined this cluster, not started one of its own
    code, said = command(*arguments)
    assert (code, "already succeeded at" in said) == (0, True)
    again = submit(recipe, head.address, again=True, code="installed")
    assert again.handle.id == f"{both[0].handle.id}.2"
    assert again.handle.wait().exit_code == Exit.DONE
    assert "already published" in again.handle.logs()


def test_a_failed_run_exits_as_it_did_and_is_tried_again(head: Head, tmp_path: Path) -> None:
    recipe = recipe_for(tmp_path / "absent", tmp_path / "out")
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe))
    arguments = ("submit", str(tmp_path / "r.yaml"), "--address", head.address)
    code, said = command(*arguments)
    assert (code, "name the run with --key" in said) == (2, True)
    code, said = command(*arguments, "--key", "monday", "--wait")
    assert (code, "absent" in said) == (Exit.BAD_INPUT, True), said
    first = next(name for name in list_jobs(head.address) if name.startswith("small-monday-"))
    code, said = command("status", first, "--address", head.address)
    assert (code, "failed at" in said, "exit    2, error: " in said) == (0, True, True)
    code, said = command("status", str(tmp_path / "r.yaml"), "--address", head.address)
    assert (code, f"{first}: failed at" in said) == (0, True)
    write_shards(tmp_path / "absent", spurious_table())
    wheel = tmp_path / "rowsieve-0-py3-none-any.whl"  # laid out as one
    collect(b"", code="source").write(wheel)
    code, said = command(*arguments, "--key", "monday", "--wait", "--wheel", str(wheel))
    assert wheel.name in said
    assert (code, said.startswith(f"{first}.2: submitted")) == (0, True)
    code, said = command("logs", f"{first}.x", "--address", head.address)
    assert (code, f"Did you mean '{first}" in said) == (2, True)


def test_cancelled_and_gone_on_with(head: Head, tmp_path: Path) -> None:
    """With a module and a secret of the user's own, which are there in the job, and nowhere else."""
    secret = secrets.token_hex(16)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "slow.py").write_text("import os, time\nassert os.environ['MY_TOKEN']\ntime.sleep(600)\n")
    recipe = small_recipe(
        tmp_path, shards=4, operators={"probe": {"model": "slow:make", "trainer": "in_process"}}
    )
    env = {"MY_TOKEN": secret, "ROWSIEVE_FACTORIES": "slow"}
    made = submit(recipe, head.address, key="k", working_dir=folder, env=env)
    deadline = time.monotonic() + PATIENCE
    while "ingest     done" not in made.handle.logs():
        assert time.monotonic() < deadline
        assert made.handle.status().state in (JobState.PENDING, JobState.RUNNING), made.handle.logs()
        time.sleep(0.5)
    code, said = command("cancel", made.handle.id, "--address", head.address)
    assert (code, "stopped" in said) == (0, True)
    assert made.handle.status().state == JobState.STOPPED
    code, said = command("cancel", made.handle.id, "--address", head.address)
    assert (code, "has already ended: stopped" in said) == (0, True)
    assert secret not in str(made.handle.status().metadata) + made.handle.logs()
    assert submit(recipe, head.address, key="k", working_dir=folder).handle.id == f"{made.handle.id}.2"


def test_the_commands_of_deploy_s_page(head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(engine.__file__).parents[1] / "deploy/README.md").read_text("utf-8")
    block = next(b for b in re.findall(r"```console\n(.*?)```", page, re.DOTALL) if "rowsieve submit" in b)
    (first, *lines) = [line.removeprefix("$ ") for line in block.splitlines()]
    assert first.split()[0] == "export"
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", head.address)
    monkeypatch.chdir(tmp_path)
    write_shards(tmp_path / "in", spurious_table(), 2)
    mapping = recipe_for(Path("/data/none"), Path("/data/none"), run={"executor": "ray"})
    Path("my-recipe.yaml").write_text(yaml.safe_dump(mapping))
    job, said = "", {}
    for line in lines:
        line = line.replace("/data/", f"{tmp_path}/").replace("http://head:8265", head.address)
        if line.startswith("rowsieve status my-recipe.yaml"):
            line += f" --set source.path={tmp_path}/in --set output.path={tmp_path}/out"
        name, *words = [job if word == "JOB" else word for word in shlex.split(line)][1:]
        code, said[name] = command(name, *words)
        assert code == 0, said[name]
        job = job or next(found for found in list_jobs(head.address) if found in said[name])
    assert current_version(tmp_path / "out") in said["logs"]
    assert "has already ended: succeeded" in said["cancel"]
