"""The one reader of JSON in a shared output: bounded in size, values and depth."""

from __future__ import annotations

import json
import os
import pickle
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.foundation import json_text
from connectors.foundation.json_text import MAX_DEPTH
from engine.core.errors import InputError
from engine.core.json_files import read_json as read_place
from operators.bounded_json import BadJsonError, parse_json, read_json

ROOT = Path(__file__).parents[3]
OTHERS = {
    "connectors/foundation/json_text.py": "the reader itself",
    "connectors/jsonl_source.py": "rows, whose depth the policy bounds",
    "connectors/whole_numbers.py": "rows that were read before, whose depth the policy bounds",
    "connectors/json_width.py": "keys of rows, whose depth the policy bounds; it catches RecursionError",
    "connectors/webdataset_source.py": "values of rows, whose depth the policy bounds",
    "connectors/tables/orc_bounds.py": "the answer of a process that it started",
    "connectors/tables/orc_child.py": "the request of the process that started it",
    "connectors/tables/delta_levels.py": "lines of a log whose levels were counted before",
    "connectors/tables/delta_log.py": "lines of a log, by a hook; it catches RecursionError",
    "engine/execution/ray_executor.py": "a record that a worker of the same run returns",
    "engine/publish/record_delivery.py": "lines between a run and the process that it started",
    "engine/api/airflow.py": "what the command prints, for an environment of Airflow alone",
}
"""Places where JSON is parsed in another way, with the reason."""

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(alphabet='a[]{}",\\é'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='[]{}"\\'), inner),
)


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@given(VALUES)
def test_values_are_read_as_by_the_standard_library(value: object) -> None:
    assert parse_json(json.dumps(value), "x") == value
    assert parse_json(json.dumps(value).encode(), "x") == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (nested(MAX_DEPTH + 1), "nested more than 100 deep"),
        (nested(200_000), "nested more than 100 deep"),
        ('{"a":' * 5000, "nested more than 100 deep"),
        ('{"[]\\"[[": ' + nested(MAX_DEPTH) + "}", "nested more than 100 deep"),
        ("", "is not JSON"),
        ("{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        ("1" * 5000, "is not JSON"),
    ],
    ids=range(8),
)
def test_what_is_refused(text: str | bytes, why: str, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    for read, error in ((read_json, BadJsonError), (read_place, InputError)):
        with pytest.raises(error, match=rf"a\.json is damaged or forged: .*{why}.*Restore it") as caught:
            read(file)
        assert isinstance(caught.value, ValueError)


def test_brackets_in_texts_do_not_count() -> None:
    assert len(parse_json(json.dumps(["[" * 10_000, '\\"' + "{" * 10_000]), "x")) == 2
    assert parse_json(nested(MAX_DEPTH), "x")


@pytest.mark.parametrize("text", ['"' + '\\"' * 2**20, '["' * 2**19, "[" * 2**20], ids=range(3))
def test_refusal_takes_linear_time(text: str) -> None:
    started = time.process_time()
    with pytest.raises(BadJsonError):
        parse_json(text, "x")
    assert time.process_time() - started < 2


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.json"
    with file.open("wb") as handle:
        handle.truncate(2**40)  # takes no room on the disk
    for read, error in ((read_json, BadJsonError), (read_place, InputError)):
        monkeypatch.setattr(json_text, "MAX_BYTES", 1000)
        monkeypatch.setattr("operators.bounded_json.MAX_BYTES", 1000)
        monkeypatch.setattr("engine.core.json_files.MAX_BYTES", 1000)
        with pytest.raises(error, match=r"a\.json is .*larger than"):
            read(file)
    monkeypatch.setattr(json_text, "MAX_VALUES", 10)
    with pytest.raises(BadJsonError, match="more than 10 values"):
        parse_json("[1,2,3,4,5,6,7,8,9,10,11]", "x")


def test_pipes_folders_and_links(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    for name in ("pipe.json", "folder.json"):
        with pytest.raises(BadJsonError, match=rf"{name} is damaged or forged: it is not a regular file"):
            read_json(tmp_path / name)
        with pytest.raises(InputError, match=rf"{name} .*not a regular file"):
            read_place(tmp_path / name)
    (tmp_path / "a.json").write_text("1")
    (tmp_path / "link.json").symlink_to(tmp_path / "a.json")
    with pytest.raises(InputError, match="is a link"):
        read_place(tmp_path / "link.json")


def test_the_error_survives_the_way_from_a_worker() -> None:
    error = pickle.loads(pickle.dumps(BadJsonError("a.json", "it is larger")))
    assert (str(error), error.why) == (str(BadJsonError("a.json", "it is larger")), "it is larger")


def test_there_is_one_reader() -> None:
    """Each further call of ``json.loads`` is a place where a forged file ends in a RecursionError."""
    pattern = re.compile(r"\bjson\.(?:loads?|JSONDecoder)\b")
    packages = ("engine", "operators", "connectors")
    files = [path for name in packages for path in (ROOT / name).rglob("*.py")]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in files}
    found = {name for name, text in texts.items() if pattern.search(text)}
    assert found == set(OTHERS)
