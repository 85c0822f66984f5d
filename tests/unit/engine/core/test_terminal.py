"""Secrets and control characters reach neither the terminal nor the log."""

from __future__ import annotations

import io
import json
import logging
import time
import warnings

import pytest
from rich.table import Table
from typer.testing import CliRunner

from connectors.errors import redact_uris
from engine.cli.app import app
from engine.cli.safe_output import SafeConsole, bold
from engine.core.errors import InputError, one_line
from engine.core.redaction import redact_all
from engine.core.terminal import SAFE_MESSAGES, json_text, printable

EVIL = "a\x1b]0;owned\x07\x1b[2J\u202egnp.exe\x9b1mb\r"


def test_control_characters_are_written_out() -> None:
    found = printable(EVIL + "\tü\n漢")
    assert found == r"a\x1b]0;owned\x07\x1b[2J\u202egnp.exe\x9b1mb\r" + "\tü\n漢"
    assert printable("\x1b[36mray\x1b[0m\x1b[2J", colours=True) == "\x1b[36mray\x1b[0m\\x1b[2J"
    assert printable(found) == found


@pytest.mark.parametrize(
    "sign", ["\xad", "\u034f", "\u206a", "\u3164", "\ufff9", "\U000e0041", "\u2066", "\u200d"]
)
def test_signs_that_no_font_draws_are_written_out(sign: str) -> None:
    """Tags, fillers and the like: two names that look the same are told apart."""
    assert printable(f"a{sign}b") == "a" + sign.encode("unicode_escape").decode() + "b"
    assert sign not in json_text({sign: f"a{sign}b"})
    assert json.loads(json_text({sign: sign})) == {sign: sign}


def test_json_holds_none() -> None:
    value = {EVIL: ["ü", EVIL]}
    text = json_text(value, indent=2)
    assert json.loads(text) == value
    assert not [sign for sign in text if printable(sign) != sign]


def test_the_console_keeps_its_own_styles_only() -> None:
    file = io.StringIO()
    console = SafeConsole(file=file, force_terminal=True, width=200)
    table = Table("name")
    table.add_row(EVIL)
    console.print(table)
    console.print(bold(EVIL))
    found = file.getvalue()
    assert "\x1b[1m" in found
    for part in ("\x1b]0;", "\x1b[2J", "\x07", "\u202e", "\x9b"):
        assert part not in found


def test_errors_of_commands_are_printable() -> None:
    done = CliRunner().invoke(app, ["validate", "no\x1b[2Jwhere.yaml"])
    assert done.exit_code == 2
    assert "no\\x1b[2Jwhere.yaml" in done.output
    assert "\x1b[2J" not in done.output


def test_a_name_forges_no_log_message() -> None:
    record = logging.LogRecord("rowsieve", 30, "x", 1, "column %s", ("a\n2026-01-01 ERROR owned",), None)
    assert SAFE_MESSAGES.filter(record)
    assert record.getMessage() == r"column a\n2026-01-01 ERROR owned"


def test_log_messages(caplog: pytest.LogCaptureFixture) -> None:
    record = logging.LogRecord("rowsieve", 30, "x", 1, "%s s3://K:hunter2@b/\x1b[2J", ("a\x07",), None)
    assert SAFE_MESSAGES.filter(record)
    assert record.getMessage() == r"a\x07 s3://***@b/\x1b[2J"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:hunt@er2/hunter2@db/x",
        "host=h user=u password=hunter2 dbname=x",
        "AccountName=a;AccountKey=hunter2==;EndpointSuffix=x",
        "Authorization: Bearer hunter2hunter2",
        "{'token': 'hunter2', 's3.secret-access-key': 'hunter2', \"credential\": \"id:hunter2\"}",
        "https://h/x#access_token=hunter2",
        "failed: client_secret=hunter2",
    ],
)
def test_secrets_in_texts(text: str) -> None:
    assert "hunter2" not in redact_uris(text)
    assert "hunter2" not in str(InputError(text))


@pytest.mark.parametrize(
    "text",
    [
        "sigma=0.5",
        "operators.embed.max_tokens=128",
        "needs --token-secret: the secret with that cluster's token",
        "column 'token' is not text",
        "tokenizer=minilm",
        "{'significance': 'high'}",
    ],
)
def test_ordinary_texts_stay(text: str) -> None:
    assert redact_uris(text) == text


def test_redaction_takes_linear_time() -> None:
    texts = [
        "://" * 30_000,
        "token" * 20_000,
        "token=" * 20_000,
        "a@" * 50_000,
        "secret-" * 20_000,
        "?&=" * 30_000,
    ]
    start = time.process_time()
    for text in texts:
        redact_uris(text)
    assert time.process_time() - start < 5


def test_properties_of_a_catalog_are_redacted_by_name() -> None:
    catalog = {
        "type": "rest",
        "uri": "https://u:hunter2@h/x",
        "token": "hunter2",
        "credential": "id:hunter2",
        "s3.secret-access-key": "hunter2",
        "adls.connection-string": "hunter2",
        "s3.region": "eu",
    }
    found = redact_all({"source": {"options": {"catalog": catalog}}, "files": {"token.csv": "sha256:1"}})
    assert "hunter2" not in str(found)
    assert found["source"]["options"]["catalog"]["s3.region"] == "eu"
    assert found["files"] == {"token.csv": "sha256:1"}


def test_a_trace_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("s3://KEY:hunter2@bucket/x\x1b[2J")

    monkeypatch.setattr("engine.recipe.recipe.Recipe.load", fails)
    for words in ([], ["-v"]):
        done = CliRunner().invoke(app, ["validate", "x.yaml", *words])
        assert done.exit_code == 1
        assert "RuntimeError" in done.output
        assert "hunter2" not in done.output
        assert "\x1b[2J" not in done.output


def test_warnings_of_libraries_are_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matplotlib repeats a sign that its font lacks, and so a name of a group, on the terminal."""
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    CliRunner().invoke(app, ["policy"])
    shown = warnings.formatwarning("Glyph 27 (\x1b[2J) in s3://KEY:SECRET@b", UserWarning, "x.py", 1, "")
    assert "\x1b" not in shown
    assert "SECRET" not in shown
    assert r"\x1b[2J" in shown


def test_an_error_on_one_line_is_redacted_before_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "tok-0123456789")
    assert one_line(ValueError("refused:\n  sent tok-0123456789. "), 20) == "refused: sent ***"
    assert one_line(KeyError()) == "KeyError"


def test_json_has_no_numbers_that_json_lacks() -> None:
    text = json_text({"x": float("nan"), "y": (1.5, [float("inf"), -float("inf")]), "z": None})

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(text, parse_constant=refuse) == {
        "x": None,
        "y": [1.5, ["Infinity", "-Infinity"]],
        "z": None,
    }
