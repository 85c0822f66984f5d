"""Sections that operators contribute: any operator has one in the page, and the engine knows none by name."""

from __future__ import annotations

import ast
import os
import re
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import adjusted_rand_score

from engine.report import write_report
from engine.runs.runner import run
from operators import registry
from operators.base import Apply, Context, Executor, Operator, OperatorParams, ReportContext
from operators.report import (
    ExampleRows,
    Finding,
    Notice,
    PointMap,
    ReportFigure,
    ReportSection,
    ReportTable,
)
from tests.data import small_recipe
from tests.unit.report_world import MANIFEST, cells, html_of, made, plan_over

ROOT = Path(__file__).resolve().parents[4]
EVIL = "<img src=x onerror=alert(1)>"


class Lengths(Operator[OperatorParams]):
    """Stands for an operator of another package: measures the length of each row's features."""

    name = "lengths"
    version = 1
    Params: ClassVar[type[OperatorParams]] = OperatorParams
    requires = ("x",)
    adds = (pa.field("length", pa.float32()),)

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        (context.state / "note.txt").write_text("kept by fit", "utf-8")
        return {"longest": 7.0}

    def open(self, context: Context) -> Apply:
        return lambda table: pa.table({"length": pa.array([1.0] * table.num_rows, pa.float32())})

    def report_section(self, context: ReportContext) -> ReportSection:
        from matplotlib.figure import Figure

        note = (context.state / "note.txt").read_text("utf-8")
        sample = context.sample(["length", "no such column"])
        rows = [(context.classes[y], stat.rows, stat.accuracy) for (y,), stat in context.counts("y").items()]
        first = sample.column("row_id").to_pylist()[:3]
        place = context.locate(first)[1]
        points = PointMap("Length space", 0, np.array(first[:1]), np.zeros((1, 2)))
        figure = Figure(figsize=(1, 1))
        figure.add_subplot().plot([0, 1])
        return ReportSection(
            f"Lengths {EVIL}",
            [
                "`a < 1` is short.",
                f"{note}; longest {context.metrics['longest']}; {sorted(sample.column_names)}",
                Notice("Lengths need attention."),
                ReportTable(("class", "rows", "accuracy"), rows, "Rows by class."),
                ReportFigure(figure, "A line", "Figure of lengths", EVIL),
                ExampleRows("The first rows", first),
                f"row {place.row_id} is row {place.row} of {Path(place.path).name}",
            ],
            [Finding("Lengths of `a` differ."), Finding("Lengths are wrong.", "warning")],
            [points],
        )


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator is registered as that of an installed package is, by its entry point."""
    point = EntryPoint("lengths", f"{__name__}:Lengths", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "_plugins", lambda: (point,))


@pytest.mark.usefixtures("installed")
def test_an_operator_of_another_package_has_a_section(tmp_path: Path) -> None:
    operators = {"probe": {"trainer": "in_process"}, "gradients": {}, "groups": {}, "lengths": {}}
    result = run(small_recipe(tmp_path, operators=operators, report={"enabled": True}))
    assert result.report is not None
    html = result.report.read_text("utf-8")
    head, tail = html.split("What to do next")
    assert "<p>Lengths of <code>a</code> differ.</p>" in head
    assert '<p class="note">Lengths are wrong.</p>' in head
    section = tail[tail.index("<h2>Lengths") : tail.index("<h2>Computing time")]
    assert "(operator lengths)" in section
    columns = ["group", "length", "represents", "row_id", "y"]
    assert f"kept by fit; longest 7.0; {columns}".replace("'", "&#39;") in section
    assert "<p><code>a &lt; 1</code> is short.</p>" in section
    assert '<p class="note">Lengths need attention.</p>' in section
    table = [row for row in cells(section) if len(row) == 3]
    assert table[0] == ["class", "rows", "accuracy"]
    assert sum(int(row[1]) for row in table[1:]) == result.manifest["rows"]
    figure = r'<h4>Figure of lengths</h4>\s*<img src="data:image/png;base64,[^"]+" alt="A line">'
    assert re.search(figure, section)
    assert "<h3>The first rows</h3>" in section
    assert re.search(r"row \d+ is row \d+ of [\w.-]+</p>", section)
    assert EVIL not in html
    assert "Maps of the rows of class" in html


def test_a_section_that_fails_is_said_and_ends_nothing(tmp_path: Path) -> None:
    class Broken(Lengths):
        def __init__(self, *content: Any, maps: list[PointMap] | None = None) -> None:
            super().__init__(OperatorParams())
            self.content, self.maps = content, maps or []

        def report_section(self, context: ReportContext) -> ReportSection:
            if not self.content:
                raise RuntimeError(f"no luck {EVIL}")
            return ReportSection("Never seen", self.content, point_maps=self.maps)

    source, columns = made()
    map_of_nothing = PointMap("nothing", 0, np.array([3]), np.zeros((2, 2)))
    described: dict[str, Operator[Any]] = {
        "probe": Broken(),
        "groups": Broken(ReportTable(("one", "two"), [(1,)])),
        "weights": Broken(ExampleRows("none", [90])),
        "split": Broken("text", maps=[map_of_nothing]),
        "outliers": Broken(ReportFigure(object(), "no figure")),  # type: ignore[arg-type]
    }
    html = html_of(plan_over(tmp_path, source, columns, described=described))
    assert "This section could not be made: RuntimeError: no luck &lt;img" in html
    assert "a table of 2 columns has a row of 1 cells" in html
    assert "there is no row 90; rows are 0 to 89" in html
    assert "a point map of 1 rows has points of shape (2, 2)" in html
    assert html.count("This section could not be made") == 5
    assert "Never seen" not in html
    assert "<h2>Groups</h2>" in html


def test_rows_that_were_set_aside_can_be_shown(tmp_path: Path) -> None:
    class Showing(Lengths):
        def report_section(self, context: ReportContext) -> ReportSection:
            return ReportSection("Set aside", [ExampleRows("Rows without a label", [4, 5])])

    source, columns = made()
    html = html_of(plan_over(tmp_path, source, columns, described={"weights": Showing(OperatorParams())}))
    rows = cells(html[html.index("Rows without a label") :])
    assert [row[:2] for row in rows[1:3]] == [["4", "not valid"], ["5", "not valid"]]


def test_sections_stand_in_the_order_they_ask_for(tmp_path: Path) -> None:
    class Ordered(Lengths):
        def __init__(self, title: str, order: int) -> None:
            super().__init__(OperatorParams())
            self.section = ReportSection(title, ["text"], order=order)

        def report_section(self, context: ReportContext) -> ReportSection:
            return self.section

    source, columns = made()
    described: dict[str, Operator[Any]] = {
        "ingest": Ordered("last", 60),
        "probe": Ordered("second", 50),
        "groups": Ordered("third", 50),
        "split": Ordered("first", 10),
    }
    html = html_of(plan_over(tmp_path, source, columns, described=described))
    titles = re.findall(r"<h2>(\w+) <span class=\"soft\">\(operator", html)
    assert titles == ["first", "second", "third", "last"]


def names_in(tree: ast.AST, names: set[str], folders: set[str]) -> list[tuple[int, str]]:
    """Lines that import from an operator's folder, or have a string with an operator's name."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[:1] == ["operators"]:
            if folders.intersection((node.module or "").split(".")):
                found.append((node.lineno, str(node.module)))
        elif isinstance(node, ast.Constant):
            words = {*re.findall(r"operators\.(\w+)", str(node.value)), str(node.value)}
            found += [(node.lineno, str(node.value))] if words & names else []
    return found


