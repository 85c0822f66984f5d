"""A report over rows that hold scripts, opened in a real browser: shown as text, and nothing runs."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.report_world import html_of, made, plan_over

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
STRIKE = "document.body.dataset.owned = 1"
EVIL = (
    f"<script>{STRIKE}</script>",
    f"<img src=x onerror='{STRIKE}'>",
    f"</td></table><svg onload='{STRIKE}'>",
    f"<a href=\"javascript:{STRIKE}\" autofocus onfocus='{STRIKE}'>",
)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="needs chromium or google-chrome")]


class Elements(HTMLParser):
    """Tags, attributes and texts of a document."""

    def __init__(self) -> None:
        super().__init__()
        self.tags, self.texts = set[str](), list[str]()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [pair for pair in attrs if pair[0] not in ("alt", "title")]  # texts, too

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def opened(html: str, folder: Path) -> str:
    """The document as the browser has it once every script has run."""
    page = folder / "page.html"
    page.write_text(html, encoding="utf-8")
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000"]
    command = [str(BROWSER), *quiet, f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout


def test_the_browser_runs_what_is_not_escaped(tmp_path: Path) -> None:
    """Else the next test would show nothing."""
    for evil in EVIL[:3]:
        assert 'data-owned="1"' in opened(f"<html><body><table><td>{evil}</body></html>", tmp_path), evil


def test_rows_with_scripts_are_shown_as_text(tmp_path: Path) -> None:
    source, columns = made()
    text = pa.array([EVIL[index % len(EVIL)] for index in range(source.num_rows)])
    source = source.set_column(2, "text", text).set_column(3, "really", text)
    report: dict[str, Any] = {"title": EVIL[0], "fields": ["text"]}
    plan = plan_over(
        tmp_path, source, columns, classes=[EVIL[1], EVIL[2]], report=report, truth={"group": "really"}
    )
    shown = opened(html_of(plan), tmp_path)
    assert "data-owned" not in shown
    found = Elements()
    found.feed(shown)
    assert "script" not in found.tags
    assert not [
        name for name, value in found.attributes if name.startswith("on") or "script:" in (value or "")
    ]
    for evil in EVIL:
        assert evil[:30] in "".join(found.texts)  # long values are cut
