"""Pictures of rows: image files of a column of bytes, with and without the recipe's word."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from engine.plan.model import Plan
from engine.report import thumbnails as module
from engine.report.thumbnails import FILE_SIDE, rows_per_request, thumbnails
from tests.unit.report_world import html_of, made, plan_over

EMBED = {"operators": {"embed": {"model": "efficientnet_lite0", "column": "photo"}}}
WANTED = np.array([0, 4, 30], np.int64)


def png(colour: tuple[int, int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (20, 10), colour).save(file, "PNG")
    return file.getvalue()


def plan_of_photos(folder: Path, *, in_structs: bool = False, **sections: Any) -> Plan:
    """Row i has the grey i; row 4 has no image, and row 5 one that is no image."""
    source, columns = made()
    files: list[Any] = [png((i, i, i)) for i in range(source.num_rows)]
    files[4], files[5] = None, b"GIF89a, but no more"
    photo = pa.array(files, pa.binary())
    if in_structs:
        photo = pa.StructArray.from_arrays([photo, pa.nulls(len(files), pa.string())], ["bytes", "path"])
    return plan_over(folder, source.append_column("photo", photo), columns, **sections)


@pytest.mark.parametrize("in_structs", [False, True])
@pytest.mark.parametrize("sections", [EMBED, {"report": {"image": {"column": "photo"}}}])
def test_image_files_are_drawn(tmp_path: Path, sections: dict[str, Any], in_structs: bool) -> None:
    found, fault = thumbnails(plan_of_photos(tmp_path, in_structs=in_structs, **sections), WANTED)
    assert fault == ""
    assert found is not None
    assert found.shape == (3, FILE_SIDE, FILE_SIDE, 3)
    assert np.allclose(found[0], 0)
    assert np.allclose(found[1], 1), "a row without an image is white"
    assert np.allclose(found[2], 30 / 255)


def test_the_page_shows_them_instead_of_fields(tmp_path: Path) -> None:
    html = html_of(plan_of_photos(tmp_path, **EMBED))
    assert 'class="thumb group-0-1"' in html
    assert "background-image: url(data:image/png" in html


def test_nobody_who_reads_no_image_gets_one(tmp_path: Path) -> None:
    assert thumbnails(plan_of_photos(tmp_path), WANTED) == (None, "")


def test_a_large_source_is_read_again_only_if_the_recipe_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNASKED_BYTES", 100)
    found, fault = thumbnails(plan_of_photos(tmp_path / "a", **EMBED), WANTED)
    assert found is None
    assert "`report: {image: {column: photo}}` draws them all the same" in fault
    asked = plan_of_photos(tmp_path / "b", report={"image": {"column": "photo"}})
    assert thumbnails(asked, WANTED)[0] is not None


def test_vectors_need_their_height_and_width(tmp_path: Path) -> None:
    plan = plan_of_photos(tmp_path, report={"image": {"column": "picture"}})
    found, fault = thumbnails(plan, WANTED)
    assert found is None
    assert "need height and width" in fault
    assert rows_per_request(plan, 4) > 100


def test_bytes_that_are_no_images_leave_the_fields(tmp_path: Path) -> None:
    source, columns = made()
    raw = pa.array([b"\x00\x01\x02"] * source.num_rows, pa.binary())
    source = source.append_column("photo", raw)
    asked = plan_over(tmp_path / "a", source, columns, report={"image": {"column": "photo"}})
    assert thumbnails(asked, WANTED) == (
        None,
        "report.image: 'photo' has no image file in any row that is shown: fields are.",
    )
    assert thumbnails(plan_over(tmp_path / "b", source, columns, **EMBED), WANTED) == (None, "")


def test_images_in_a_dictionary_are_drawn(tmp_path: Path) -> None:
    source, columns = made()
    coded = pa.array([png((7, 7, 7))] * source.num_rows, pa.binary()).dictionary_encode()
    found, _ = thumbnails(plan_over(tmp_path, source.append_column("photo", coded), columns, **EMBED), WANTED)
    assert found is not None
