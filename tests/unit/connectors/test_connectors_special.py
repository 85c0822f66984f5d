"""Peculiarities of single formats: images, WebDataset, Hugging Face datasets, Arrow, CSV headers."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from connectors import open_source
from connectors.base import ConnectorError, CorruptError, LateColumns, Source
from connectors.csv_options import CsvOptions
from connectors.filters import parse
from connectors.written_out import written_out_bytes
from tests.unit import formats


def rows_of(source: Source, columns: list[str] | None = None) -> list[dict[str, Any]]:
    listing = source.list()
    names = columns or listing.schema.names
    tables = [source.read(shard, names, listing.schema) for shard in listing.shards]
    return [row for table in tables for row in table.to_pylist()]


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    for place, name in enumerate(
        ("cat/1.png", "cat/2.PNG", "dog/1.jpg", "dog/deep er/ä.webp", "top.png", "cat/notes.txt")
    ):
        path = tmp_path / "zoo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([place]) * 10 * place)
    return tmp_path / "zoo"


ZOO = [
    {"image": b"\4" * 40, "path": "top.png", "label": "zoo"},
    {"image": b"", "path": "cat/1.png", "label": "cat"},
    {"image": b"\1" * 10, "path": "cat/2.PNG", "label": "cat"},
    {"image": b"\2" * 20, "path": "dog/1.jpg", "label": "dog"},
    {"image": b"\3" * 30, "path": "dog/deep er/ä.webp", "label": "deep er"},
]


@pytest.mark.parametrize("shard_bytes", [1, 15, 10**6])
def test_images_are_rows_and_folders_classes(zoo: Path, shard_bytes: int) -> None:
    for path in (str(zoo), f"file://{zoo}"):
        source = open_source(path, shard_bytes=shard_bytes)
        assert rows_of(source) == ZOO
        assert rows_of(source, ["label", "path"]) == [{k: row[k] for k in ("label", "path")} for row in ZOO]
        cats = open_source(path, shard_bytes=shard_bytes, filter=parse(["label", "=", "cat"]))
        (*_, last) = cats.list().shards
        assert cats.locate(last, last.n_rows - 1) == "file 2.PNG"
        assert rows_of(cats, ["path"]) == [{"path": "cat/1.png"}, {"path": "cat/2.PNG"}]


def test_image_paths_may_be_patterns_or_single_files(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [row["path"] for row in rows_of(open_source(f"{zoo}/*/*.png"))] == ["cat/1.png"]
    assert rows_of(open_source(f"{zoo}/dog/1.jpg")) == [
        {"image": b"\2" * 20, "path": "1.jpg", "label": "dog"}
    ]
    monkeypatch.chdir(zoo)
    assert rows_of(open_source("*.png")) == [{"image": b"\4" * 40, "path": "top.png", "label": None}]


def test_images_that_change_after_planning_are_noticed(zoo: Path) -> None:
    source = open_source(str(zoo))
    listing = source.list()
    shard = next(shard for shard in listing.shards if shard.path.endswith("cat"))
    (zoo / "cat/1.png").write_bytes(b"more")
    assert source.list().identities[shard.path] != listing.identities[shard.path]
    with pytest.raises(ConnectorError, match=r"cat: its files have changed"):
        source.read(shard, ["path"], listing.schema)


def test_reading_images_does_not_list_their_folder(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shard listed the whole folder, so that a million pictures took hours."""
    source = pickle.loads(pickle.dumps(open_source(str(zoo), shard_bytes=15)))
    listing = pickle.loads(pickle.dumps(source.list()))
    (zoo / "cat/0.png").write_bytes(b"new")

    def refuse(folder: str) -> None:
        pytest.fail(f"{folder} is listed")

    monkeypatch.setattr(os, "scandir", refuse)
    found = [source.read(shard, listing.schema.names, listing.schema) for shard in listing.shards]
    assert [row for table in found for row in table.to_pylist()] == ZOO
    assert source.locate(listing.shards[-1], 0) == "file ä.webp"


