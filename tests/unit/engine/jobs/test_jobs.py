"""Submitting without a cluster: which job a run is, what it takes along, what is said when it cannot go."""

import asyncio
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from engine.cli.jobs import _wait, address_for, reason, variables
from engine.core.errors import Exit, InfeasibleError, InputError, RowsieveError
from engine.jobs.connection import checked_address, connect, find_token
from engine.jobs.handle import JobHandle, JobInfo
from engine.jobs.key import JobState, attempt_of, choose_attempt, exit_code, given_key, planned_key
from engine.jobs.package import MAX_BYTES, RECIPE, collect
from engine.jobs.submission import submit
from engine.recipe.recipe import Recipe
from tests.unit.engine.jobs.test_paths import recipe_with

STATES = st.sampled_from(list(JobState))


@given(st.lists(STATES, max_size=5), st.booleans())
def test_one_run_is_one_job(states: list[JobState], again: bool) -> None:
    known = {"k" if n == 1 else f"k.{n}": state for n, state in enumerate(states, 1)}
    known |= {
        "k.1": JobState.RUNNING,
        "k2": JobState.RUNNING,
        "k.x": JobState.RUNNING,
        "other": JobState.RUNNING,
    }
    found = choose_attempt("k", known, again=again)
    last = states[-1] if states else None
    failed = last in (None, JobState.FAILED, JobState.STOPPED)
    assert found.new == (failed or (again and last == JobState.SUCCEEDED))
    assert attempt_of("k", found.id) == len(states) + found.new
    assert found.new == (found.id not in known)


def test_the_tenth_attempt_follows_the_ninth() -> None:
    known = {"k": JobState.FAILED} | {f"k.{n}": JobState.FAILED for n in range(2, 11)}
    assert choose_attempt("k", known).id == "k.11"


def test_another_output_is_another_run() -> None:
    assert planned_key("a", "v1", "/x") == planned_key("a", "v1", "/x") != planned_key("a", "v1", "/y")


def test_a_key_names_a_run_of_one_recipe() -> None:
    first = given_key("a", "2026-11-21", "name: a\nseed: 0\n")
    assert first == given_key("a", "2026-11-21", "name: a\nseed: 0\n")
    assert first.startswith("a-2026-11-21-")
    assert first != given_key("a", "2026-11-22", "name: a\nseed: 0\n")
    assert first != given_key("a", "2026-11-21", "name: a\nseed: 1\n")
    with pytest.raises(InputError, match="--key a/b"):
        given_key("a", "a/b", "")


def test_exit_codes_are_those_of_the_run() -> None:
    for code in set(Exit) - {Exit.DONE}:
        assert exit_code(JobState.FAILED, code) == code
    assert exit_code(JobState.SUCCEEDED, 0) == Exit.DONE
    assert exit_code(JobState.FAILED, 137) == exit_code(JobState.FAILED, None) == Exit.CRASH
    assert exit_code(JobState.FAILED, 0) == exit_code(JobState.STOPPED, None) == Exit.CRASH


@pytest.mark.parametrize("fault", [InputError("no such file."), OSError(5, "storage is away")])
def test_a_source_that_cannot_be_listed_here(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Recipe) -> None:
        raise fault

    monkeypatch.setattr("engine.jobs.submission.make_plan", refuse)
    with pytest.raises(InputError, match=r"(no such file|storage is away)\. A run is known by .* --key 2026"):
        submit(recipe_with("/mnt/in", "/mnt/out"), "127.0.0.1:1")
    with pytest.raises(InfeasibleError, match="No Ray cluster answers"):
        submit(recipe_with("/mnt/in", "/mnt/out"), "127.0.0.1:1", key="2026-11-21")


def test_a_working_directory_leaves_out_what_is_hidden_ours_or_made(tmp_path: Path) -> None:
    names = [
        "model.py",
        "sub/model.py",
        "sub/notes.txt",
        "big/data.bin",
        ".env",
        ".git/config",
        "engine/a.py",
    ]
    names += ["sub/.secret", "sub/__pycache__/model.pyc", "sub/engine/mine.py", RECIPE]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    found = collect(b"ours", code="installed", working_dir=tmp_path, excludes=["big", "sub/*.txt"])
    assert set(found.files) == {"model.py", "sub/model.py", "sub/engine/mine.py", RECIPE}
    assert found.files[RECIPE] == b"ours"


