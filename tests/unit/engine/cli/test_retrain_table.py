"""The table of scores that ``rowsieve retrain`` prints."""

from __future__ import annotations

from rich.console import Console

from engine.cli.retrain import group_table
from engine.training.evaluation import GroupScore, GroupTable


def test_a_group_of_few_rows_is_told_from_the_worst() -> None:
    groups = (
        GroupScore("0", 92, 0.978, 0.92, 0.99, 300),
        GroupScore("1", 48, 0.875, 0.75, 0.94, 160, pooled=True),
        GroupScore("2", 0, None, 0.0, 1.0, 3, pooled=True),
    )
    table = GroupTable(groups, "0", 92, 0.978, 0.92, 0.99, 0.95, ("2",))
    console = Console(width=100)
    with console.capture() as shown:
        console.print(group_table(table))
    lines = shown.get().splitlines()
    assert lines[1].startswith("0 (worst)")
    assert lines[2].startswith("1 (few rows)")
    assert "no rows" in lines[3]
    assert "few" not in lines[3]
