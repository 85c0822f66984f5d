"""Decoding of images from bytes or files. A ValueError says why an image cannot be decoded."""

from __future__ import annotations

import io
import struct
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, TiffImagePlugin

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
"""Formats that Pillow may try. Others include EPS, for which it starts Ghostscript."""
MAX_PIXELS = 2**26
"""An image that claims more is refused before it is decoded: 64 megapixels take 192 MB."""
MAX_SCANNED, START_OF_SCAN = 2**30, b"\xff\xda"
"""Pixels times scans of a JPEG file: two seconds of decoding. Progressive files have about ten scans."""
SCANNED = ("JPEG", "MPO")
"""Formats of JPEG in Pillow's words; the second is a JPEG that states more pictures behind the first."""
STRIP_OFFSETS, TILE_WIDTH, TILE_HEIGHT, TILE_OFFSETS = 273, 322, 323, 324
"""Tags of TIFF."""


def open_image(value: bytes | Path, size: int) -> NDArray[np.uint8]:
    """Decode an image, turn it as its EXIF says, cut its centre square, scale it (bicubic).

    Parameters
    ----------
    value : an encoded image in one of ``FORMATS`` (its first frame), or its file.
    size : height and width of the result in pixels.

    Returns
    -------
    (3, size, size) uint8, red, green, blue.

    Raises
    ------
    ValueError
        The file is not there, or its content is not a whole image, or larger than 64 megapixels, or goes over
        its pixels more often than any program writes them.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's own remark on large images: decided below
            return _decode(io.BytesIO(value) if isinstance(value, bytes) else value, size)
    except FileNotFoundError:
        raise ValueError("is a path where there is no file") from None
    except Image.DecompressionBombError as error:
        raise ValueError(f"is an image that is too large: {error}") from None
    except (OSError, SyntaxError, EOFError, struct.error) as error:
        raise ValueError(f"cannot be decoded as an image: {_first_line(error)}") from None


def refusal(folder: Path, path: Path) -> str:
    """Say why an image that a row names by its path is not opened; empty where it may be.

    It must be a regular file in ``folder``, with all symbolic links followed: rows are untrusted.
    """
    target = path.resolve()
    if not target.is_relative_to(folder.resolve()):
        return f"is a path that leads out of the data's folder {folder}; move the images into it"
    if target.exists() and not target.is_file():
        return "is a path that names no regular file"
    return ""


def _decode(file: io.BytesIO | Path, size: int) -> NDArray[np.uint8]:
    with Image.open(file, formats=FORMATS) as image:
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"is an image of {image.width} x {image.height} pixels, beyond {MAX_PIXELS:,}")
        if image.format in SCANNED:
            _check_scans(file, image.width * image.height)
        elif isinstance(image, TiffImagePlugin.TiffImageFile):
            _check_tiff(file, image)
        upright = ImageOps.exif_transpose(image).convert("RGB")
    square = ImageOps.fit(upright, (size, size), Image.Resampling.BICUBIC)
    return np.ascontiguousarray(np.asarray(square).transpose(2, 0, 1))


def _check_tiff(file: io.BytesIO | Path, image: TiffImagePlugin.TiffImageFile) -> None:
    """Raise ValueError for a TIFF file whose tiles take more memory than an image may, or has many scans."""
    tags = image.tag_v2
    width, height = int(tags.get(TILE_WIDTH, 0)), int(tags.get(TILE_HEIGHT, 0))
    if width * height > MAX_PIXELS:
        raise ValueError(f"is an image with tiles of {width} x {height} pixels, beyond {MAX_PIXELS:,}")
    if image.info.get("compression") in ("jpeg", "tiff_jpeg"):  # each part is a JPEG file of its own
        parts = {*(tags.get(TILE_OFFSETS) or tags.get(STRIP_OFFSETS) or ())}
        _check_scans(file, image.width * image.height // max(1, len(parts)))


def _check_scans(file: io.BytesIO | Path, pixels: int) -> None:
    """Raise ValueError for a JPEG file whose scans go over its pixels too often: a few bytes are a scan."""
    data = file.getvalue() if isinstance(file, io.BytesIO) else file.read_bytes()
    scans = data.count(START_OF_SCAN)
    if scans * pixels > MAX_SCANNED:
        raise ValueError(
            f"is an image that goes over its pixels {scans} times, {scans * pixels:,} pixels in all, beyond "
            f"{MAX_SCANNED:,}"
        )


def _first_line(error: Exception) -> str:
    """Return Pillow's text without the address of the buffer, which differs from run to run."""
    return str(error).split(" <")[0].split("\n")[0] or type(error).__name__
