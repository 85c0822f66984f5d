"""Texts in files that make a pattern take seconds or hours elsewhere are read, or refused, at once."""

from __future__ import annotations

import gzip
import io
import os
import re
import resource
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from connectors import csv_source, open_source, packed_text, text_source
from connectors.base import ConnectorError, Source, SourceSpec
from connectors.cells import CellRules, nulls_for_missing
from connectors.column_names import check_same_names, number_repeated
from connectors.schema import pick
from tests.unit import formats

N = 10_000
RULES = {
    "plain": CellRules(),
    "thousands": CellRules(decimal=",", thousands="."),
    "missing": CellRules(strip=True, missing=("", " ", "?", "9")),
}


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("text", ["9" * N + "x", "9." * N, "1" + ".999" * N + "x", "1e" + "9" * N + "x"])
def test_the_pattern_of_a_number_is_linear(text: str, rules: CellRules) -> None:
    assert seconds(lambda: re.fullmatch(rules.number, text)) < 1


@pytest.mark.parametrize("text", ["1", "1.", "1.5", ".5", "-1.5e-3", "+7", " 12 ", "NaN", "Inf", "1" * 64])
def test_numbers_are_numbers(text: str) -> None:
    assert re.fullmatch(CellRules().number, text)


@pytest.mark.parametrize("text", ["", ".", "1..", "1.2.3", "e5", "1e", "x1", "1x", "--1"])
def test_other_texts_are_none(text: str) -> None:
    assert not re.fullmatch(CellRules().number, text)


def test_missing_words_of_json_are_found_in_linear_time() -> None:
    spec = SourceSpec("x", strip=True, missing=("", "NA", " ? "))
    hostile = ('{"a": "' + " " * N + 'x"}\n{"a": "' + " " * N + "NA").encode()
    assert seconds(lambda: nulls_for_missing(hostile, spec)) < 1
    found = nulls_for_missing(b'{"a": "  NA ", "b": "", "c":"  ", "d": " ?", "e": "NAN"}', spec)
    assert found == b'{"a": null, "b": null, "c":null, "d": null, "e": "NAN"}'


def test_a_long_name_in_a_header_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("9" * N + "x,a,a\n1,2,3\n")

    def refused() -> None:
        with pytest.raises(ConnectorError, match=r"a\.csv, line 1: the name of column 1 has 10,001 bytes"):
            open_source(str(file)).list()

    assert seconds(refused) < 1
    assert [shard.n_rows for shard in open_source(str(file), options={"header": False}).list().shards] == [2]
    assert open_source(str(file), options={"column_names": ["x", "y", "z"]}).list().schema.names == [*"xyz"]


@pytest.mark.parametrize(("name", "accepted"), [("ä" * 512, True), ("ä" * 513, False), ("b" * 1024, True)])
def test_names_have_at_most_a_kilobyte(name: str, accepted: bool, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"a,{name}\n1,2\n", "utf-8")
    if accepted:
        assert open_source(str(file)).list().schema.names == ["a", name]
        return
    with pytest.raises(ConnectorError, match=r"column 2 has 1,026 bytes.*source\.options\.header: false"):
        open_source(str(file)).list()


def test_two_columns_of_a_long_name_are_told_apart_at_once(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    name = "9" * 1000 + "x"
    file.write_text(",".join([name] * 200) + "\n")

    def refused() -> None:
        with pytest.raises(ConnectorError, match="duplicate_names"):
            open_source(str(file)).list()

    assert seconds(refused) < 1


def test_names_that_are_not_utf8_are_errors_of_the_file(tmp_path: Path) -> None:
    """Names of files, and names in tars, may be any bytes. The second was found by fuzzing."""
    (tmp_path / "files").mkdir()
    os.close(os.open(os.fsencode(tmp_path / "files") + b"/b\xff.csv", os.O_CREAT))
    with pytest.raises(ConnectorError, match=r"name is not UTF-8: .*/b\\xff\.csv"):
        open_source(str(tmp_path / "files"), format="csv").list()
    for name in ("a.js\udcffn", "a\udcff.json"):
        with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.GNU_FORMAT) as tar:
            formats.add(tar, name, b"{}")
        with pytest.raises(ConnectorError, match=r"x\.tar .*\\udcff.* is not UTF-8"):
            open_source(str(tmp_path / "x.tar")).list()