def test_images_may_be_links_within_the_source(zoo: Path) -> None:
    """They were listed, and reading them failed, since a link was to stay within its class's folder."""
    (zoo / "_store").mkdir()
    (zoo / "cat/1.png").rename(zoo / "_store/one")
    (zoo / "cat/1.png").symlink_to("../_store/one")
    source = open_source(str(zoo))
    listing = source.list()
    assert rows_of(source) == ZOO
    (zoo / "cat/1.png").unlink()
    (zoo / "cat/1.png").symlink_to("/etc/hostname")
    shard = next(shard for shard in listing.shards if shard.path.endswith("cat"))
    with pytest.raises(ConnectorError, match=r"cat/1\.png is a symbolic link to /etc/hostname"):
        source.read(shard, ["image"], listing.schema)


def test_an_image_that_is_now_a_pipe_has_changed(zoo: Path) -> None:
    source = open_source(str(zoo))
    listing = source.list()
    (zoo / "cat/1.png").unlink()
    os.mkfifo(zoo / "cat/1.png")
    shard = next(shard for shard in listing.shards if shard.path.endswith("cat"))
    with pytest.raises(ConnectorError, match=r"cat: its files have changed"):
        source.read(shard, ["image"], listing.schema)


def test_the_identity_of_a_folder_covers_its_class(zoo: Path) -> None:
    """After two class folders had swapped their names, a run reused the results of the old labels."""
    before = open_source(str(zoo)).list().identities
    (zoo / "cat").rename(zoo / "lion")
    after = open_source(str(zoo)).list().identities
    assert after[f"{zoo}/lion"] != before[f"{zoo}/cat"]
    assert after[f"{zoo}/dog"] == before[f"{zoo}/dog"]
    (zoo / "dog/deep er").rename(zoo / "deep er")  # the class stays, and the column path changes
    assert open_source(str(zoo)).list().identities[f"{zoo}/deep er"] != before[f"{zoo}/dog/deep er"]
    zoo.rename(zoo.with_name("farm"))
    moved = open_source(str(zoo.with_name("farm"))).list().identities
    assert moved[f"{zoo.with_name('farm')}/lion"] == after[f"{zoo}/lion"]


def tar_of(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in files.items():
            formats.add(tar, name, data)
    return path


def npy(*values: Any, dtype: Any = None) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(values, dtype=dtype), allow_pickle=True)
    return file.getvalue()


def test_samples_have_a_column_for_each_ending(tmp_path: Path) -> None:
    long = "d/" + "é" * 150  # a name of its own record in the tar
    files = {
        "a/1.jpg": b"\xff",
        "a/1.SEG.png": b"\x89",
        "a/1.cls": b" 3\n",
        "readme": b"no ending",
        "a/.hidden": b"",
        f"{long}.json": b'{"n": [1, 2], "s": {"t": "x"}}',
        f"{long}.npy": npy([1.5, 2], [3, 4], dtype="f4"),
    }
    source = open_source(str(tar_of(tmp_path / "a.tar", files)), shard_bytes=1)
    nothing = dict.fromkeys(("cls", "jpg", "json", "npy", "seg.png"))
    assert rows_of(source) == [
        {**nothing, "__key__": "a/1", "jpg": b"\xff", "seg.png": b"\x89", "cls": 3},
        {**nothing, "__key__": long, "json": {"n": [1, 2], "s": {"t": "x"}}, "npy": [1.5, 2, 3, 4]},
    ]
    assert [source.locate(shard, 0) for shard in source.list().shards] == ["sample a/1", f"sample {long}"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (npy(1, 2), npy(1.5, 2.7)),
        (npy(1, 2, dtype="u1"), npy(300, -2, dtype="i2")),
        (npy(1.5, dtype="f4"), npy(1e300)),
        (npy(1.5, dtype=">f4"), npy(2)),
    ],
)
def test_vectors_of_several_types_keep_their_numbers(first: bytes, second: bytes, tmp_path: Path) -> None:
    """[1.5, 2.7] after whole numbers was read as [1, 2]."""
    source = open_source(str(tar_of(tmp_path / "a.tar", {"a.npy": first, "b.npy": second})))
    assert [row["npy"] for row in rows_of(source)] == [
        np.load(io.BytesIO(d)).tolist() for d in (first, second)
    ]


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (npy(1, 2), npy(1.5, 2.7), r"float64 does not fit int64, .*: Float value 1.50* was truncated"),
        (npy(1, dtype="u1"), npy(-2, dtype="i2"), r"int16 does not fit uint8, .* -2 not in range"),
        (npy(True, False, dtype="?"), npy(3, 0), r"int64 does not fit bool, .*: it holds numbers\. Write"),
        (npy(1.5, dtype="f4"), npy(1e300), r"float64 does not fit float, .*: a number is too large\. Write"),
    ],
)
def test_a_vector_that_does_not_fit_is_named(first: bytes, second: bytes, text: str, tmp_path: Path) -> None:
    path = tar_of(tmp_path / "a.tar", {"a.npy": first, "b.npy": second})
    with pytest.raises(CorruptError, match=rf"a\.tar, sample b: the vector \.npy of {text}"):
        rows_of(open_source(str(path), shard_bytes=1))