def test_the_report_knows_no_operator_by_name() -> None:
    folders = {path.parent.name for path in (ROOT / "operators").glob("*/params.py")}
    assert {"grasp", "probe", "splits", "weights"} <= folders
    # `groups` and `split` are also names of the page's own variables and of published columns.
    names = {*registry.BUILT_IN, "grasp", "feasp"} - {"groups", "split"}
    faults = {}
    for path in (ROOT / "engine" / "report").glob("*.py"):
        faults[path.name] = names_in(ast.parse(path.read_text("utf-8")), names, folders)
    text = (ROOT / "engine" / "report" / "report.html.j2").read_text("utf-8")
    assert {name: found for name, found in faults.items() if found} == {}
    assert re.findall(r"\b(probe|grasp|eos|dckm|dbscan)\b", text, re.IGNORECASE) == []
    assert names_in(ast.parse("plan.fingerprint_of('probe')"), names, folders) == [(1, "probe")]
    assert names_in(ast.parse("from operators.grasp.state import x"), names, folders)


def test_labelings_are_scored_without_showing_the_truth(tmp_path: Path) -> None:
    source, columns = made()
    seen: dict[tuple[int, str], float] = {}

    class Scoring(Lengths):
        def report_section(self, context: ReportContext) -> None:  # type: ignore[override]
            group = np.array([-1 if g is None else g for g in columns["group"]])
            seen.update(
                context.agreement_with_truth(
                    lambda y, rows: [("groups", group[rows]), ("parity", rows % 2), ("whole", rows * 0)]
                )
            )
            with pytest.raises(ValueError, match="not counted by 'true_group'"):
                context.counts("true_group")
            assert "really" not in context.sample(["really"]).column_names

    described: dict[str, Operator[Any]] = {"groups": Scoring(OperatorParams())}
    html_of(plan_over(tmp_path, source, columns, truth={"group": "really"}, described=described))
    y, true = np.array(columns["y"], object), np.array(source.column("really").to_pylist())
    for label in (0, 1):
        rows = np.flatnonzero(y == label)
        assert seen[label, "groups"] == 1
        assert seen[label, "whole"] == 0
        assert seen[label, "parity"] == pytest.approx(adjusted_rand_score(true[rows], rows % 2))


