"""The buttons of the report that compose a recipe section, in a real browser."""

from __future__ import annotations

import html as texts
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import rowsieve
from engine.report.templates import template
from operators.cues.named.recipe_text import yaml_reference
from operators.report import RecipeChoice, RecipeChoices
from tests.faults.test_browser import BROWSER, EVIL, opened

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="needs chromium or google-chrome")]

CLICKS = """<script>
for (const [value, option] of CHOSEN) {
  for (const item of document.querySelectorAll("p.choice"))
    if (item.dataset.value === value) item.querySelector(`button[data-option=${option}]`).click();
}
</script>"""


def page(references: list[Any], chosen: list[tuple[Any, str]], today: dict[int, str]) -> str:
    """A page with the buttons, some of which are pressed once it is shown."""
    items = [
        RecipeChoice(str(ref), yaml_reference(ref), today.get(i, "")) for i, ref in enumerate(references)
    ]
    choices = RecipeChoices(("operators", "cues"), ("spurious", "legitimate"), items)
    module = template("choices.html.j2").module
    pressed = [[yaml_reference(ref), option] for ref, option in chosen]
    # A script ends at its first "</script>", so "<" is escaped in its text.
    clicks = CLICKS.replace("CHOSEN", json.dumps(pressed).replace("<", "\\u003c"))
    return f"<html><body>{module.choices(choices)}{module.choices_script()}{clicks}</body></html>"  # type: ignore[attr-defined]


def section(shown: str) -> Any:
    """The composed recipe section, read as YAML."""
    found = re.search(r'<pre class="recipe"[^>]*>(.*?)</pre>', shown, re.DOTALL)
    assert found is not None
    return yaml.safe_load(texts.unescape(found[1]))["operators"]["cues"]


def test_buttons_compose_the_section(tmp_path: Path) -> None:
    words = {"column": "review text", "words": ["alvora", "don't", "no"]}
    references = ["background", "image[48]", {"column": "PAY_0", "cut": 1.5}, ["a", "b"], words]
    assert section(opened(page(references, [], {}), tmp_path)) == {}
    chosen = [("background", "spurious"), ("image[48]", "legitimate"), (references[2], "spurious")]
    found = section(opened(page(references, [*chosen, (words, "spurious")], {3: "spurious"}), tmp_path))
    assert found["spurious"] == ["background", references[2], ["a", "b"], words]
    assert found["legitimate"] == ["image[48]"]


def test_a_second_press_takes_an_answer_back_and_the_other_button_changes_it(tmp_path: Path) -> None:
    chosen = [("a", "spurious"), ("b", "spurious"), ("b", "legitimate")]
    found = section(opened(page(["a", "b"], chosen, {0: "spurious"}), tmp_path))
    assert found == {"legitimate": ["b"]}


def test_names_with_scripts_are_shown_as_text(tmp_path: Path) -> None:
    names = [*EVIL, "'\"><script>document.body.dataset.owned = 1</script>"]
    shown = opened(page(list(names), [(name, "spurious") for name in names], {}), tmp_path)
    assert "data-owned" not in shown
    assert section(shown) == {"spurious": names}


def test_the_report_of_a_run_has_the_buttons_and_stays_one_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 1500)
    X = rng.normal(size=(1500, 4)) + 0.7 * (2 * y[:, None] - 1)
    name = "<script>document.body.dataset.owned = 1</script>"
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"]).assign(label=y)
    frame[name] = np.where(rng.random(1500) < 0.93, y, 1 - y).astype(float)
    chain = {"groups": {"method": "cues"}, "weights": {}, "split": {}}
    curated = rowsieve.curate(frame, label="label", operators=chain, output=str(tmp_path / "out"))
    written = Path(curated.report()).read_text("utf-8")
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", written)
    clicks = CLICKS.replace(
        "CHOSEN", json.dumps([[yaml_reference(name), "spurious"]]).replace("<", "\\u003c")
    )
    shown = opened(written.replace("</body>", f"{clicks}</body>"), tmp_path)
    assert section(shown) == {"spurious": [name]}
    assert "data-owned" not in shown
