"""The demo's dataset: handwritten digits with a spurious background and known damage.

It has the 1,797 8x8 images of scikit-learn's ``load_digits``, which need no download. The label is whether
the digit has a closed loop (0, 6, 8, 9). In 92 % of the rows the background is bright if there is a loop and
dark if there is none, so that a model can rely on it; the other rows are the minority that GRASP should find.
As in Waterbirds, one class has most of it: 105 of 1,000 digits without a loop are bright, 42 of 1,000 with
one are dark. The larger group has more rows than the largest ``min_samples`` of GRASP's grid, so that it can
be a cluster in every cell; the smaller one has fewer, and usually is noise. 3 % of the images are scrambled
and 1 % of the labels flipped. Both are outliers, but a model that follows the background cannot tell a
flipped label from a minority row. The brightness suits a probe on pixels without standardisation, with l2 of
0.1 to 0.2. ``true_group`` and ``true_outlier`` record what was done to each row, for scoring only.

    python -m connectors.digits OUT --rows all --seed 0 --shards 6

With ``--png 64`` the column ``image`` holds PNG files of 64 x 64 pixels instead of 64 numbers.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.datasets import load_digits

from connectors.base import ConnectorError
from connectors.sink import write_shards

LOOPS = (0, 6, 8, 9)
LOOP_DARK = 0.0425
"""Share of the digits with a loop whose background is dark."""
NO_LOOP_BRIGHT = 0.105
"""Share of the digits without a loop whose background is bright."""
SCRAMBLED = 0.03
FLIPPED = 0.01
BRIGHTNESS = 0.5

Images = npt.NDArray[np.float64]


def make_digits(
    rows: int | None = None,
    *,
    seed: int = 0,
    brightness: float = BRIGHTNESS,
    png: int | None = None,
    shares: tuple[float, float] = (LOOP_DARK, NO_LOOP_BRIGHT),
) -> pa.Table:
    """Build the table: image, label, id, digit, true_group, true_outlier.

    Parameters
    ----------
    rows : how many rows, from the first; default all 1,797.
    seed : decides which rows disagree with their background, are scrambled or flipped.
    brightness : value of a bright background, in [0, 1]: it replaces the pixels that are 0.
    png : height and width in pixels, a multiple of 8: images are then grey PNG files; default vectors of 64
        numbers in [0, 1].
    shares : of the digits with a loop those that are dark, and of those without one those that are bright; at
        (0.5, 0.5) the background says nothing.

    Raises
    ------
    ValueError
        ``rows`` is not between 1 and 1,797, or ``png`` no multiple of 8.
    """
    data = load_digits()
    n = len(data.target) if rows is None else rows
    if not 1 <= n <= len(data.target):
        raise ValueError(f"rows is {n}: choose 1 to {len(data.target)}, or 'all'")
    if png is not None and (png < 8 or png % 8):
        raise ValueError(f"png is {png}: choose a multiple of 8, the width of a digit")
    digit = data.target[:n]
    rng = np.random.default_rng(seed)
    loop = np.isin(digit, LOOPS)
    agrees = np.ones(n, bool)
    for kind, share in zip((loop, ~loop), shares, strict=True):
        agrees[_draw(rng, np.flatnonzero(kind), share)] = False
    bright = loop == agrees
    scrambled, flipped = np.zeros(n, bool), np.zeros(n, bool)
    scrambled[_draw(rng, np.arange(n), SCRAMBLED)] = True
    flipped[_draw(rng, np.flatnonzero(~scrambled), FLIPPED)] = True

    image: Images = np.asarray(data.data[:n]) / 16.0
    image = np.where(bright[:, None], _background(image, brightness), image)
    image[scrambled] = rng.permuted(image[scrambled], axis=1)
    label = np.where(loop ^ flipped, "loop", "no_loop")
    group = np.char.add(np.where(loop, "loop/", "no_loop/"), np.where(bright, "bright", "dark"))
    group = np.where(scrambled, "scrambled", np.where(flipped, "flipped", group))
    return pa.table(
        {
            "image": _images(image) if png is None else _pngs(image, png),
            "label": pa.array(label.tolist(), pa.string()),
            "id": pa.array([f"digit-{i:05d}" for i in range(n)], pa.string()),
            "digit": pa.array(digit, pa.int8()),
            "true_group": pa.array(group.tolist(), pa.string()),
            "true_outlier": pa.array(scrambled | flipped),
        }
    )


def _draw(rng: np.random.Generator, rows: npt.NDArray[np.intp], share: float) -> npt.NDArray[np.intp]:
    """Choose ``share`` of the rows at random, rounded to whole rows."""
    return rng.choice(rows, round(share * len(rows)), replace=False)


def _background(image: Images, brightness: float) -> Images:
    """Return the images with pixels of 0 set to ``brightness``."""
    return np.where(image == 0, brightness, image)


def _images(image: Images) -> pa.Array:
    pixels = pa.array(image.astype(np.float32).ravel())
    return pa.FixedSizeListArray.from_arrays(pixels, image.shape[1])


def _pngs(image: Images, side: int) -> pa.Array:
    from PIL import Image  # imported here because only this needs it

    files = []
    for grey in np.round(image * 255).astype(np.uint8).reshape(-1, 8, 8):
        file = io.BytesIO()
        Image.fromarray(grey).resize((side, side), Image.Resampling.NEAREST).save(file, "PNG")
        files.append(file.getvalue())
    return pa.array(files, pa.binary())


def write_digits(
    out: Path, rows: int | None = None, *, seed: int = 0, shards: int = 6, png: int | None = None
) -> list[Path]:
    """Write :func:`make_digits` to ``out`` as ``shards`` Parquet files of nearly equal length."""
    return write_shards(make_digits(rows, seed=seed, png=png), out, "digits", shards)


def main() -> None:
    """Run the command line of this module."""
    parser = argparse.ArgumentParser(
        prog="python -m connectors.digits", description="Write the demo's digits."
    )
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("--rows", default="all", help="how many rows, or 'all' (1,797)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shards", type=int, default=6, help="number of Parquet files")
    parser.add_argument("--png", type=int, help="write PNG files of so many pixels' width as the images")
    given = parser.parse_args()
    try:
        rows = None if given.rows == "all" else int(given.rows)
        paths = write_digits(given.out, rows, seed=given.seed, shards=given.shards, png=given.png)
    except (ConnectorError, ValueError, OSError) as error:
        parser.error(str(error))
    print(f"{len(paths)} files in {given.out}")


if __name__ == "__main__":
    main()