@pytest.mark.parametrize(
    "values",
    [np.array([1j]), np.zeros(1, "i4,i4"), np.array(["2020-01-01"], "M8[D]"), np.zeros(1, np.longdouble)],
)
def test_numbers_of_a_tar_that_no_column_holds(values: npt.NDArray[Any], tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, values)
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        formats.add(tar, "a.npy", stream.getvalue())
    source = open_source(str(tmp_path / "x.tar"))
    with pytest.raises(ConnectorError, match=r"x\.tar: the values of \.npy"):
        source.read((listing := source.list()).shards[0], ["npy"], listing.schema)


@pytest.mark.parametrize("name", ["x.csv.gz", "x.jsonl.gz"])
def test_a_row_that_unpacks_beyond_the_parser_is_an_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three megabytes of gzip hold a cell of three gigabytes, at which Arrow ends in OverflowError."""
    rows = b'a,b\n1,x\n2,"%s"\n' if "csv" in name else b'{"b":"x"}\n{"b":"%s"}\n'
    (tmp_path / name).write_bytes(gzip.compress(rows % (b"0" * 10**6)))
    monkeypatch.setattr(text_source, "MAX_PARSED", 10**5)
    source = open_source(str(tmp_path / name))
    with pytest.raises(ConnectorError, match="more than the 100,000 that can be parsed at once"):
        _read_all(source)


def _read_all(source: Source) -> None:
    listing = source.list()
    for shard in listing.shards:
        source.read(shard, ["b"], listing.schema)


@pytest.mark.parametrize("codec", ["gz", "bz2", "zst"])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_small_file_that_unpacks_without_end_is_refused(
    kind: str, codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_text, "UNPACKED_BYTES", 2**20)
    row, head = (b"1,2\n", b"label,x\n") if kind == "csv" else (b'{"label": 1, "x": 2}\n', b"")
    path = tmp_path / f"bomb.{kind}.{codec}"
    with pa.CompressedOutputStream(str(path), packed_text.CODECS[f".{codec}"]) as file:
        file.write(head + row * (8 * 2**20 // len(row)))
    source = open_source(str(path))
    if path.stat().st_size * packed_text.MAX_RATIO > 8 * 2**20:
        assert source.list().shards
        return
    with pytest.raises(
        ConnectorError, match=rf"bomb\.{kind}\.{codec} unpacks to more than 250 times .*unpack it"
    ):
        source.list()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(kind: bytes, tmp_path: Path) -> None:
    """They were passed over, so that the field was missing in their sample without a word."""
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        formats.add(tar, "a.cls", b"1")
        info = tarfile.TarInfo("a.txt")
        info.type, info.linkname = kind, "/etc/hostname"
        tar.addfile(info)
    with pytest.raises(ConnectorError, match=r"x\.tar: a\.txt is a link or a device.*dereference"):
        open_source(str(tmp_path / "x.tar")).list()


def test_a_header_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_source, "MAX_HEADER_BYTES", 2**17)
    (tmp_path / "a.csv").write_bytes(b"label" + b",a" * 2**18 + b"\n1\n")
    with pytest.raises(
        ConnectorError, match=r"a\.csv: line 1, the header, does not end within 131,072 bytes"
    ):
        open_source(str(tmp_path / "a.csv")).list()


@pytest.mark.parametrize("header", [True, False])
def test_more_columns_than_a_parser_can_hold_are_refused(header: bool, tmp_path: Path) -> None:
    """300,000 columns in 2.7 MB took 2.8 GB."""
    (tmp_path / "a.csv").write_text(",".join(f"c{place}" for place in range(100_001)) + "\n1\n")
    with pytest.raises(
        ConnectorError, match=r"a\.csv: line 1 has 100,001 cells, and at most 100,000 columns"
    ):
        open_source(str(tmp_path / "a.csv"), options={"header": header}).list()


def test_columns_of_one_name_take_linear_time(tmp_path: Path) -> None:
    """The numbers of the later ones were looked for anew among all names: hours for a header of 100 KB."""
    assert number_repeated(["a", "a.1", "a", "a", "b", "b"]) == ["a", "a.1", "a.2", "a.3", "b", "b.1"]
    (tmp_path / "a.csv").write_bytes(b"label" + b",a" * 50_000 + b"\n1\n")
    with pytest.raises(ConnectorError, match=r"the column name 'a' is there more than once"):
        assert seconds(lambda: open_source(str(tmp_path / "a.csv")).list()) < 5
    names = [f"c{place}" for place in range(50_000)]
    assert seconds(lambda: check_same_names("a", names, "b", names[::-1])) < 2
    schema = pa.schema([(name, pa.int8()) for name in names])
    assert seconds(lambda: pick(schema, names, "a")) < 2


def own_keys(row: int) -> str:
    return "{" + ",".join(f'"k{row}_{place}":1' for place in range(30)) + "}"


WIDE = {
    "keys of its own in each row": "\n".join(map(own_keys, range(4000))),
    "many columns in the first row, many empty rows": own_keys(0)[:-1]
    + "".join(f',"w{place}":1' for place in range(20_000))
    + "}"
    + "\n{}" * 40_000,
    "a list of objects": '{"a":[' + ",".join(own_keys(row) for row in range(2000)) + "]}",
    "the same keys in many objects": "\n".join(
        f'{{"o{row}":' + "{" + ",".join(f'"i{place}":1' for place in range(200)) + "}}" for row in range(1000)
    ),
}


@pytest.mark.parametrize("text", WIDE.values(), ids=WIDE)
def test_few_bytes_of_json_make_no_gigabytes_of_columns(text: str, tmp_path: Path) -> None:
    """A cell for each row and each key that any row has: 0.4 MB of them took 650 MB."""
    (tmp_path / "x.jsonl").write_text(text + "\n")

    def refused() -> None:
        with pytest.raises(ConnectorError, match=r"x\.jsonl: [\d,]+ objects have [\d,]+ keys or more"):
            open_source(str(tmp_path / "x.jsonl")).list()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert seconds(refused) < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000  # KiB


@pytest.mark.parametrize(
    "text",
    [
        '{"a":[' + ",".join(f'{{"x":{place},"y":1,"z":"t"}}' for place in range(100_000)) + "]}",
        "\n".join(f'{{"a":{row},"text":"{"{:}" * 200}"}}' for row in range(2000)),
        "\n".join(f'{{"a":{row},"b":{{"c":1,"d":[{{"e":1}}]}}}}' for row in range(30_000)),
    ],
    ids=["a long list of objects", "braces in texts", "objects in objects"],
)
def test_json_of_many_objects_is_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(text + "\n")
    source = open_source(str(tmp_path / "x.jsonl"))
    listing = source.list()
    assert sum(source.read(shard, ["a"], listing.schema).num_rows for shard in listing.shards)


def test_a_tar_of_many_endings_is_refused(tmp_path: Path) -> None:
    """To find the type of one that ends in json, a shard was read: 20 MB took hours."""
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for place in range(2000):
            info = tarfile.TarInfo(f"{place}.f{place}.json")
            info.size = 2
            tar.addfile(info, io.BytesIO(b"{}"))

    def refused() -> None:
        with pytest.raises(ConnectorError, match=r"x\.tar: its files have more than 256 different endings"):
            open_source(str(tmp_path / "x.tar")).list()

    assert seconds(refused) < 5