def test_a_link_to_a_folder_is_named(tmp_path: Path) -> None:
    """Its files would not be shipped."""
    (tmp_path / "real").mkdir()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "linked").symlink_to(tmp_path / "real")
    with pytest.raises(InputError, match=r"sub/linked is a link to a folder, .*real, .* --exclude"):
        collect(b"", code="installed", working_dir=tmp_path)
    assert collect(b"", code="installed", working_dir=tmp_path, excludes=["linked"]).files == {RECIPE: b""}


def test_the_same_content_makes_the_same_zip(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    bytes_of = []
    for n, moment in enumerate((0, 10**9)):
        for name in ("b.py", "a.py") if n else ("a.py", "b.py"):
            (folder / name).write_text("1")
            subprocess.run(["touch", "-d", f"@{moment}", folder / name], check=True)
        collect(b"r", code="source", working_dir=folder).write(tmp_path / "z.zip")
        bytes_of.append((tmp_path / "z.zip").read_bytes())
    assert bytes_of[0] == bytes_of[1]


def test_what_is_shipped_starts_by_itself(tmp_path: Path) -> None:
    collect(b"", code="source").write(tmp_path / "z.zip")
    with zipfile.ZipFile(tmp_path / "z.zip") as archive:
        archive.extractall(tmp_path / "there")
    code = "import engine.cli.app, engine.report, operators; print(engine.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "there", capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(tmp_path / "there" / "engine" / "__init__.py")
    assert (tmp_path / "there" / "engine" / "report" / "report.html.j2").exists()
    assert (tmp_path / "there" / "operators" / "cues" / "decision" / "expected_gain.json").exists()


def test_too_much_to_ship(tmp_path: Path) -> None:
    with (tmp_path / "huge.bin").open("wb") as handle:
        handle.truncate(MAX_BYTES + 1)
    with pytest.raises(InputError, match=r"100 MiB is the limit.*huge\.bin \(100\.0 MiB\).*--exclude"):
        collect(b"", code="installed", working_dir=tmp_path).write(tmp_path / "z.zip")


def test_wheels(tmp_path: Path) -> None:
    wheel = tmp_path / "rowsieve-1-py3-none-any.whl"
    for files, fault in (({"a.py": "1"}, "not a wheel of Rowsieve"), ({"engine/__init__.py": "1"}, None)):
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        if fault:
            with pytest.raises(InputError, match=fault):
                collect(b"", code=wheel)
    assert collect(b"r", code=wheel).files == {"engine/__init__.py": b"1", RECIPE: b"r"}
    wheel.write_bytes(b"PK")
    with pytest.raises(InputError, match="cannot be read as a wheel"):
        collect(b"", code=wheel)
    with pytest.raises(InputError, match="no such folder"):
        collect(b"", code="installed", working_dir=tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("head", "http://head:8265"),
        ("head:1234", "http://head:1234"),
        ("http://head:8265/", "http://head:8265"),
        ("https://ray.example.org/demo/", "https://ray.example.org/demo"),
        ("http://ray.example.org/demo/", "http://ray.example.org/demo"),
        ("http://head/", "http://head:8265"),
        ("http://[::1]", "http://[::1]:8265"),
        ("http://[::1]:1234", "http://[::1]:1234"),
    ],
)
def test_addresses(address: str, url: str) -> None:
    assert checked_address(address) == url


@pytest.mark.parametrize(
    "address",
    ["ray://head:10001", "http://", "head:port", "http://me:secret@head:1", "auto:0", "http://[::1"],
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(InputError, match="--address") as error:
        checked_address(address)
    assert "secret" not in str(error.value)


def test_nobody_there() -> None:
    with pytest.raises(InfeasibleError, match=r"No Ray cluster answers at http://127\.0\.0\.1:1: "):
        connect("127.0.0.1:1")


def test_where_the_token_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("of-this-machine\n")
    assert find_token() is None  # not sent to a cluster that nobody said it is for
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert find_token() == "of-this-machine"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "absent"))
    with pytest.raises(InputError, match="absent cannot be read"):
        find_token()
    (tmp_path / "absent").write_text("of-the-file")
    assert find_token() == "of-the-file"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of-the-variable")
    assert find_token() == "of-the-variable"
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert find_token() is None


