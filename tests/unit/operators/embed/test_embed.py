"""``embed`` without a network: batches, gaps and reasons, with an encoder made for the tests."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from pydantic import ValidationError

from engine import Recipe
from engine.execution.local_executor import LocalExecutor
from engine.plan.planner import make_plan
from operators.base import FEATURE_FAULT, FEATURES, ROW_ID, Context, OperatorError
from operators.embed.adaptor import Embed, column_values, embedding_of
from operators.embed.kernel import WINDOW, embed_rows
from operators.embed.params import EmbedParams
from operators.image_files import open_image, refusal
from tests.unit.in_memory import MemoryReader


class Letters:
    """Length, first and last letter; remembers the batches it was given."""

    takes: Literal["text"] = "text"

    def __init__(self) -> None:
        self.batches: list[NDArray[Any]] = []

    def prepare(self, value: str) -> NDArray[np.int64]:
        if not value:
            raise ValueError("is empty")
        return np.array([ord(letter) for letter in value])

    def encode(self, batch: NDArray[np.int64]) -> NDArray[np.float32]:
        self.batches.append(batch)
        length = np.full(len(batch), batch.shape[1])
        return np.column_stack([length, batch[:, 0], batch[:, -1]]).astype(np.float32)


def letters(params: EmbedParams, device: Any) -> Letters:
    return Letters()


def one_by_one(values: list[str | None]) -> list[list[int]]:
    return [[len(v), ord(v[0]), ord(v[-1])] for v in values if v]


@given(st.lists(st.none() | st.text(max_size=4), max_size=60), st.integers(1, 3))
def test_every_row_keeps_its_place(values: list[str | None], batch_size: int) -> None:
    encoder = Letters()
    vectors, reasons = embed_rows(encoder, values, batch_size=batch_size)
    assert vectors.tolist() == one_by_one(values)
    assert reasons == {i: "is null" if v is None else "is empty" for i, v in enumerate(values) if not v}
    assert all(len(batch) <= batch_size for batch in encoder.batches)


def test_rows_of_one_shape_share_batches_within_a_window() -> None:
    encoder = Letters()
    texts = [chr(ord("A") + row) * (1 + row % 2) for row in range(4 * WINDOW)]
    embed_rows(encoder, texts, batch_size=2)
    assert [batch.shape for batch in encoder.batches] == 2 * (
        [(2, 1)] * (WINDOW // 2) + [(2, 2)] * (WINDOW // 2)
    )


def test_a_value_that_occurs_again_is_encoded_once() -> None:
    encoder = Letters()
    texts = ["a", "", "b", "a", None, "", "a"]
    vectors, reasons = embed_rows(encoder, texts, batch_size=8)
    assert [batch.shape for batch in encoder.batches] == [(2, 1)]
    assert vectors.tolist() == one_by_one(texts)
    assert reasons == {1: "is empty", 4: "is null", 5: "is empty"}


def test_a_value_that_occurs_again_beyond_its_window_is_encoded_once() -> None:
    encoder = Letters()
    others = [chr(ord("b") + row) for row in range(2 * WINDOW)]
    texts = ["a", *others, "a", *others]
    vectors, _ = embed_rows(encoder, texts, batch_size=1)
    assert len(encoder.batches) == 1 + len(others)
    assert vectors.tolist() == one_by_one(texts)


def embedded(tables: list[pa.Table], **params: Any) -> list[pa.Table]:
    name = f"{__name__}:letters"
    operator = Embed(EmbedParams(model=name, column="t", resources={"gpus": 0}, **params))  # type: ignore[arg-type]
    reader = MemoryReader(tables)
    context = Context(reader, Path())
    assert operator.fit(context, LocalExecutor()) == {}
    apply = operator.open(context)
    return [apply(reader.read_source(shard, [ROW_ID, "t"])) for shard in range(len(tables))]


def test_rows_that_cannot_be_used_are_null_with_a_reason() -> None:
    (found, gone) = embedded([pa.table({"t": ["ab", None, "", "a"]}), pa.table({"t": [None, ""]})])
    assert found.schema.equals(pa.schema(list(Embed(EmbedParams(model="minilm", column="t")).adds)))
    assert found.column(FEATURES).to_pylist() == [[2, 97, 98], None, None, [1, 97, 97]]
    reasons = [
        {"column": "t", "value": "None", "error": "is null"},
        {"column": "t", "value": "''", "error": "is empty"},
    ]
    assert found.column(FEATURE_FAULT).to_pylist() == [None, *reasons, None]
    assert gone.column(FEATURES).to_pylist() == [None, None]
    assert gone.column(FEATURE_FAULT).to_pylist() == reasons


def test_text_may_be_a_dictionary() -> None:
    (found,) = embedded([pa.table({"t": pa.array(["b", "ab", "b"]).dictionary_encode()})])
    assert found.column(FEATURES).to_pylist() == [[1, 98, 98], [2, 97, 98], [1, 98, 98]]


@pytest.mark.parametrize(
    ("column", "takes", "expected"),
    [
        (pa.array([b"x", None]), "image", [b"x", None]),
        (pa.array(["a/b.png", None]), "image", [Path("here/a/b.png"), None]),
        (pa.array([{"bytes": b"x", "path": "p"}, None]), "image", [b"x", None]),
        (pa.array(["x", None], pa.large_string()), "text", ["x", None]),
    ],
)
def test_columns(column: pa.Array, takes: str, expected: list[Any]) -> None:
    assert column_values(pa.chunked_array([column]), "c", takes, Path("here")) == expected


@pytest.mark.parametrize(
    ("values", "takes"), [([b"x"], "text"), ([1], "text"), ([1.0], "image"), ([[1]], "image")]
)
def test_other_columns_are_refused(values: list[Any], takes: str) -> None:
    with pytest.raises(OperatorError, match=r"operators\.embed\.column: 'c' has type .* takes (text|images)"):
        column_values(pa.chunked_array([pa.array(values)]), "c", takes, Path())


@pytest.mark.parametrize(
    ("model", "match"),
    [("nowhere_at_all:f", "no module named 'nowhere_at_all'"), (f"{__name__}:lettres", "has no 'lettres'")],
)
def test_an_encoder_that_is_not_there(model: str, match: str) -> None:
    operator = Embed(EmbedParams(model=model, column="t"))
    with pytest.raises(OperatorError, match=match):
        operator.fit(Context(MemoryReader([]), Path()), LocalExecutor())


def test_misspelt_names_get_a_hint() -> None:
    with pytest.raises(ValidationError, match="Did you mean 'minilm'"):
        EmbedParams(model="minlm", column="t")


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def test_images_keep_their_pixels_and_colours(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    png = encoded(Image.fromarray(pixels))
    (tmp_path / "a.png").write_bytes(png)
    for value in (png, tmp_path / "a.png"):
        assert np.array_equal(open_image(value, 32), pixels.transpose(2, 0, 1))


def test_images_are_upright_square_and_of_three_channels() -> None:
    wide = np.zeros((32, 64), np.uint8)
    wide[:, 16:48] = 200  # the centre square
    assert (open_image(encoded(Image.fromarray(wide)), 32) == 200).all()
    halves = np.zeros((32, 32), np.uint8)
    halves[:16] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter clockwise: what is stored on top belongs on the right
    turned = open_image(encoded(Image.fromarray(halves), exif=exif), 32)
    assert (turned[:, :, 16:] == 255).all()
    assert (turned[:, :, :16] == 0).all()


def test_images_that_cannot_be_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = encoded(Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)))
    for value in (b"", b"no image", whole[: len(whole) // 2], whole[:40], tmp_path):
        with pytest.raises(ValueError, match=r"^cannot be decoded as an image: [^<]+$"):
            open_image(value, 32)
    with pytest.raises(ValueError, match="there is no file"):
        open_image(tmp_path / "gone.png", 32)
    monkeypatch.setattr("operators.image_files.MAX_PIXELS", 1000)
    with pytest.raises(ValueError, match="64 x 64 pixels, beyond 1,000"):
        open_image(whole, 32)


@pytest.mark.parametrize("name", ["EPS", "PPM", "ICO"])
def test_formats_that_start_other_programs_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow gives EPS to Ghostscript, which may be absent here. Formats without use are refused too."""
    drawn = Image.new("RGB", (8, 8))
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_: drawn.im)
    content = io.BytesIO()
    drawn.save(content, name)
    with pytest.raises(ValueError, match="cannot be decoded"):
        open_image(content.getvalue(), 32)


