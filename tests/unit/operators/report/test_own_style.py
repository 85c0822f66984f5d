"""Settings of matplotlib in the working directory, which may be a folder of data, do not reach a figure."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import pytest
from matplotlib.figure import Figure

from engine import report
from engine.report import page
from engine.runs.compare import figure as compared
from engine.runs.compare.scores import Entry, Scores
from engine.training.evaluation import plots
from operators.report.figures import own_style


def test_a_file_of_settings_has_texts_set_by_no_latex(tmp_path: Path) -> None:
    """In a process of its own, as matplotlib reads the file when it is imported."""
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\ntext.latex.preamble: \\input{/etc/passwd}\n")
    code = (
        "import io, matplotlib\nfrom operators.report.figures import own_style\n"
        "from matplotlib.figure import Figure\nassert matplotlib.rcParams['text.usetex']\n"
        "with own_style():\n    figure = Figure()\n    figure.suptitle('x')\n"
        "    figure.savefig(io.BytesIO())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def latex(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings as a file of the working directory makes them; drawing a text with them raises."""
    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", True)

    def no_latex(*_: object, **__: object) -> None:
        raise RuntimeError("LaTeX was called")

    monkeypatch.setattr("matplotlib.texmanager.TexManager.make_dvi", no_latex)


def test_without_the_context_latex_is_called(latex: None, tmp_path: Path) -> None:
    drawn = Figure()
    drawn.suptitle("x")
    with pytest.raises(RuntimeError, match="LaTeX was called"):
        drawn.savefig(tmp_path / "x.png")
    with own_style():
        drawn = Figure()
        drawn.suptitle("x")
        drawn.savefig(tmp_path / "x.png")


def test_characters_that_the_font_lacks_are_no_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with own_style():
            drawn = Figure()
            drawn.suptitle("b\U0001f642ro")
            drawn.savefig(tmp_path / "x.png")


def test_a_report_is_drawn_with_own_settings(
    latex: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def render(*_: Any) -> str:
        return f"usetex: {matplotlib.rcParams['text.usetex']}"

    monkeypatch.setattr(page, "render", render)
    monkeypatch.setattr("engine.report.digest.report_digest", lambda *_: "d")
    plan: Any = type("P", (), {"output": tmp_path})
    report.write_report(plan, {}, {}, tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text() == "usetex: False"


def test_pictures_of_models_and_comparisons_are_drawn_with_own_settings(latex: None, tmp_path: Path) -> None:
    calibration = SimpleNamespace(confidence=[0.5], accuracy=[0.5], ece=None)
    evaluation: Any = SimpleNamespace(cvar=[], calibration=calibration, groupings={})
    assert len(plots.draw(evaluation, tmp_path, "x")) == 2
    scores = Scores(0.5, 0.1, 0.5, 0.5, 0.5, (1,), 0)
    compared.draw([Entry("m", scores, 1.0)], "x", tmp_path / "c.png")
    assert (tmp_path / "c.png").stat().st_size