def test_keys_of_json_that_only_later_samples_have_are_named(tmp_path: Path) -> None:
    files = {"a.json": b'{"u": 1}', "a.txt": b"x", "b.json": b'{"u": 2, "v": {"w": 3}}', "c.txt": b"y"}
    source = open_source(str(tar_of(tmp_path / "a.tar", files)), shard_bytes=1, rename={"json.u": "n"})
    assert isinstance(source, LateColumns)
    listing = source.list()
    assert [source.unread(shard, listing.schema) for shard in listing.shards] == [(), ("json.v",), ()]
    whole = open_source(str(tmp_path / "a.tar"))
    assert isinstance(whole, LateColumns)
    (shard,) = (listing := whole.list()).shards
    assert whole.unread(shard, listing.schema) == ()


def test_the_types_of_samples_come_from_a_shard_that_can_be_read(tmp_path: Path) -> None:
    tar_of(tmp_path / "0.tar", {"a.json": b"{", "a.npy": b"no"})
    tar_of(tmp_path / "1.tar", {"b.json": b"1", "b.npy": npy(1.5)})
    with pytest.raises(CorruptError, match=r"0\.tar, sample a"):
        open_source(str(tmp_path)).list()
    source = open_source(str(tmp_path), skip_corrupt=True)
    listing = source.list()
    (_, whole) = listing.shards
    assert source.read(whole, ["json", "npy"], listing.schema).to_pylist() == [{"json": 1, "npy": [1.5]}]


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"a.pyd": b""}, r"a\.tar: a\.pyd is pickled Python"),
        ({"a.txt": b"", "a.model.PTH": b""}, r"a\.model\.PTH is pickled Python"),
        ({"a.npy": npy({}, dtype=object)}, r"sample a: \.npy is not a plain \.npy file"),
        ({"a.npy": npy(*([b""] * 9), dtype="V0")}, r"\.npy is not .*: it states 9 values of no bytes"),
        ({"a.cls": b"three"}, r"sample a: \.cls is not a whole number of 64 bits: invalid literal"),
        ({"a.cls": b"1", "b.cls": b"9" * 20}, r"sample b: \.cls is not a whole number of 64 bits"),
        ({"a.cls": b"1", "a.__key__": b"x"}, r"the sample a has a file \.__key__"),
        ({"a.json": b"{"}, r"sample a: \.json is not a plain \.json file"),
        ({"a.json": b"1", "b.json": b'{"x": 1}'}, r"values of \.json are not of one type"),
        ({"a.txt": b"\xff"}, r"sample a: \.txt is not UTF-8 text"),
        ({"a.txt": b"", "a.TXT": b""}, r"the sample a has two files \.txt"),
        ({"readme": b""}, "holds no rows"),
    ],
)
def test_samples_that_cannot_be_read_are_named(files: dict[str, bytes], text: str, tmp_path: Path) -> None:
    path = tar_of(tmp_path / "a.tar", files)
    with pytest.raises(ConnectorError, match=text):
        rows_of(open_source(str(path)))


def test_tars_that_are_none_and_samples_that_are_too_large(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "a.tar", {"a.txt": b"x" * 5000, "b.txt": b""})
    with pytest.raises(ConnectorError, match=r"larger than source\.max_shard_bytes \(4000\)"):
        rows_of(open_source(str(path), shard_bytes=1, max_bytes=4000))
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(CorruptError, match=r"a\.tar is not a whole tar.*uncompressed"):
        open_source(str(path)).list()


