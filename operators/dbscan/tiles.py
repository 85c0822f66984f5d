"""Tiles of pairs: fast products that classify pairs as near, far or doubtful. Doubtful ones are decided in
float64.

Products run in float32 where that resolves the radii, in float64 otherwise. The doubtful band around a radius
is bounded by :func:`operators.points.rounding_error`, in whatever order a device adds up, so labels do
not depend on the device. A GPU computes the products and compares them with a threshold; the few pairs that
remain are decided on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import local
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from operators.arrays import Float64, Index, Mask
from operators.points import Operand, PreparedRows, rounding_error, smallest

Level: TypeAlias = npt.NDArray[np.int16]
Device: TypeAlias = str | torch.device

TILE_ROWS = 512
TILE_COLS = 2048
"""Size of a tile: large enough that the calls around a product cost little, small enough to stay in cache."""
DOUBT = 1 / 64
"""Half-width of the doubtful band relative to the radius, above which products are computed in float64."""
GPU_COLS = 32_768
"""Columns of a tile on a GPU, which waits for the host between two tiles."""
NUMPY_COMPARES = True
"""On the CPU NumPy compares products with thresholds, in less than half of torch's time."""

T = TypeVar("T")
R = TypeVar("R")


class Side(NamedTuple):
    """Rows that are the columns of tiles."""

    rows: Index
    operand: Operand
    bias: torch.Tensor
    size: float
    """Largest of their sizes, to which the rounding error is proportional."""


class TileBuffer(NamedTuple):
    """Memory of one tile, which is used again: new memory takes longer than comparing the products."""

    products: torch.Tensor
    near: torch.Tensor


