"""The demo's digits: what was done to which row, and that a probe falls for the background."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from connectors import digits, open_source
from connectors.digits import BRIGHTNESS, make_digits, write_digits


def pixels(table: pa.Table) -> np.ndarray:
    return np.array(table["image"].to_pylist())


def words(table: pa.Table, column: str) -> np.ndarray:
    return np.array(table[column].to_pylist())


def test_columns_and_types() -> None:
    table = make_digits()
    assert table.num_rows == 1797
    assert table.schema == pa.schema(
        [
            ("image", pa.list_(pa.float32(), 64)),
            ("label", pa.string()),
            ("id", pa.string()),
            ("digit", pa.int8()),
            ("true_group", pa.string()),
            ("true_outlier", pa.bool_()),
        ]
    )
    assert pixels(table).min() == 0
    assert pixels(table).max() == 1
    assert table["id"][42].as_py() == "digit-00042"
    assert table["digit"].to_pylist() == load_digits().target.tolist()


@pytest.mark.parametrize("seed", [0, 1])
def test_shares_are_as_documented(seed: int) -> None:
    table = make_digits(seed=seed)
    group, digit = words(table, "true_group"), words(table, "digit")
    assert (group == "scrambled").sum() == round(0.03 * 1797)
    assert (group == "flipped").sum() == round(0.01 * 1743)
    assert np.array_equal(words(table, "true_outlier"), np.isin(group, ["scrambled", "flipped"]))
    loop = np.isin(digit, [0, 6, 8, 9])
    # a bright image has no black pixel left, but neither may a scrambled or flipped one be counted twice
    bright = pixels(table).min(axis=1) > 0
    assert (bright == loop).mean() == pytest.approx(0.92, abs=0.001)
    wrong = (words(table, "label") == "loop") != loop
    assert np.array_equal(wrong, group == "flipped")
    plain = ~words(table, "true_outlier")
    expected = np.where(loop, "loop/", "no_loop/").astype(object) + np.where(bright, "bright", "dark")
    assert np.array_equal(group[plain], expected[plain].astype(str))


def test_only_the_background_and_the_scrambled_differ_from_the_scans() -> None:
    table = make_digits(seed=3)
    found, scans = pixels(table), (load_digits().data / 16).astype(np.float32)
    bright = found.min(axis=1) > 0
    painted = np.where(bright[:, None] & (scans == 0), np.float32(BRIGHTNESS), scans)
    scrambled = words(table, "true_group") == "scrambled"
    assert np.array_equal(found[~scrambled], painted[~scrambled])
    assert np.array_equal(np.sort(found[scrambled]), np.sort(painted[scrambled]))
    assert not (found[scrambled] == painted[scrambled]).all(axis=1).any()


def test_images_as_files_hold_the_same_pixels() -> None:
    plain, encoded = make_digits(50), make_digits(50, png=16)
    found = [np.asarray(Image.open(io.BytesIO(file))) for file in encoded["image"].to_pylist()]
    expected = np.round(pixels(plain) * 255).reshape(-1, 8, 8).repeat(2, axis=1).repeat(2, axis=2)
    assert np.array_equal(found, expected)
    assert encoded.drop_columns(["image"]).equals(plain.drop_columns(["image"]))
    with pytest.raises(ValueError, match="png is 20: choose a multiple of 8"):
        make_digits(50, png=20)


def test_a_strongly_regularised_probe_follows_the_background() -> None:
    table = make_digits()
    x, y, group = pixels(table), words(table, "label"), words(table, "true_group")
    right = LogisticRegression(C=0.01, max_iter=1000).fit(x, y).predict(x) == y
    minority = np.isin(group, ["loop/dark", "no_loop/bright"])
    majority = np.isin(group, ["loop/bright", "no_loop/dark"])
    assert right[minority].mean() < 0.2
    assert right[majority].mean() > 0.95


def test_files_are_the_same_for_a_seed(tmp_path: Path) -> None:
    write_digits(tmp_path / "a", 100, shards=5)
    first = write_digits(tmp_path / "a", 100, shards=3)
    again = write_digits(tmp_path / "b", 100, shards=3)
    assert sorted((tmp_path / "a").iterdir()) == first
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]
    source = open_source(str(tmp_path / "a"))
    listing = source.list()
    found = pa.concat_tables([source.read(s, listing.schema.names, listing.schema) for s in listing.shards])
    assert found.to_pylist() == make_digits(100).to_pylist()
    assert make_digits(100, seed=1)["image"] != make_digits(100)["image"]


def test_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "connectors.digits", str(tmp_path), "--rows", "20", "--shards", "2"]
    subprocess.run(command, check=True, capture_output=True)
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    monkeypatch.setattr(sys, "argv", ["digits", str(tmp_path), "--rows", "9999"])
    with pytest.raises(SystemExit):
        digits.main()
    assert "rows is 9999: choose 1 to 1797" in capsys.readouterr().err
