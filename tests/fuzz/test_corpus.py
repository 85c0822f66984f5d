"""Every kept input of the fuzzer, findings included, is read or refused in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS, run

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_lookup(*_: object, **__: object) -> None:
        raise OSError("no names are looked up")

    monkeypatch.setattr("socket.getaddrinfo", no_lookup)
    files = sorted((CORPUS / name).iterdir())
    assert files
    for file in files:
        run(name, file.read_bytes())
