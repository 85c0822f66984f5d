"""Full disks, missing rights, little room: the run stops with one paragraph and goes on where it was."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import InputError
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from tests.data import small_recipe
from tests.faults.killing import committed, complete, recipe_in
from tests.faults.killing import published as bytes_of
from tests.faults.processes import finish, rowsieve, start
from tests.unit.engine.runs.test_run import content


def limited(arguments: list[str], log: str, limit: int) -> None:
    """The command line where no file may be longer than ``limit`` bytes: writing more is an error."""
    sys.dont_write_bytecode = True  # Python would leave modules cut off at the limit, for every later import
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    rowsieve(arguments, log)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [3000, pytest.param(6000, marks=pytest.mark.faults)])
def test_a_disk_that_takes_no_more(limit: int, tmp_path: Path) -> None:
    """A limit on the length of files stands for a full disk: some writes succeed, larger ones fail."""
    recipe = recipe_in(tmp_path)
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(recipe))
    process = start(limited, ["run", str(path)], str(tmp_path / "limited.log"), limit)
    code = finish(process)
    output_text = (tmp_path / "limited.log").read_text()
    assert code == 2, output_text
    assert "Traceback" not in output_text
    assert "too large" in output_text
    assert not (tmp_path / "out" / "CURRENT").exists()
    kept = len(committed(tmp_path / "out"))
    reference = bytes_of(run(Recipe.parse(recipe_in(tmp_path, "reference"))).path.parent.parent)
    assert complete(tmp_path, recipe, reference) == kept


@pytest.mark.faults
def test_no_room_for_a_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC at the n-th write of a record, wherever that is: exit 2, and the next run ends well."""
    import engine.storage.run_store

    recipe = small_recipe(tmp_path, shards=4)
    reference = content(run(small_recipe(tmp_path, shards=4, output="reference")).path)
    original = engine.storage.run_store.write_text
    left = [0]

    def full(path: Path, text: str) -> None:
        left[0] -= "runs" not in path.parts
        if left[0] == 0:
            raise OSError(28, "No space left on device", str(path))
        original(path, text)

    monkeypatch.setattr(engine.storage.run_store, "write_text", full)
    for count in (1, 4, 6):
        left[0] = count
        with pytest.raises(InputError, match=r"No space left.*continues from there"):
            run(recipe)
    left[0] = 0
    assert content(run(recipe).path) == reference


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become a user without rights")
def test_a_folder_without_the_right_to_write(tmp_path: Path) -> None:
    """As another user: exit 2 and a word on permissions; with the right given, it goes on."""
    folder = tmp_path / "out"
    folder.mkdir()
    tmp_path.chmod(0o755)
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from engine.storage.lease import hold_lease\n"
        "from engine.core.errors import InputError\n"
        "os.setuid(65534)\n"
        "try:\n"
        f"    hold_lease(Path({str(folder)!r}), 'other').__enter__()\n"
        "except InputError as error:\n"
        "    print(error); sys.exit(2)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "cannot be written: Permission denied" in done.stdout
    folder.chmod(0o777)
    for parent in list(folder.parents)[:5]:
        parent.chmod(parent.stat().st_mode | 0o111)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_the_drivers_memory_while_rows_grow_tenfold(tmp_path: Path) -> None:
    """On Ray, over shards of one length: the rows grow by a hundred MiB and more, the driver does not."""
    found: list[dict[str, Any]] = []
    for rows in (4_000, 40_000):
        folder = tmp_path / str(rows)
        folder.mkdir()
        command = [sys.executable, "-m", "tests.faults.growing", str(folder), str(rows), "500"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=420)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    stored = sum(path.stat().st_size for path in (tmp_path / "40000" / "out" / "store").rglob("*.parquet"))
    grown = found[1]["peak_mib"] - found[0]["peak_mib"]
    assert stored > 80 * 2**20
    assert grown < 32, found
