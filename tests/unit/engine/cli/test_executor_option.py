"""``--executor``: every command that has it refuses an unknown name with the same message."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from engine.cli.app import app


@pytest.mark.parametrize(
    "command",
    [
        ("export", "v0", "--to", "delta:table"),
        ("predict", "models:/m@champion", "rows.csv", "predictions"),
        ("retrain", "--dataset", "out"),
    ],
    ids=lambda command: command[0],
)
def test_an_unknown_executor_is_refused_before_anything_is_read(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*command, "--executor", "spark"])
    assert result.exit_code == 2
    assert result.stderr.splitlines() == ["error: --executor spark: give auto, ray or local."]