PNG = [b"\x89PNG 1", b"\x89PNG 2", None]


def saved(folder: Path, features: dict[str, Any] | None = None, **state: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    images = [{"bytes": data, "path": "a.png"} for data in PNG]
    table = pa.table({"image": images, "label": [1, 0, -1], "v": [[1.5], [2.5], [3.5]]})
    for name, part in (("data-1.arrow", table.slice(0, 1)), ("data-0.arrow", table.slice(1))):
        with pa.ipc.new_stream(folder / name, table.schema) as writer:
            writer.write_table(part)
    kinds = {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
    (folder / "dataset_info.json").write_text(json.dumps({"features": features or kinds}))
    files = [{"filename": "data-1.arrow"}, {"filename": "data-0.arrow"}]
    (folder / "state.json").write_text(json.dumps({"_data_files": files, **state}))
    return folder


def test_features_become_plain_columns_in_the_order_of_the_files(tmp_path: Path) -> None:
    source = open_source(str(saved(tmp_path)))
    labels = ["dog", "cat", None]
    assert rows_of(source, ["image", "label"]) == [
        {"image": data, "label": label} for data, label in zip(PNG, labels, strict=True)
    ]
    numbers = open_source(str(tmp_path), options={"class_names": False})
    assert rows_of(numbers, ["label"]) == [{"label": 1}, {"label": 0}, {"label": -1}]
    before = source.list().identities
    saved(tmp_path, {"label": {"names": ["tom", "rex"], "_type": "ClassLabel"}})
    assert before != source.list().identities
    assert rows_of(source, ["label"])[0] == {"label": "rex"}


def test_a_split_is_chosen(tmp_path: Path) -> None:
    for split in ("train", "test"):
        saved(tmp_path / split)
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert len(rows_of(open_source(str(tmp_path), options={"split": "test"}))) == 3
    with pytest.raises(ConnectorError, match="holds the splits train, test: choose one"):
        open_source(str(tmp_path)).list()
    with pytest.raises(ConnectorError, match="Did you mean 'train'"):
        open_source(str(tmp_path), options={"split": "trian"}).list()
    with pytest.raises(ConnectorError, match=r"Leave source\.options\.split out"):
        open_source(str(tmp_path / "test"), options={"split": "test"}).list()


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"_data_files": [{"filename": "../../etc/x.arrow"}]}, "not below it"),
        ({"_data_files": [{"filename": "/etc/x.arrow"}]}, "not below it"),
        ({"_data_files": None}, "names no _data_files"),
        ({"_indices_data_files": [{"filename": "indices.arrow"}]}, "flatten_indices"),
        ({"_data_files": [{"filename": "gone.arrow"}]}, r"gone\.arrow is gone"),
    ],
)
def test_a_saved_dataset_that_cannot_be_read_is_explained(
    state: dict[str, Any], text: str, tmp_path: Path
) -> None:
    with pytest.raises(ConnectorError, match=text):
        open_source(str(saved(tmp_path, **state))).list()


