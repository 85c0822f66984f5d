"""The tree that ``rowsieve lineage`` prints: what others wrote into MLflow is shown as it stands."""

from __future__ import annotations

from typing import Any

import pytest

from engine.cli import output

MARKUP = "[/][link=https://example.org]x[/link]"


def test_names_in_mlflow_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    console = output.SafeConsole(width=400, force_terminal=True)
    monkeypatch.setattr(output, "console", console)
    found: dict[str, Any] = {
        "version": MARKUP,
        "withdrawn": MARKUP,
        "folder": MARKUP,
        "rows": 1,
        "runs": [
            {
                "run_id": MARKUP,
                "status": MARKUP,
                "started_ms": 10**18,
                "inputs": [{"name": MARKUP, "digest": MARKUP}],
            }
        ],
        "models": [{"name": MARKUP, "version": MARKUP, "run_id": MARKUP, "champion": True}],
        "base": MARKUP,
        "source": {"path": MARKUP, "files": {MARKUP: MARKUP}},
        "tracking_uri": MARKUP,
    }
    with console.capture() as shown:
        output.show_lineage(found)
    text = shown.get()
    assert text.count("[link=https://example.org]") == 14
    assert "\x1b]8" not in text
    assert "1e+15 s after 1970" in text