def many_scans(n_scans: int, pixels: int) -> bytes:
    """A progressive JPEG that states a square of so many pixels, with its scans repeated."""
    content = io.BytesIO()
    Image.new("RGB", (10, 10)).save(content, "JPEG", progressive=True)
    data, side = content.getvalue(), round(pixels**0.5)
    start = data.index(b"\xff\xda")
    head = data[:start].replace(struct.pack(">HH", 10, 10), struct.pack(">HH", side, side))
    return head + data[start:-2] * n_scans + data[-2:]


@pytest.mark.parametrize("as_file", [False, True])
def test_a_small_file_of_many_scans_is_refused(as_file: bool, tmp_path: Path) -> None:
    """Each scan goes over all pixels: 150 KB take a minute."""
    (tmp_path / "x.jpg").write_bytes(many_scans(500, 2**26))
    with pytest.raises(ValueError, match="goes over its pixels"):
        open_image(tmp_path / "x.jpg" if as_file else (tmp_path / "x.jpg").read_bytes(), 32)


def test_a_progressive_image_of_usual_size_is_decoded() -> None:
    content = io.BytesIO()
    Image.new("RGB", (2000, 2000), (9, 200, 30)).save(content, "JPEG", progressive=True)
    assert open_image(content.getvalue(), 32).shape == (3, 32, 32)
    assert open_image(many_scans(2, 100), 32).shape == (3, 32, 32)