@pytest.mark.parametrize("name", ["state.json", "dataset_info.json", "dataset_dict.json"])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[" * 101, "nested more than 100 deep"),
        ("[1]", "it is not an object"),
        ("{", "it is not JSON"),
        ('{"a": [' + "1," * 150 + "1]}", "more than 150 values"),
        ('{"a": "' + "x" * 5000 + '"}', "larger than"),
    ],
)
def test_what_describes_a_saved_dataset_is_bounded(
    content: str, text: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.foundation.json_text.MAX_VALUES", 150)
    monkeypatch.setattr("connectors.foundation.json_text.MAX_BYTES", 5000 if "larger" in text else 200_000)
    (saved(tmp_path) / name).write_text(content)
    with pytest.raises(ConnectorError, match=rf"{name} describes no dataset: .*{text}"):
        open_source(str(tmp_path), format="huggingface").list()


def test_no_more_of_it_is_read_than_the_bound(tmp_path: Path) -> None:
    with (saved(tmp_path) / "state.json").open("wb") as file:
        file.truncate(2**40)  # takes no room on the disk, and more than there is in memory
    with pytest.raises(ConnectorError, match=r"state\.json describes no dataset: it is larger than 256 MiB"):
        open_source(str(tmp_path), format="huggingface").list()


class Pickled(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.binary(), "ray.data.arrow_pickled_object")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> pa.ExtensionType:
        return cls()


def test_arrow_files_hold_no_pickles_and_no_feather_of_old(tmp_path: Path) -> None:
    column = pa.ExtensionArray.from_storage(Pickled(), pa.array([b"x"]))
    table = pa.table({"x": column})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(ConnectorError, match=r"column 'x' holds pickled Python objects"):
        open_source(str(tmp_path)).list()
    (tmp_path / "a.arrow").write_bytes(b"FEA1" + bytes(20))
    with pytest.raises(ConnectorError, match="Feather version 1"):
        open_source(str(tmp_path)).list()


def test_arrow_views_and_dictionaries_are_read(tmp_path: Path) -> None:
    table = pa.table(
        {"s": pa.array(["a", None], pa.string_view()), "b": pa.array([b"x", b"y"], pa.binary_view())}
    ).append_column("d", pa.array(["p", "q"]).dictionary_encode())
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    source = open_source(str(tmp_path))
    assert [str(kind) for kind in source.list().schema.types[:2]] == ["large_string", "large_binary"]
    assert rows_of(source) == [{"s": "a", "b": b"x", "d": "p"}, {"s": None, "b": b"y", "d": "q"}]


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("kind", [pa.list_view, pa.large_list_view])
@pytest.mark.parametrize("text", [pa.string(), pa.string_view()], ids=str)
def test_lists_that_are_views_are_plain_lists(text: Any, kind: Any, ending: str, tmp_path: Path) -> None:
    """They were no features; Arrow's cast to plain lists loses values behind a null."""
    lists = [[1.0, 2.0], None, [3.0], [], [4.0, 5.0]]
    tags = [["a"], ["b", "c"], None, ["d"], []]
    columns = {"v": pa.array(lists, kind(pa.float32())), "t": pa.array(tags, kind(text))}
    _write(tmp_path / f"a.{ending}", pa.table(columns))
    source = open_source(str(tmp_path / f"a.{ending}"))
    schema = source.list().schema
    assert [str(field.type).partition("<")[0].removeprefix("large_") for field in schema] == ["list", "list"]
    assert rows_of(source) == [{"v": v, "t": t} for v, t in zip(lists, tags, strict=True)]


VIEWED: dict[str, tuple[Any, list[Any]]] = {
    "list": (pa.list_(pa.string_view()), [["a"], None, ["b", None], []]),
    "large list": (pa.large_list(pa.binary_view()), [[b"a"], None]),
    "fixed list": (pa.list_(pa.string_view(), 2), [["a", "b"], ["c", "a text of more than twelve letters"]]),
    "struct": (pa.struct([("s", pa.string_view()), ("n", pa.int64())]), [{"s": "a", "n": 1}, None]),
    "list in a struct": (pa.struct([("s", pa.list_(pa.string_view()))]), [{"s": ["a"]}, {"s": None}, None]),
    "map": (pa.map_(pa.string_view(), pa.binary_view()), [[("a", b"x")], None]),
}


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("kind", VIEWED)
def test_texts_that_are_views_are_plain_within_lists_and_structs(
    kind: str, ending: str, tmp_path: Path
) -> None:
    """Arrow neither compares nor cuts views there, nor does it write all of them."""
    stored, values = VIEWED[kind]
    _write(tmp_path / f"a.{ending}", pa.table({"v": pa.array(values, stored)}))
    source = open_source(str(tmp_path / f"a.{ending}"))
    assert "view" not in str(source.list().schema.field("v").type)
    assert rows_of(source) == [{"v": value} for value in values]


def test_values_of_a_dictionary_are_plain(tmp_path: Path) -> None:
    values = pa.array(["a", "b"], pa.string_view())
    coded = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int8()), values)
    _write(tmp_path / "a.arrow", pa.table({"v": coded}))
    source = open_source(str(tmp_path))
    assert source.list().schema.field("v").type == pa.dictionary(pa.int32(), pa.large_string())
    assert rows_of(source) == [{"v": "b"}, {"v": None}, {"v": "a"}]