def test_a_report_is_drawn_again_only_if_its_inputs_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, columns = made()
    drawn = []
    monkeypatch.setattr("engine.report.page.render", lambda *arguments: drawn.append(arguments) or "<html>")
    plan = plan_over(tmp_path / "a", source, columns)
    other = plan.recipe.report.model_copy(update={"title": "Other"})
    path = plan.output / "reports" / "v123.html"
    steps: list[tuple[Any, dict[str, Any], dict[str, dict[str, float]]]] = [
        (plan, MANIFEST, {}),
        (plan, {**MANIFEST, "content": "other"}, {}),
        (plan, MANIFEST, {"groups": {"found": 4.0}}),
        (replace(plan, recipe=plan.recipe.model_copy(update={"report": other})), MANIFEST, {}),
    ]
    for n, (one, manifest, metrics) in enumerate(steps, 1):
        for _ in range(2):
            assert write_report(one, manifest, metrics, path) == path
            assert len(drawn) == n
    path.unlink()
    write_report(plan, MANIFEST, {}, path)
    assert path.read_text("utf-8") == "<html>"


@pytest.mark.parametrize("forgery", ["pipe", "endless", "bytes", "long"])
def test_a_forged_digest_is_replaced(forgery: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is drawn again; a pipe or `/dev/zero` in its place held up the run for ever."""
    monkeypatch.setattr("engine.report.page.render", lambda *_: "<html>")
    plan = plan_over(tmp_path / "a", *made())
    path = plan.output / "reports" / "v123.html"
    write_report(plan, MANIFEST, {}, path)
    mark = path.with_suffix(".digest")
    right = mark.read_bytes()
    mark.unlink()
    if forgery == "pipe":
        os.mkfifo(mark)
    elif forgery == "endless":
        mark.symlink_to("/dev/zero")
    else:
        mark.write_bytes(b"\xff" if forgery == "bytes" else right + b" " * 2**20)
    path.write_text("forged")
    write_report(plan, MANIFEST, {}, path)
    assert path.read_text() == "<html>"
    assert not mark.is_symlink()
    assert mark.read_bytes() == right
