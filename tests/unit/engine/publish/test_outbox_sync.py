"""A file or a record that cannot be delivered to MLflow does not hold up the others."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import InputError
from engine.publish import outbox_sync
from engine.publish.lineage import sync_records
from engine.publish.mlflow_outbox import Record, outbox_of, pending, pending_folder
from engine.publish.outbox_sync import sync

BAD = Record("1" * 32, "rowsieve", "bad", 1, status="FINISHED", end_ms=2)
GOOD = replace(BAD, id="2" * 32, name="good", start_ms=3)
DATASET = {"name": "d", "digest": "e", "source_type": "rowsieve", "source": "{}"}


class Server:
    """An MLflow that answers questions, unless it is away."""

    def __init__(self, *, away: bool = False) -> None:
        self.away, self.taken = away, list[str]()

    def search_experiments(self, max_results: int) -> list[object]:
        if self.away:
            raise ConnectionError("refused")
        return []

    def take(self, record: Record, _client: object, _output: object) -> str:
        """Stand in for ``deliver``."""
        if self.away or record.id == BAD.id:
            raise RuntimeError("INTERNAL_ERROR: a bug")
        self.taken.append(record.name)
        return "run"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dataset": DATASET | {"nome": "y"}}, r"dataset: the key 'nome' is unknown; use name, digest"),
        ({"dataset": {"name": "y"}}, r"dataset: the key 'digest' is missing"),
        ({"status": "DONE"}, r"status: use one of RUNNING, .*, not 'DONE'"),
        ({"start_ms": 10**30}, r"start_ms: .* 9223372036854775807, not 1000000000000000000000000000000"),
        ({"end_ms": -1}, r"end_ms: .*, not -1"),
        ({"series": [["a", 1.0, 10**25, 0]]}, r"series\.0\.2: .*, not 1"),
        ({"id": "3" * 32}, r"it is the record '3+'"),
    ],
)
def test_a_file_whose_values_mlflow_cannot_hold_is_named_and_left(
    change: dict[str, Any], reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = outbox_of(tmp_path).keep(BAD.id, asdict(BAD) | change)
    assert pending(tmp_path) == []
    answer = "No record waits for MLflow; files that hold none: 1, see the warnings."
    assert sync_records(None, tmp_path) == answer
    (warning,) = caplog.messages
    assert warning.startswith(f"{place} holds no record that MLflow takes (")
    assert warning.endswith("). Correct or remove it.")
    caplog.clear()
    with pytest.MonkeyPatch.context() as patch:
        server = Server()
        patch.setattr(outbox_sync, "deliver", server.take)
        GOOD.write(tmp_path)
        assert sync(server, tmp_path) == (1, 0, 0)
    assert server.taken == ["good"]
    assert caplog.messages == [warning]
    assert re.search(reason, warning)
    assert json.loads(place.read_text())["name"] == "bad"


def test_a_record_that_fails_while_the_server_answers_stays_and_others_get_through(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    monkeypatch.setattr(outbox_sync, "deliver", server.take)
    for record in (BAD, GOOD):
        record.write(tmp_path)
    assert sync(server, tmp_path) == (1, 0, 1)
    assert server.taken == ["good"]
    assert [record.name for record in pending(tmp_path)] == ["bad"]
    (warning,) = caplog.messages
    place = pending_folder(tmp_path) / f"{BAD.id}.json"
    assert "does not take the record of 'bad' (INTERNAL_ERROR: a bug)" in warning
    assert str(place) in warning


def test_the_answer_counts_records_that_mlflow_does_not_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that 0 records were delivered, and no more."""
    server = Server()
    monkeypatch.setattr(outbox_sync, "deliver", server.take)
    monkeypatch.setattr("engine.publish.lineage.client", lambda _: server)
    BAD.write(tmp_path)
    answer = "0 records delivered to MLflow. Not taken by MLflow: 1, see the warnings."
    assert sync_records(None, tmp_path) == answer


def test_a_record_that_is_no_utf8_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stayed, and was warned of at each run."""

    def fail(*_: object) -> str:
        return str("\ud800".encode())

    monkeypatch.setattr("engine.publish.mlflow_outbox._send", fail)
    BAD.write(tmp_path)
    assert sync(Server(), tmp_path) == (0, 0, 1)
    assert pending(tmp_path) == []
    assert outbox_of(tmp_path).refused(BAD.id).exists()


@pytest.mark.parametrize("away", [True, False])
def test_a_server_that_is_away_or_slow_is_not_asked_for_every_record(
    away: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(away=away)
    monkeypatch.setattr(outbox_sync, "deliver", server.take)
    if not away:
        monkeypatch.setattr(outbox_sync, "LONG_TRY", 0.0)
    for record in (BAD, GOOD):
        record.write(tmp_path)
    monkeypatch.setattr("engine.publish.lineage.client", lambda _: server)
    with pytest.raises(InputError, match="takes no records at present"):
        sync_records(None, tmp_path)
    assert server.taken == []
    assert len(pending(tmp_path)) == 2


def test_a_misspelt_folder_is_no_delivery(tmp_path: Path) -> None:
    """A script took it for one, as no record waits in a folder that is not there."""
    with pytest.raises(InputError, match=r"there is no folder .*nowhere, and nothing was delivered"):
        sync_records(None, tmp_path / "nowhere")
    assert sync_records(None, tmp_path).startswith("No record waits for MLflow.")