def test_values_of_a_dictionary_within_a_list_or_a_struct_are_plain(tmp_path: Path) -> None:
    """As polars writes a list of categories: Arrow makes neither texts nor Parquet of such views."""
    indices, values = pa.array([1, None, 0], pa.int8()), pa.array(["a", "b"], pa.string_view())
    coded = pa.DictionaryArray.from_arrays(indices, values)
    listed, held = pa.ListArray.from_arrays([0, 1, 1, 3], coded), pa.StructArray.from_arrays([coded], ["k"])
    _write(tmp_path / "a.arrow", pa.table({"l": listed, "s": held}))
    source = open_source(str(tmp_path))
    assert "view" not in str(source.list().schema)
    assert rows_of(source) == [
        {"l": ["b"], "s": {"k": "b"}},
        {"l": [], "s": {"k": None}},
        {"l": [None, "a"], "s": {"k": "a"}},
    ]


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_json_is_text(ending: str, tmp_path: Path) -> None:
    texts = ['{"a": 1}', None, "[2]"]
    table = pa.table({"j": pa.ExtensionArray.from_storage(pa.json_(), pa.array(texts))})
    _write(tmp_path / f"a.{ending}", table)
    source = open_source(str(tmp_path / f"a.{ending}"), filter=parse([["j", "!=", "[2]"], ["j", "!=", None]]))
    assert source.list().schema.field("j").type == pa.string()
    assert rows_of(source) == [{"j": '{"a": 1}'}]


def test_lists_that_share_their_values_are_bounded(tmp_path: Path) -> None:
    n = 1000
    starts, sizes = pa.array([0] * n, pa.int32()), pa.array([n] * n, pa.int32())
    shared = pa.ListViewArray.from_arrays(starts, sizes, pa.array(range(n), pa.int64()))
    _write(tmp_path / "a.arrow", pa.table({"v": shared}))
    assert rows_of(open_source(str(tmp_path)))[-1] == {"v": [*range(n)]}
    source = open_source(str(tmp_path), max_bytes=n * n)
    with pytest.raises(ConnectorError, match=r"column 'v': the rows take \d+ bytes or more in memory"):
        rows_of(source)


def test_one_long_text_in_many_lists_is_counted_as_often(tmp_path: Path) -> None:
    """The mean of a long text and many empty ones was next to nothing: 9 MB took 2 GB."""
    n, texts = 1000, pa.array(["x" * 1000, *[""] * 5000])
    first, sizes = pa.array([0] * n, pa.int32()), pa.array([1] * n, pa.int32())
    _write(tmp_path / "a.arrow", pa.table({"v": pa.ListViewArray.from_arrays(first, sizes, texts)}))
    source = open_source(str(tmp_path), max_bytes=n * 1000)
    with pytest.raises(ConnectorError, match=r"column 'v': the rows take 10\d{5} bytes or more in memory"):
        rows_of(source)
    assert written_out_bytes(pa.ListViewArray.from_arrays(first, sizes, texts)) == n * 1008


