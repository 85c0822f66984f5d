"""The driver of the fuzzer says that it found something only where something was fuzzed."""

from __future__ import annotations

import pytest

from tests.fuzz import __main__ as driver


def test_a_missing_library_is_no_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver, "find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", ["fuzz", "--only", "sql"])
    with pytest.raises(SystemExit) as caught:
        driver.main()
    assert caught.value.code == 2
    shown = capsys.readouterr()
    assert "atheris is not installed" in shown.err
    assert "FOUND" not in shown.out


def test_an_unknown_target_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fuzz", "--only", "sq"])
    with pytest.raises(SystemExit):
        driver.main()
    assert "no target 'sq'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "log", "said"),
    [
        (0, "INFO: Seed: 1", "no finding"),
        (77, "INFO: Seed: 1\nException", "FOUND"),
        (1, "ModuleNotFoundError: no module", "DID NOT START"),
        (72, "INFO: Seed: 7\n==9== libFuzzer: run interrupted; exiting", "INTERRUPTED, no finding so far"),
    ],
)
def test_an_exit_code_is_read_with_the_log(code: int, log: str, said: str) -> None:
    assert driver.outcome(code, log) == said
