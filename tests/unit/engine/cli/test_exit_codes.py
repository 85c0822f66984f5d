"""Every exit code is documented, and `rowsieve run` ends with it."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from engine.cli.app import app
from engine.cli.common import INTERRUPTED, TERMINATED
from engine.core.errors import Exit, InfeasibleError
from engine.runs import runner
from engine.storage.lease import hold_lease
from tests.data import free_port, recipe_for, spurious_table, write_shards

README = Path(__file__).resolve().parents[4] / "engine" / "README.md"


def test_the_page_has_every_code() -> None:
    section = README.read_text("utf-8").partition("## Exit codes")[2].partition("\n## ")[0]
    codes = {
        int(code)
        for cell in re.findall(r"^\| ([\d, ]+) \|", section, re.MULTILINE)
        for code in cell.split(",")
    }
    assert codes == {*map(int, Exit), INTERRUPTED, TERMINATED}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run a recipe of a small source by the command line; sections are merged into it."""
    monkeypatch.chdir(tmp_path)
    write_shards(tmp_path / "data", spurious_table(), 1)

    def call(**sections: Any) -> Any:
        Path("r.yaml").write_text(yaml.safe_dump(recipe_for(Path("data"), Path("out"), **sections)))
        return CliRunner().invoke(app, ["run", "r.yaml", "--json"])

    return call


def test_what_cannot_be_used(run: Callable[..., Any]) -> None:
    done = run(source={"label": "lable"})
    assert (done.exit_code, done.stdout) == (Exit.BAD_INPUT, "")


@pytest.mark.parametrize(
    ("sections", "begins"),
    [
        ({"source": {"label": "lable"}}, "source.label: "),
        ({"operators": {"groups": {"method": "cue"}}}, "operators.groups.method: "),
        ({"operators": {"weigths": {}}}, "operators.weigths: "),
        ({"operators": {"split": {"validation": 2}}}, "operators.split.validation: "),
        ({"operators": {"cues": {"spurious": ["lable"]}}}, "operators.cues.spurious: "),
    ],
)
def test_errors_about_keys_begin_with_the_recipes_file(
    run: Callable[..., Any], sections: dict[str, Any], begins: str
) -> None:
    for command in ("run", "validate"):
        done = run(**sections) if command == "run" else CliRunner().invoke(app, ["validate", "r.yaml"])
        assert done.exit_code == Exit.BAD_INPUT
        assert done.stderr.startswith(f"error: r.yaml: {begins}")


def test_the_report_is_said_to_be_written_by_the_run() -> None:
    done = CliRunner().invoke(app, ["report", "out"])
    assert done.exit_code == Exit.BAD_INPUT
    assert "`rowsieve run` writes the report" in done.stderr


def test_too_many_faulty_rows(run: Callable[..., Any]) -> None:
    table = spurious_table()
    write_shards(
        Path("data"), table.set_column(0, "a", [[*table["a"].to_pylist()[::2], *[float("inf")] * 120]]), 1
    )
    done = run(source={"on_error": "quarantine", "max_error_rate": 0.1})
    assert (done.exit_code, done.stdout) == (Exit.BUDGET, "")


def test_another_run_is_writing(run: Callable[..., Any]) -> None:
    with hold_lease(Path("out"), "another run"):
        done = run()
    assert (done.exit_code, done.stdout) == (Exit.LOCKED, "")


def test_no_cluster_answers(run: Callable[..., Any]) -> None:
    run(source={"label": "lable"})  # writes the recipe
    address = f"http://127.0.0.1:{free_port()}"
    done = CliRunner().invoke(
        app, ["submit", "r.yaml", "--key", "x", "--shared-files", "--address", address, "--json"]
    )
    assert (done.exit_code, done.stdout) == (Exit.INFEASIBLE, "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ZeroDivisionError("x"), Exit.CRASH),
        (PermissionError(errno.EACCES, "permission denied", "s3://bucket/out"), Exit.BAD_INPUT),
        (OSError(errno.ENOSPC, "No space left on device", "out/x"), Exit.BAD_INPUT),
        (OSError("x"), Exit.CRASH),
        (InfeasibleError("x"), Exit.INFEASIBLE),
        (KeyboardInterrupt(), INTERRUPTED),
    ],
)
def test_other_ends(
    error: BaseException, code: int, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(runner, "run", fail)
    done = run()
    assert (done.exit_code, done.stdout) == (code, "")


def test_sigterm(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "run", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    assert run().exit_code == TERMINATED