class Tiles:
    """Products between rows of ``points``, compared with ascending radii (the levels).

    A gap is half the squared Euclidean distance of the prepared rows, or 1 - cos. A product here is
    <x, y> - |y|^2 / 2 (cosine: <x, y> - 1/2), that is |x|^2 / 2 - gap: larger is nearer.

    Parameters
    ----------
    points : the prepared rows.
    eps_values : radii, ascending.
    device : torch device that makes the products, default "cpu". A GPU must hold all rows.

    Attributes
    ----------
    limits : (n_levels,) float64: each radius as a gap.

    Raises
    ------
    ValueError : torch does not know the device, or does not see it here.
    """

    def __init__(self, points: PreparedRows, eps_values: Sequence[float], device: Device = "cpu") -> None:
        self._device = usable_device(device)
        self._on_host = NUMPY_COMPARES and self._device.type == "cpu"
        self.points, self.n = points, points.n
        self.eps = list(eps_values)
        self.limits: Float64 = np.array([points.limit(eps) for eps in eps_values])
        wide = 2 * rounding_error(points.depth, np.float32) * float(np.median(points.size))
        dtype: Any = np.float32 if wide < DOUBT * float(self.limits.min()) else np.float64
        rows, self.half = points.operand(dtype)
        self._rows = rows.to(self._device)
        self._size = points.size
        self._bias = self._there(-self.half)
        self._bound = rounding_error(points.depth, dtype)
        self._tiny = smallest(points.depth, dtype)
        self._buffers = local()

    @property
    def cols(self) -> int:
        """Most columns of a tile."""
        return TILE_COLS if self._on_host else GPU_COLS

    def fitting(self, cols: int) -> int:
        """Return how many rows a tile with ``cols`` columns may have."""
        return max(1, TILE_ROWS * self.cols // cols)

    def buffer(self, n_pairs: int = 0) -> TileBuffer:
        """Return the thread's own buffer, of at least one full tile and at least ``n_pairs`` pairs."""
        size = max(TILE_ROWS * self.cols, n_pairs)
        buffer: TileBuffer | None = getattr(self._buffers, "buffer", None)
        if buffer is None or len(buffer.near) < size:
            buffer = TileBuffer(self._bias.new_empty(size), self._bias.new_empty(size, dtype=torch.bool))
            self._buffers.buffer = buffer
        return buffer

    def side(self, rows: Index) -> Side:
        """Prepare rows as the columns of tiles."""
        index = self._there(rows)
        size = float(self._size[rows].max()) if len(rows) else 0.0
        return Side(rows, self._rows.take(index), self._bias.index_select(0, index), size)

    def products(self, rows: Index, cols: Side, buffer: TileBuffer) -> torch.Tensor:
        """Return the products, (len(rows), len(cols.rows)), in ``buffer``, which must be large enough."""
        out = buffer.products[: len(rows) * len(cols.rows)].view(len(rows), len(cols.rows))
        self._rows.take(self._there(rows)).multiply(cols.operand, cols.bias, out)
        return out

    def at_least(self, rows: Index, cols: Side, level: Any, certain: bool) -> Any:
        """Return the smallest product (len(rows),) of a pair that is certainly, or possibly, within its
        level.

        ``level`` is one level or one per row.
        """
        half, size = self.half[rows].astype(np.float64), self._size[rows].astype(np.float64)
        error = self._bound * (size + cols.size) + self._tiny
        return (half - self.limits[level] + (error if certain else -error)).astype(self.half.dtype)

    def near(self, products: torch.Tensor, least: Any, buffer: TileBuffer) -> Mask:
        """Return the mask of products that are at least ``least`` of their row, written to the buffer."""
        if self._on_host:
            out = buffer.near[: products.numel()].view(products.shape)
            return np.asarray(np.greater_equal(products.numpy(), least[:, None], out=out.numpy()))
        return np.asarray(self._near_there(products, least, buffer).numpy(force=True))

    def count_near(self, products: torch.Tensor, least: Any, buffer: TileBuffer) -> npt.NDArray[np.int64]:
        """Count the products (n_rows,) of each row that are at least ``least`` of it."""
        if self._on_host:
            return count_true(self.near(products, least, buffer))
        return np.asarray(self._near_there(products, least, buffer).sum(dim=1).numpy(force=True))

    def _near_there(self, products: torch.Tensor, least: Any, buffer: TileBuffer) -> torch.Tensor:
        out = buffer.near[: products.numel()].view(products.shape)
        return torch.ge(products, self._there(least)[:, None], out=out)

    def candidates(
        self, rows: Index, cols: Index, level: Any, buffer: TileBuffer
    ) -> tuple[Index, Index, Any]:
        """Return positions in ``rows`` and ``cols`` of pairs that may be within their level, and products."""
        side = self.side(cols)
        products, least = self.products(rows, side, buffer), self.at_least(rows, side, level, certain=False)
        if not self._on_host:
            return self._candidates_there(products, least, buffer)
        # Most rows of most tiles have no candidate; finding the rows that do is cheaper than marking pairs.
        hit = np.flatnonzero(products.amax(dim=1).numpy() >= least)
        if len(hit) < len(rows) // 2:
            products, least = products.index_select(0, torch.from_numpy(hit)), least[hit]
        else:
            hit = np.arange(len(rows))
        flat = np.flatnonzero(self.near(products, least, buffer))
        i, values = flat // len(cols), products.view(-1).index_select(0, torch.from_numpy(flat)).numpy()
        return hit[i], flat - i * len(cols), values

    def _candidates_there(
        self, products: torch.Tensor, least: Any, buffer: TileBuffer
    ) -> tuple[Index, Index, Any]:
        """Return the candidates of a tile; the device finds them, and only these are copied."""
        flat = self._near_there(products, least, buffer).view(-1).nonzero().view(-1)
        values = products.view(-1).index_select(0, flat).numpy(force=True)
        i, j = np.divmod(flat.numpy(force=True), products.shape[1])
        return i, j, values

    def _there(self, values: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)

    def neighbours(self, rows: Index, cols: Index, level: int, buffer: TileBuffer) -> tuple[Index, Index]:
        """Return rows and columns of all pairs within one level, exactly."""
        i, j, products = self.candidates(rows, cols, level, buffer)
        within = self.decide(rows[i], cols[j], products) <= level
        return rows[i[within]], cols[j[within]]

    def decide(self, rows: Index, cols: Index, products: Any) -> Level:
        """Return the exact level of each pair ``rows[k], cols[k]``: the first radius that holds it, or
        n_levels.
        """
        half_row = self.half[rows].astype(np.float64)
        gaps = half_row - products
        error = self._bound * (self._size[rows].astype(np.float64) + self._size[cols]) + self._tiny
        least = gaps - error
        level: Level = np.zeros(len(gaps), np.int16)
        for limit in self.limits:
            level += least > limit
        doubtful = np.flatnonzero(gaps + error > np.append(self.limits, np.inf)[level])
        while len(doubtful):
            eps = np.array(self.eps)[level[doubtful]]
            outside = ~self.points.pairs_within(rows[doubtful], cols[doubtful], eps)
            doubtful = doubtful[outside]
            level[doubtful] += 1
            doubtful = doubtful[level[doubtful] < len(self.eps)]
        return level


def usable_device(device: Device) -> torch.device:
    """Return the torch device of that name, ready for float32 products.

    Raises
    ------
    ValueError : torch does not know it, or does not see it here.
    """
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:  # the latter from torch without CUDA
        raise ValueError(
            f"device is {str(device)!r}, which torch cannot use here ({str(error).splitlines()[0]}). "
            "Use 'cpu', or 'cuda' where torch.cuda.is_available()."
        ) from error
    if found.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False  # its products would err by more than the band
    return found


def count_true(mask: Mask) -> npt.NDArray[np.int64]:
    """Count the true entries of each row."""
    words = np.packbits(mask, axis=1)
    if words.shape[1] % 8 == 0:
        words = words.view(np.uint64)
    return np.asarray(np.bitwise_count(words).sum(axis=1, dtype=np.int64))


def pieces(rows: Index, size: int) -> Iterator[Index]:
    """Divide ``rows`` into runs of at most ``size``."""
    return (rows[start : start + size] for start in range(0, len(rows), size))


def in_threads(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Call ``work`` on each item, in order, on as many threads as torch may use."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield from map(work, items)
        return
    torch.set_num_threads(1)  # one product per thread: tiles are too small to be shared
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield from pool.map(work, items)
    finally:
        torch.set_num_threads(threads)