def _write(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def test_arrow_batches_that_take_too_much_memory_are_an_error(tmp_path: Path) -> None:
    table = pa.table({"n": range(1000)})
    with pa.ipc.new_stream(tmp_path / "a.arrows", table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(ConnectorError, match=r"record batches 0 to 0.*source\.max_shard_bytes allows 7999"):
        rows_of(open_source(str(tmp_path), max_bytes=7999))


def test_csv_columns_of_one_name_are_numbered(tmp_path: Path) -> None:
    """The header of COMPAS as published has two such pairs."""
    (tmp_path / "a.csv").write_text("x,score,x.1,score,x,score\n1,2,3,4,5,6\n")
    with pytest.raises(ConnectorError, match=r"more than once.*duplicate_names: number"):
        open_source(str(tmp_path)).list()
    options = {"duplicate_names": "number"}
    source = open_source(str(tmp_path), options=options, rename={"score.1": "violent"})
    assert rows_of(source) == [{"x": 1, "score": 2, "x.1": 3, "violent": 4, "x.2": 5, "score.2": 6}]


def write_twice(path: Path) -> None:
    """Five columns, three of them named x, in the format of the file's ending."""
    names, columns = ["x", "y", "x", "b", "x"], [[1, 2], ["u", "v"], [3.5, 4.5], [True, False], ["p", "q"]]
    table = pa.Table.from_arrays([pa.array(values) for values in columns], names=names)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=1)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_columns_of_one_name_are_told_apart_by_rename(ending: str, tmp_path: Path) -> None:
    write_twice(tmp_path / f"a.{ending}")
    with pytest.raises(
        ConnectorError, match=r"'x' is there more than once.*rename: \{x\.1: NAME, x\.2: NAME\}"
    ):
        open_source(str(tmp_path)).list()
    with pytest.raises(ConnectorError, match="more than once"):
        open_source(str(tmp_path), rename={"x.1": "second"}).list()
    source = open_source(str(tmp_path), rename={"x.1": "second", "x.2": "third"})
    assert rows_of(source) == [
        {"x": 1, "y": "u", "second": 3.5, "b": True, "third": "p"},
        {"x": 2, "y": "v", "second": 4.5, "b": False, "third": "q"},
    ]
    listing = source.list()
    for wanted in (["third"], ["second", "y"], ["third", "x"], []):
        found = source.read(listing.shards[0], wanted, listing.schema)
        assert found.column_names == wanted
        assert found.num_rows == listing.shards[0].n_rows
    filtered = open_source(
        str(tmp_path), rename={"x.1": "second", "x.2": "third"}, filter=parse([["second", ">", 4]])
    )
    assert [row["third"] for row in rows_of(filtered)] == ["q"]


DATA = Path(os.environ.get("ROWSIEVE_DATA", Path(__file__).resolve().parents[4] / "shared" / "data"))
COMPAS = DATA / "compas" / "compas-scores-two-years.csv"


@pytest.mark.skipif(
    not COMPAS.exists(), reason=f"no {COMPAS.name}: set ROWSIEVE_DATA to the folder of data sets"
)
def test_compas_as_published_with_propublicas_filter() -> None:
    """6,172 rows are left, as in ProPublica's notebook; pandas, which numbers names alike, reads the same."""
    clauses = [
        ["days_b_screening_arrest", "<=", 30],
        ["days_b_screening_arrest", ">=", -30],
        ["is_recid", "!=", -1],
        ["c_charge_degree", "!=", "O"],
        ["score_text", "!=", "N/A"],
    ]
    options = {"duplicate_names": "number"}
    source = open_source(str(COMPAS), options=options, filter=parse(clauses), shard_bytes=500_000)
    frame = pd.read_csv(COMPAS)
    near = frame["days_b_screening_arrest"].between(-30, 30) & (frame["is_recid"] != -1)
    kept = frame[near & (frame["c_charge_degree"] != "O") & frame["score_text"].notna()]
    assert len(kept) == 6172
    columns = ["id", "decile_score", "decile_score.1", "priors_count.1"]
    assert rows_of(source, columns) == kept[columns].to_dict("records")
    assert source.list().schema.names == list(frame.columns)


@pytest.mark.parametrize(
    ("name", "delimiter"), [("a.tsv", None), ("a.csv", ";"), ("a.csv", "|"), ("a.tsv.gz", None)]
)
def test_other_delimiters(name: str, delimiter: str | None, tmp_path: Path) -> None:
    text = 'n,t,x\n1,"a\n,b",1.5\n2,"""q""",\n'.replace(",", delimiter or "\t")
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    options = {"delimiter": delimiter} if delimiter else {}
    source = open_source(str(tmp_path), options=options, shard_bytes=10)
    assert rows_of(source) == [
        {"n": 1, "t": f"a\n{delimiter or chr(9)}b", "x": 1.5},
        {"n": 2, "t": '"q"', "x": None},
    ]


def test_a_delimiter_is_one_character_that_is_no_letter_digit_or_quote() -> None:
    for wrong in ("", "ab", "a", "1", '"', "\n", "é"):
        with pytest.raises(ValidationError, match="delimiter"):
            CsvOptions(delimiter=wrong)
    for right in ",;|\t:~^#":
        assert CsvOptions(delimiter=right).delimiter == right


def test_a_cache_of_datasets_is_told_from_a_saved_one(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "state.json").unlink()
    with pytest.raises(ConnectorError, match=r"has no state\.json.*\*\.arrow, with source\.format: arrow"):
        open_source(str(tmp_path)).list()
    assert len(rows_of(open_source(f"{tmp_path}/*.arrow", "arrow"))) == 3