def several_pictures(data: bytes) -> bytes:
    """Mark a JPEG as the first of several pictures, by which Pillow calls it MPO."""
    file, small = io.BytesIO(), Image.new("RGB", (8, 8))
    small.save(file, "MPO", save_all=True, append_images=[small])
    start = file.getvalue().index(b"MPF\0") - 4
    length = struct.unpack(">H", file.getvalue()[start + 2 : start + 4])[0]
    return data[:2] + file.getvalue()[start : start + 2 + length] + data[2:]


def test_scans_count_in_files_of_several_pictures_too() -> None:
    """The mark made a progressive JPEG pass: 156 KB took two minutes."""
    data = several_pictures(many_scans(500, 2**26))
    with Image.open(io.BytesIO(data), formats=["JPEG"]) as image:
        assert image.format == "MPO"
    with pytest.raises(ValueError, match="goes over its pixels 5000 times"):
        open_image(data, 32)
    assert open_image(several_pictures(many_scans(2, 100)), 32).shape == (3, 32, 32)


def tiff(compression: int, parts: list[bytes], **tags: int) -> bytes:
    """Write a TIFF of 16 x 16 pixels, or as ``tags`` say, whose parts are the given bytes."""
    found = {256: (16,), 257: (16,), 258: (8, 8, 8), 259: (compression,), 262: (2,), 277: (3,)}
    found |= {int(name.removeprefix("t")): (value,) for name, value in tags.items()}
    offsets, counts = (324, 325) if 322 in found else (273, 279)
    start = 8 + 2 + 12 * (len(found) + 2) + 4
    content, places = b"".join(parts), [sum(map(len, parts[:index])) for index in range(len(parts))]
    after = start + len(content)
    found |= {offsets: tuple(start + place for place in places), counts: tuple(map(len, parts))}
    entries, more = b"", b""
    for tag, values in sorted(found.items()):
        data = struct.pack(f"<{len(values)}I", *values)
        held = data if len(values) == 1 else struct.pack("<I", after + len(more))
        more += b"" if len(values) == 1 else data
        entries += struct.pack("<HHI", tag, 4, len(values)) + held
    head = b"II*\0" + struct.pack("<IH", 8, len(found))
    return head + entries + bytes(4) + content + more


