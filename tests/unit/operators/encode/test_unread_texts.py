"""Texts with settings in the recipe, and without a network: run and report say that they are not used."""

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from engine.execution.local_executor import LocalExecutor
from operators.base import Context
from operators.encode.adaptor import Encode
from operators.encode.params import EncodeParams
from tests.unit.in_memory import MemoryReader

TABLE = pa.table(
    {
        "n": [index % 9 for index in range(60)],
        "note": [f"a note of some words and the number {index}" for index in range(60)],
    }
)
NETWORK = "needs a network: pip install 'rowsieve[embed]', and `encode: {text: {model: minilm}}`."


def fitted(settings, state: Path) -> Encode:
    params = EncodeParams.model_validate({"features": ("n", "note"), **settings})
    operator = Encode(params)
    operator.fit(Context(MemoryReader([TABLE]), state), LocalExecutor())
    return operator


@pytest.mark.parametrize("settings", [{"text": {"words": 64}}, {"columns": {"note": "text"}}])
def test_settings_for_a_text_that_no_network_reads_are_named(settings, tmp_path, monkeypatch):
    monkeypatch.setattr("operators.planes.vector_maps", lambda *_, **__: [])
    operator = fitted(settings, tmp_path)
    (said,) = operator.warnings({}, lambda: tmp_path)
    assert said.startswith("the column 'note' gives no features, although the recipe has settings for text: ")
    assert said.endswith(NETWORK)
    section = operator.report_section(SimpleNamespace(state=tmp_path))
    (finding,) = [found for found in section.findings if found.severity == "warning"]
    assert finding.text == f"T{said[1:]}"


def test_a_text_without_settings_is_no_warning(tmp_path):
    assert fitted({}, tmp_path).warnings({}, lambda: tmp_path) == ()
    assert Encode(EncodeParams()).warnings({}, lambda: tmp_path / "nothing") == ()
