"""The table of scores that ``rowsieve retrain`` prints."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from engine.cli import cues
from engine.cli.retrain import _show_scores, group_table, loss_warning
from engine.core.errors import InputError
from engine.training.evaluation.by_group import GroupScore, GroupTable


def printed(groups: tuple[GroupScore, ...], **more: Any) -> list[str]:
    """Return the lines of the table of these groups, of which the first is the worst."""
    table = GroupTable(
        groups=groups,
        worst_group="0",
        worst_group_rows=92,
        worst_group_accuracy=0.978,
        worst_group_low=0.92,
        worst_group_high=0.99,
        average=0.95,
        **more,
    )
    console = Console(width=100)
    with console.capture() as shown:
        console.print(group_table(table))
    return shown.get().splitlines()


def test_a_group_of_few_rows_is_told_from_the_worst() -> None:
    groups = (
        GroupScore("0", 92, 0.978, 0.92, 0.99, 300),
        GroupScore("1", 48, 0.875, 0.75, 0.94, 160, pooled=True),
        GroupScore("2", 0, None, 0.0, 1.0, 3, pooled=True),
    )
    lines = printed(groups, without_rows=("2",))
    assert lines[1].startswith("0 (worst)")
    assert lines[2].startswith("1 (few rows)")
    assert "no rows" in lines[3]
    assert "few" not in lines[3]


def test_a_group_of_wrong_labels_is_told_from_the_worst() -> None:
    groups = (GroupScore("0", 92, 0.978, 0.92, 0.99, 300), GroupScore("1", 80, 0.3, 0.2, 0.4, 160))
    lines = printed(groups, without_rows=(), wrong_labels={"0": 0.1, "1": 0.95})
    assert [line[:18].rstrip() for line in lines[1:3]] == ["0 (worst)", "1 (wrong labels)"]


def _trained(accuracy: float, trainer: str = "gdro") -> Any:
    model = SimpleNamespace(about={"trainer": trainer})
    evaluations = {"validation": SimpleNamespace(accuracy=accuracy)}
    return SimpleNamespace(result=SimpleNamespace(version=None, model=model, evaluations=evaluations))


def test_a_model_that_gives_up_most_rows_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Group DRO on groups that hold the errors of a classifier can end near chance."""
    points = [{"strength": 1.0, "mean_accuracy": 0.9}, {"strength": 1.64, "mean_accuracy": 0.88}]
    curve = {"published_strength": 1.64, "points": points}
    monkeypatch.setattr(cues, "read_cues", lambda version: {"trade_off": curve})
    assert "accuracy 0.566 is far below 0.880" in loss_warning(_trained(0.566))
    assert "Compare it with --trainer erm" in loss_warning(_trained(0.566))
    assert "trained too little" in loss_warning(_trained(0.566, "erm_class_balanced"))
    assert not loss_warning(_trained(0.82))
    monkeypatch.setattr(cues, "read_cues", lambda version: {})
    assert not loss_warning(_trained(0.5))


def test_a_version_without_cues_has_no_such_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(version: Any) -> dict[str, Any]:
        raise InputError("made without cues")

    monkeypatch.setattr(cues, "read_cues", fail)
    assert not loss_warning(_trained(0.5))


@pytest.mark.parametrize(
    "forged",
    [
        "[]",
        "{}",
        "[" * 1000,
        '{"spurious": [], "legitimate": [], "trade_off": {"published_strength": 1, "points": [{}]}}',
        '{"spurious": [], "legitimate": [], "trade_off": {"published_strength": "x", "points": []}}',
    ],
)
def test_a_forged_list_of_suspects_ends_no_training(forged: str, tmp_path: Path) -> None:
    """The model is there by then, and the list only says whether it is worse than it might be."""
    state = tmp_path / "store" / "f" / "state"
    state.mkdir(parents=True)
    (state / "suspects.json").write_text(forged)
    trained = _trained(0.5)
    entry = {"name": "cues", "fingerprint": "f"}
    trained.result.version = SimpleNamespace(output=tmp_path, name="v1", manifest={"operators": [entry]})
    shown = loss_warning(trained)
    assert str(tmp_path / "store") in shown
    assert "damaged or forged" in shown


def test_a_model_without_rows_to_score_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _show_scores(SimpleNamespace(evaluations={}, regressions={}), None)  # type: ignore[arg-type]
    assert "There are no validation or test rows" in capsys.readouterr().out
