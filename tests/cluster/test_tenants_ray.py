"""Two tenants of one cluster: what a stranger's recipe and another job reach, and what they do not."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import Exit
from engine.jobs import submit
from engine.jobs.connection import connect
from engine.recipe.recipe import Recipe
from tests.cluster.head import TOKEN, Head, running_head
from tests.data import recipe_for, spurious_table, write_shards
from tests.faults.processes import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]
SECRET = "hunter2-of-tenant-a-0123456789"
OUTPUTS = "/*/tenant-b/*"
LOOK = """
import json, os, ray
from pathlib import Path

def found(content):
    return b"SECRET" in content

@ray.remote
def of_worker():
    return found(Path("/proc/self/environ").read_bytes()) or "SECRET" in str(dict(os.environ))

ray.init()
processes = []
for place in Path("/proc").glob("[0-9]*/environ"):
    try:
        processes.append(found(place.read_bytes()))
    except OSError:
        pass
print(json.dumps({
    "driver": "SECRET" in str(dict(os.environ)),
    "worker": ray.get(of_worker.remote()),
    "processes": any(processes),
}))
"""
"""Another job on the cluster, by whoever holds its token: it runs any code, as the same user."""


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with running_head({"ROWSIEVE_OUTPUTS": OUTPUTS}, umask=0o077) as found:
        yield found


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def look(head: Head) -> dict[str, Any]:
    """Run ``LOOK`` as a job and return what it has found."""
    client = connect(head.address)
    program = LOOK.replace("SECRET", SECRET[:-1])  # so that the program itself does not hold the secret
    job = client.submit_job(entrypoint=f"{sys.executable} - <<'END'\n{program}\nEND")
    until(lambda: client.get_job_status(job).is_terminal(), every=0.2)
    (line,) = (line for line in client.get_job_logs(job).splitlines() if line.startswith('{"driver"'))
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_recipe_writes_to_no_other_tenants_output(head: Head, tmp_path: Path) -> None:
    """Whoever submits is not bound by the policy of the cluster's administrator; the job is."""
    write_shards(tmp_path / "tenant-b" / "data", spurious_table(), 2)
    theirs = tmp_path / "tenant-a" / "out"
    for output, code in ((theirs, Exit.BAD_INPUT), (tmp_path / "tenant-b" / "out", Exit.DONE)):
        recipe = Recipe.parse(recipe_for(tmp_path / "tenant-b" / "data", output))
        done = submit(recipe, head.address, shared_files=True).handle
        assert done.wait().exit_code == code, done.logs()
        assert ("cannot be written to" in done.logs()) == (code != Exit.DONE)
    assert not theirs.exists()


def test_the_secret_of_a_job_is_in_no_other_job_and_in_no_log(head: Head, tmp_path: Path) -> None:
    """Processes of the same user may read each other's environment: only another user helps."""
    folder = tmp_path / "tenant-b"
    write_shards(folder / "data", spurious_table(), 2)
    (folder / "code").mkdir()
    (folder / "code" / "slow.py").write_text("import time\ntime.sleep(600)\n")
    probe = {"model": "slow:make", "trainer": "in_process"}
    recipe = Recipe.parse(recipe_for(folder / "data", folder / "out", operators={"probe": probe}))
    env = {"SHOP_PASSWORD": SECRET, "ROWSIEVE_FACTORIES": "slow"}
    mine = submit(
        recipe, head.address, key="k", working_dir=folder / "code", shared_files=True, env=env
    ).handle
    until(lambda: "ingest     done" in mine.logs(), every=0.5)
    found = look(head)
    assert (found["driver"], found["worker"]) == (False, False)
    assert found["processes"]
    assert SECRET not in mine.logs()
    mine.cancel()
    logs = [path for path in (head.folder / "ray").glob("session_2*/logs/**/*") if path.is_file()]
    with_secret = [path for path in logs if SECRET.encode() in path.read_bytes()]
    assert {path.name for path in with_secret} <= {"runtime_env_agent.log"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in with_secret)
