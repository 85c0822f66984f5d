"""Folders with symbolic links: no file counts twice, and links in a circle end."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from connectors import open_source
from connectors.base import ConnectorError
from connectors.files import list_files
from connectors.folder_listing import MAX_VISITS
from tests.unit import formats


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data/sub").mkdir(parents=True)
    formats.parquet(tmp_path / "data", "a", formats.rows()[:9])
    formats.parquet(tmp_path / "data/sub", "b", formats.rows()[9:])
    return tmp_path / "data"


def n_rows(path: object) -> int:
    return sum(shard.n_rows for shard in open_source(str(path)).list().shards)


@pytest.mark.parametrize(
    ("link", "target"), [("loop", "data"), ("sub/loop", "data"), ("sub/loop", "data/sub")]
)
def test_a_link_to_a_folder_above_is_not_followed(link: str, target: str, data: Path) -> None:
    (data / link).symlink_to(data.parent / target)
    for path in (data, f"{data}/**/*.parquet", f"file://{data}"):
        assert n_rows(path) == 23


def test_links_in_a_circle_end(data: Path) -> None:
    (data / "other").mkdir()
    (data / "other/to_sub").symlink_to("../sub")
    (data / "sub/to_other").symlink_to("../other")
    (data / "itself").symlink_to("itself")
    assert list_files(str(data)).names == tuple(
        f"{data}/{name}" for name in ("a.parquet", "other/to_sub/b.parquet", "sub/b.parquet")
    )


@pytest.mark.parametrize("link", ["sub/c.parquet", "c.parquet"])
def test_a_file_that_a_link_makes_two_is_an_error(link: str, data: Path) -> None:
    (data / link).symlink_to(data / "a.parquet")
    with pytest.raises(ConnectorError, match=rf"{data}/a\.parquet and {data}/{link} are one file"):
        open_source(str(data)).list()
    assert n_rows(data / link) == 9  # by itself, and below by a pattern that matches one of the two
    assert n_rows(f"{data}/**/c.parquet") == 9


def test_a_folder_that_a_link_makes_two_is_an_error(data: Path) -> None:
    (data / "alias").symlink_to("sub")
    with pytest.raises(ConnectorError, match=r"alias/b\.parquet and .*/sub/b\.parquet are one file"):
        open_source(str(data)).list()
    assert n_rows(data / "alias") == n_rows(f"{data}/ali*/*.parquet") == 14


def test_links_to_files_that_are_not_listed_are_read(data: Path) -> None:
    (data / "sub/b.parquet").rename(data / "sub/_b")
    (data / "sub/b.parquet").symlink_to("_b")
    (data / "nowhere.parquet").symlink_to("gone")
    assert n_rows(data) == 23


def test_folders_that_all_link_to_each_other_are_an_error(data: Path) -> None:
    names = [f"f{place}" for place in range(9)]
    for name in names:
        (data / name).mkdir()
    for name in names:
        for other in names:
            os.symlink(data / other, data / name / other)
    with pytest.raises(ConnectorError, match=f"symbolic links lead to .* by more than {MAX_VISITS} paths"):
        open_source(str(data)).list()


def test_a_thousand_folders_in_each_other_are_listed(data: Path) -> None:
    here = os.open(data, os.O_RDONLY)
    try:
        for _ in range(1100):
            os.mkdir("f", dir_fd=here)
            inner = os.open("f", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = inner
        os.close(os.open("end.csv", os.O_CREAT, dir_fd=here))
        assert list_files(str(data)).names[-2] == f"{data}/{'f/' * 1100}end.csv"
    finally:
        os.close(here)
        subprocess.run(["rm", "-rf", str(data / "f")], check=True)  # Python's rmtree recurses
