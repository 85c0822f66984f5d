"""One writer for each output: who has it, who may take it over, and what a late riser can still do."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from engine.core.errors import LockedError
from engine.core.output_layout import POINTER
from engine.publish.publisher import make_current
from engine.storage.lease import Lease, has_active_writer, hold_lease, newest_token, read_holder
from tests.data import recipe_for, spurious_table, write_shards
from tests.faults.processes import finish, run_recipe, start, until
from tests.faults.racing import winners

SHORT = 0.4


def hold_and_point(folder: str) -> None:
    """Take the lease, wait until told, then publish; exit 5 if fenced off."""
    place = Path(folder)
    try:
        with hold_lease(place, "old", stale_seconds=SHORT) as lease:
            (place / "ready").touch()
            until((place / "go").exists)
            make_current(place, "old", lease)
    except LockedError:
        os._exit(5)


def pretend(folder: Path, **changes: object) -> None:
    """Change what the newest lease file says, as if somebody else had written it."""
    file = Lease(folder, newest_token(folder)).file
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_the_second_writer_hears_who_has_it(tmp_path: Path) -> None:
    with hold_lease(tmp_path, "weekly") as lease:
        assert has_active_writer(tmp_path)
        with pytest.raises(LockedError, match=rf"weekly \(process {os.getpid()} on .*since 20"):  # noqa: SIM117
            with hold_lease(tmp_path, "other"):
                pass
        lease.check()
    assert not has_active_writer(tmp_path)
    with hold_lease(tmp_path, "other") as second:
        assert second.token > lease.token
        with pytest.raises(LockedError):
            lease.check()


def test_of_many_at_once_one_wins(tmp_path: Path) -> None:
    for _ in range(20):
        assert winners(tmp_path, 8) == 1


def test_a_killed_writer_is_followed_at_once(tmp_path: Path) -> None:
    process = start(hold_and_point, str(tmp_path))
    until((tmp_path / "ready").exists)
    os.kill(process.pid or 0, signal.SIGKILL)
    assert finish(process) == -signal.SIGKILL
    assert not has_active_writer(tmp_path)
    with hold_lease(tmp_path, "new") as lease:
        assert lease.token == 2


@pytest.mark.parametrize("age", [0.0, 61.0])
def test_another_host_is_judged_by_its_heartbeat_alone(age: float, tmp_path: Path) -> None:
    """A lease file of another kernel: its process id and its lock say nothing here."""
    with hold_lease(tmp_path, "far"):
        pass
    pretend(tmp_path, kernel="elsewhere", host="far-away", released=False, pid=os.getpid())
    file = Lease(tmp_path, newest_token(tmp_path)).file
    os.utime(file, (time.time() - age,) * 2)
    assert has_active_writer(tmp_path) == (age == 0)
    if age:
        with hold_lease(tmp_path, "near") as lease:
            assert lease.token == 2
        return
    with pytest.raises(LockedError, match="on far-away"), hold_lease(tmp_path, "near"):
        pass


def test_an_unreadable_lease_is_waited_for_and_then_taken(tmp_path: Path) -> None:
    (tmp_path / ".lease").mkdir()
    file = Lease(tmp_path, 4).file
    file.write_text("{")
    with pytest.raises(LockedError, match="another run"), hold_lease(tmp_path, "new"):
        pass
    os.utime(file, (0, 0))
    with hold_lease(tmp_path, "new") as lease:
        assert lease.token == 5


def test_a_writer_that_was_stopped_cannot_publish(tmp_path: Path) -> None:
    process = start(hold_and_point, str(tmp_path))
    until((tmp_path / "ready").exists)
    os.kill(process.pid or 0, signal.SIGSTOP)
    with pytest.raises(LockedError, match="old"), hold_lease(tmp_path, "new"):
        pass
    time.sleep(2 * SHORT)
    with hold_lease(tmp_path, "new") as lease:
        make_current(tmp_path, "new", lease)
        os.kill(process.pid or 0, signal.SIGCONT)
        (tmp_path / "go").touch()
        assert finish(process) == 5
    assert (tmp_path / POINTER).read_text() == "new\n"
    holder = read_holder(tmp_path)
    assert holder is not None
    assert holder.who == "new"


def test_a_writer_that_slept_between_check_and_rename_cannot_publish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hold_lease(tmp_path, "old") as old:
        staged = old.stage("CURRENT")
        staged.write_text("old\n")
        pretend(tmp_path, released=True)
        with hold_lease(tmp_path, "new") as new:
            make_current(tmp_path, "new", new)
            monkeypatch.setattr(Lease, "check", lambda self: None)
            with pytest.raises(LockedError, match="taken over by new"):
                old.rename(staged, tmp_path / "CURRENT")
    assert (tmp_path / "CURRENT").read_text() == "new\n"


@pytest.mark.slow
def test_a_whole_run_that_was_stopped_ends_with_5_and_publishes_nothing(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", spurious_table())
    old = recipe_for(tmp_path / "data", tmp_path / "out", run={"lease_seconds": SHORT})
    new = {**old, "name": "newer", "operators": {**old["operators"], "groups": {"min_samples": [7]}}}
    process = run_recipe(tmp_path, old, name="old")
    assert until(lambda: list(tmp_path.glob("out/.lease/*.d/v*/data/*.parquet")), process)
    os.kill(process.pid or 0, signal.SIGSTOP)
    assert not (tmp_path / "out" / "CURRENT").exists()
    assert not list(tmp_path.glob("out/versions/*/manifest.json"))
    assert finish(run_recipe(tmp_path, new, name="early")) in (0, 5)
    time.sleep(2 * SHORT)
    assert finish(run_recipe(tmp_path, new, name="new")) == 0
    current = (tmp_path / "out" / "CURRENT").read_text()
    os.kill(process.pid or 0, signal.SIGCONT)
    assert finish(process) == 5
    assert "taken over by newer" in (tmp_path / "old.log").read_text()
    assert (tmp_path / "out" / "CURRENT").read_text() == current
    assert [path.name + "\n" for path in tmp_path.glob("out/versions/v*")] == [current]
    assert finish(run_recipe(tmp_path, old, name="again")) == 0
    assert finish(run_recipe(tmp_path, old, name="once more")) == 0
    assert "already published" in (tmp_path / "once more.log").read_text()