def test_what_status_asks_a_cluster_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipe").touch()
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    assert address_for(Path("demo-v1-2.3")) is None
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://head:8265")
    assert address_for(Path("demo-v1-2.3")) == "http://head:8265"
    assert address_for(Path("absent.yaml")) is None
    assert address_for(tmp_path / "recipe") is None


def test_variables_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PASSWORD", "hunter2")
    assert variables(["A=1=2", "B="], ["SOME_PASSWORD"]) == {"A": "1=2", "B": "", "SOME_PASSWORD": "hunter2"}
    with pytest.raises(InputError, match="--env A: "):
        variables(["A"], [])
    with pytest.raises(InputError, match="--env-from NOT_THERE: "):
        variables([], ["NOT_THERE"])


class ScriptedClient:
    """A client whose job prints one line and then breaks off, or is left by the user."""

    def __init__(self, fault: BaseException, state: str) -> None:
        self._fault, self._state = fault, state

    def get_job_info(self, job: str) -> SimpleNamespace:
        status = SimpleNamespace(value=self._state)
        times = {"start_time": 1_000, "end_time": 2_000, "driver_exit_code": 3, "message": "", "metadata": {}}
        return SimpleNamespace(submission_id=job, status=status, **times)

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        yield f"{job} begins\n"
        raise self._fault


class TalkingClient(ScriptedClient):
    """A client whose job goes on printing until nobody listens."""

    left = False

    def __init__(self, lines: int) -> None:
        super().__init__(RuntimeError("WebSocket closed"), "RUNNING")
        self._lines = lines

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        try:
            for number in range(self._lines):
                yield f"{job} {number}\n"
                await asyncio.sleep(0)
        finally:
            self.left = True


def test_the_output_is_followed_in_a_notebook_too() -> None:
    """Its cells run within an event loop."""

    async def cell() -> None:
        assert list(JobHandle("http://head", "k", TalkingClient(3)).follow()) == ["k 0\n", "k 1\n", "k 2\n"]
        endless = TalkingClient(10**9)
        lines = JobHandle("http://head", "k", endless).follow()
        assert next(lines) == "k 0\n"
        lines.close()  # type: ignore[attr-defined]
        assert endless.left
        broken = JobHandle("http://head", "k", ScriptedClient(RuntimeError("WebSocket closed"), "RUNNING"))
        with pytest.raises(RowsieveError, match="http://head says: WebSocket closed"):
            list(broken.follow())

    asyncio.run(cell())


def test_a_line_that_breaks_is_no_end_of_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    handle = JobHandle("http://head", "k", ScriptedClient(RuntimeError("WebSocket closed"), "FAILED"))
    assert _wait(handle, sys.stdout).exit_code == Exit.BUDGET
    printed = capsys.readouterr()
    assert printed.out == "k begins\n"
    assert "was lost (The cluster at http://head says: WebSocket closed)" in printed.err
    assert "k: failed at 1970-01-01T00:00:02+00:00" in printed.err


def test_who_looks_away_is_told_that_the_job_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as found:
        _wait(JobHandle("http://head", "k", ScriptedClient(KeyboardInterrupt(), "RUNNING")), sys.stdout)
    assert found.value.exit_code == 130
    assert "k keeps running; to stop it: rowsieve cancel k --address http://head" in capsys.readouterr().err


def test_the_reason_is_the_run_s_last_error() -> None:
    def reason_in(message: str) -> str:
        return reason(JobInfo("k", JobState.FAILED, message, None, None, 2, {}))

    assert (
        reason_in("Job failed with exit code 2, last logs:\nplan\nerror: source.path: no.\n")
        == "error: source.path: no."
    )
    assert reason_in("Job supervisor actor died.\n") == "Job supervisor actor died."
    assert reason_in("") == "no reason is known"