def test_a_small_tiff_of_large_tiles_is_refused() -> None:
    """A file of 2 MB with 16 x 16 pixels took 2 GB and 13 seconds."""
    tile = zlib.compress(bytes(64 * 64 * 3))
    assert open_image(tiff(8, [tile], t322=64, t323=64), 32).shape == (3, 32, 32)
    with pytest.raises(ValueError, match="tiles of 26000 x 26000 pixels"):
        open_image(tiff(8, [tile], t322=26000, t323=26000), 32)


def test_scans_count_in_the_parts_of_a_tiff() -> None:
    content = io.BytesIO()
    Image.new("RGB", (16, 16)).save(content, "JPEG", subsampling=0)
    part = content.getvalue()
    good = tiff(7, [part] * 2, t257=32, t278=16, t262=6)
    assert open_image(good, 32).shape == (3, 32, 32)
    assert open_image(tiff(7, [part] * 300, t257=16 * 300, t278=16, t262=6), 32).shape == (3, 32, 32)
    with pytest.raises(ValueError, match="goes over its pixels 500 times"):
        open_image(tiff(7, [many_scans(50, 8000**2)], t256=8000, t257=8000, t278=8000, t262=6), 32)


def test_paths_of_images_stay_in_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "outside.png")
    Image.new("RGB", (8, 8)).save(folder / "deep" / "inside.png")
    (folder / "link.png").symlink_to(tmp_path / "outside.png")
    os.mkfifo(folder / "pipe.png")
    for name in ("deep/inside.png", "deep/../deep/inside.png", "gone.png"):
        assert refusal(folder, folder / name) == ""
    for name in ("/etc/x.png", "../outside.png", "link.png"):
        assert "leads out" in refusal(folder, folder / name)
    assert "regular file" in refusal(folder, folder / "pipe.png")


def test_paths_are_read_below_the_folder_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a source named by URI, or by a worker in another working directory, no picture was found."""
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    pq.write_table(pa.table({"t": ["a.png"], "label": ["x"]}), tmp_path / "x.parquet")
    monkeypatch.chdir(tmp_path)
    for path in ("x.parquet", f"file://{tmp_path}/x.parquet"):
        recipe = Recipe.parse(
            {
                "name": "r",
                "source": {"path": path, "label": "label", "features": ["t"]},
                "output": {"path": "out"},
            }
        )
        (shard,) = make_plan(recipe).shards
        with monkeypatch.context() as elsewhere:
            elsewhere.chdir("/")
            table = pa.table({ROW_ID: [0], "t": ["a.png"]})
            reader = SimpleNamespace(shards=[shard])
            found = embedding_of(table, Context(reader, Path()), Sizes(), "t", 4)
        assert found.to_pylist() == [{FEATURES: [192.0], FEATURE_FAULT: None}]


class Sizes:
    """The number of values in an image's pixels."""

    takes: Literal["image"] = "image"

    def prepare(self, value: Any) -> NDArray[np.uint8]:
        return open_image(value, 8)

    def encode(self, batch: NDArray[np.uint8]) -> NDArray[np.float32]:
        return np.full((len(batch), 1), batch[0].size, np.float32)


@pytest.mark.parametrize(
    ("model", "on_gpu", "size"),
    [
        ("minilm", True, 256),
        ("minilm", False, 32),
        ("efficientnet_lite0", True, 32),
        ("own.module:make", True, 32),
    ],
)
def test_a_gpu_takes_more_texts_at_once(model: str, on_gpu: bool, size: int) -> None:
    assert EmbedParams(model=model, column="x").rows_at_once(on_gpu) == size
    assert EmbedParams(model=model, column="x", batch_size=7).rows_at_once(on_gpu) == 7
