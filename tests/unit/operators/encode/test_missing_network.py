"""A recipe names a network for free text whose packages are not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from operators.encode import fitting
from operators.encode.adaptor import Encode
from operators.encode.params import EncodeParams, TextParams


def test_texts_that_are_not_read_are_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's run left his texts out without a word, under the version's usual name."""
    named = Encode(EncodeParams(text=TextParams(model="minilm")))
    assert named.warnings({}, Path) == ()
    monkeypatch.setattr(fitting, "find_spec", lambda _: None)
    (said,) = named.warnings({}, Path)
    assert "'minilm' are not installed" in said
    assert "pip install 'rowsieve[embed]'" in said
    assert Encode(EncodeParams()).warnings({}, Path) == ()
