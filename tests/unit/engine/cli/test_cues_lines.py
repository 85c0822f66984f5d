"""The lines of ``rowsieve cues``: every column stays readable, however many classes there are."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

from engine.cli import cues
from engine.cli.app import app
from engine.cli.cues import accuracies
from engine.cli.safe_output import SafeConsole


def test_accuracies_of_two_classes_stand_in_their_order_and_of_more_the_lowest_has_a_name() -> None:
    assert accuracies({"low": 0.5, "high": None}) == "0.50 –"
    assert accuracies({"low": 0.5, "middle": None, "high": 0.25}) == "high 0.25"
    assert accuracies({"low": None, "middle": None, "high": None}) == "–"
    assert accuracies({"a" * 40: 0.1, "b": 0.2, "c": 0.3}) == "a" * 23 + "… 0.10"


def test_the_slice_is_named_in_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    by_class = dict.fromkeys("abcdef", 0.25)
    suspect = {
        "slice": "education = P",
        "reference": "education",
        "share": 0.4,
        "accuracy_inside": by_class,
        "accuracy_outside": by_class,
        "gain": 0.1,
        "cost": 0.02,
        "strength": 0.5,
        "answer": "open",
    }
    monkeypatch.setattr(cues, "console", Console(width=80))
    monkeypatch.setattr("operators.cues.output.verdict.verdict", lambda found: "weak")
    cues._show({"version": "v1", "part": 0.0, "suspects": [suspect], "recipe_section": ""})
    lines = capsys.readouterr().out.splitlines()
    (header,) = (line for line in lines if line.startswith("slice "))
    assert header.rstrip().endswith("answer")
    (first,) = (line for line in lines if line.startswith("education"))
    for cell in ("40.0%", "+0.100", "+0.020", "0.50", "open"):
        assert cell in first


@pytest.mark.parametrize("strength", [0.05, 0.5])
def test_nobody_is_urged_to_answer_weak_suspects(
    strength: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    by_class = dict.fromkeys("ab", 0.25)
    suspect = {"slice": "x is 1", "also": ["z"], "reference": "x", "share": 0.4, "answer": "open"}
    suspect |= {"accuracy_inside": by_class, "accuracy_outside": by_class, "gain": 0.3, "cost": 0.0}
    monkeypatch.setattr(cues, "console", Console(width=200))
    monkeypatch.setattr("operators.cues.output.verdict.verdict", lambda found: "said")
    found = {"version": "v1", "part": 0.0, "recipe_section": "operators:\n  cues: {}\n"}
    notes = ["96 rows of class 'ill' break it."]
    cues._show(found | {"suspects": [suspect | {"strength": strength}], "group_notes": notes})
    shown = capsys.readouterr().out
    assert notes[0] in shown.splitlines()
    (line,) = (line for line in shown.splitlines() if line.startswith("x is 1; also z"))
    assert line.split()[-1] == ("weak" if strength < 0.1 else "open")
    assert ("No suspect needs an answer." in shown) == (strength < 0.1)
    assert ("to be named under `spurious` or `legitimate`: x" in shown) == (strength > 0.1)
    balanced = suspect | {"strength": strength, "balanced": True}
    cues._show(found | {"suspects": [balanced], "part": 1.0})
    shown = capsys.readouterr().out
    assert "balanced (not answered)" in shown
    assert "# balanced, to be named under `legitimate` if it is honest: x" in shown
    assert "No suspect needs an answer." not in shown


def test_a_row_of_a_table_is_one_line_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is broken over three lines is not found by a search."""
    monkeypatch.delenv("COLUMNS", raising=False)
    with (tmp_path / "out").open("w") as file:
        table = Table("slice", *(f"column {n}" for n in range(8)), box=None)
        table.add_row("sched_dep_time between 1200 and 1930 or is missing", *("0.25 0.75" for _ in range(8)))
        SafeConsole(file=file).print(table)
    assert len((tmp_path / "out").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    "forged",
    [
        "[" * 1000,
        "5",
        "{}",
        json.dumps({"spurious": [], "legitimate": [], "suspects": 1}),
        json.dumps({"spurious": [], "legitimate": [], "suspects": [{"slice": {}}]}),
        json.dumps({"spurious": [], "legitimate": [], "suspects": [], "trade_off": {"points": [1]}}),
        json.dumps({"spurious": [{}], "legitimate": [], "suspects": []}),
    ],
)
def test_a_forged_list_of_suspects_is_named(
    forged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "store" / "f" / "state"
    state.mkdir(parents=True)
    (state / "suspects.json").write_text(forged)
    entry = {"name": "cues", "fingerprint": "f"}
    version = SimpleNamespace(output=tmp_path, name="v1", manifest={"operators": [entry]})
    monkeypatch.setattr("engine.training.data.version.open_version", lambda _: version)
    done = CliRunner().invoke(app, ["cues", "somewhere"])
    assert done.exit_code == 2, done.output
    shown = " ".join(done.output.split())
    for part in (str(tmp_path / "store"), "damaged or forged", "run the recipe again"):
        assert part in shown
