"""One interface to the indexes of FAISS: the rows that may be near a query, smaller gaps first.

FAISS is imported only where an index is asked for. Its number of threads is always set and restored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from operators.arrays import Float32, Float64, Ids, Matrix
from operators.neighbours.geometry import Geometry
from operators.points import blocks


def load_faiss() -> Any:
    """Return the module ``faiss``.

    Raises
    ------
    ImportError
        It is not installed. The text names the extra that brings it.
    """
    try:
        import faiss
    except ImportError as error:
        raise ImportError(
            f"operators.neighbours needs FAISS, which does not import here ({error}). Run `pip install "
            "'rowsieve[cpu]'`, or `pip install 'rowsieve[gpu]'` on a machine with an NVIDIA GPU; never both, "
            "as they unpack into the same folder."
        ) from error
    return faiss


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let FAISS use ``count`` threads inside the block.

    OpenMP's own default is read once per process, and a count set in one Ray task leaks into the
    next one of the same process: so it is always set, and put back.
    """
    faiss = load_faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(max(1, count))
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


Kind: TypeAlias = Literal["flat", "ivf", "hnsw"]
Pairs: TypeAlias = tuple[Ids, Ids]

KINDS: tuple[Kind, ...] = ("flat", "ivf", "hnsw")
RECALL_PARAMETERS = {"ivf": "nprobe", "hnsw": "ef_search"}

"""Parameter of each approximate index that raises its recall."""
LISTS_PER_ROOT = 1
"""IVF lists per square root of n. FAISS advises 4 for few neighbours; a radius may hold many."""
ROWS_PER_LIST = 39
"""Fewest rows that train a centroid."""
TRAINING_PER_LIST = 256
"""Rows of a list beyond which its centroid is not trained better."""
LINKS = 32
"""HNSW: links of a row on the upper layers, half of those on the lowest."""
EF_CONSTRUCTION = 200
PER_CANDIDATE = 2 * LINKS
"""Rows that HNSW compares for each candidate."""
FIRST_REACH = 64
"""Rows asked of HNSW before it is known whether the radius holds more."""
MAX_GPU_NEIGHBOURS = 2048
"""Nearest rows that FAISS finds on a GPU."""
BLOCK = 65_536
"""Rows added at once."""


class Index:
    """A built index over prepared rows.

    Parameters
    ----------
    kind : "flat", "ivf" or "hnsw".
    built : the FAISS index, on the CPU. A flat one is copied to the first GPU where there is one.
    nprobe : IVF lists looked at per query.
    ef_search : HNSW candidates kept per query.
    """

    def __init__(self, kind: Kind, built: Any, nprobe: int, ef_search: int) -> None:
        self.kind = kind
        self._built = built
        self._gpu = _on_gpu(built) if kind == "flat" else None
        self._similarity = built.metric_type == load_faiss().METRIC_INNER_PRODUCT
        if kind == "ivf":
            built.nprobe = nprobe
        self._ef_search = ef_search

    @property
    def size(self) -> int:
        """Number of rows in the index."""
        return int(self._built.ntotal)

    @classmethod
    def build(
        cls,
        kind: Kind,
        X: Matrix,
        geometry: Geometry,
        *,
        nprobe: int,
        ef_search: int,
        seed: int,
        rows: Ids | None = None,
    ) -> Index:
        """Index rows (n, p), block by block, on one thread, since HNSW built on several threads differs each
        time. With ``rows``, a flat index has the rows at these positions only.
        """
        if kind not in KINDS:
            raise ValueError(f"index is {kind!r}; use one of {', '.join(KINDS)}")
        with threads(1):
            built = _empty(kind, X, geometry, seed)
            for some in blocks(len(X) if rows is None else len(rows), BLOCK):
                built.add(geometry.prepared(X[some if rows is None else rows[some]]))
        return cls(kind, built, nprobe, ef_search)

    @classmethod
    def load(cls, kind: Kind, path: Path, nprobe: int, ef_search: int) -> Index:
        """Map what :meth:`save` wrote into memory: processes of one machine share its pages."""
        faiss = load_faiss()
        return cls(kind, faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC), nprobe, ef_search)

    def save(self, path: Path) -> None:
        """Write the index as one file."""
        load_faiss().write_index(self._built, str(path))

    def within(self, queries: Float32, gap: float) -> Pairs:
        """Return the positions of queries and rows whose gap is at most ``gap``; a flat index finds all.

        Some further away may be among them, as the radius is rounded up.
        """
        if self.kind == "hnsw":
            return self._within_by_nearest(queries, gap)
        return self._range_search(self._built, queries, gap)

    def nearest(self, queries: Float32, k: int) -> tuple[Pairs, Float64]:
        """Return up to k nearest rows of each query, and the largest gap among them, infinite if those are
        all rows.
        """
        gaps, cols = self._search(queries, min(k, self.size))
        found = cols >= 0
        furthest = np.where(found, gaps, -np.inf).max(axis=1, initial=-np.inf)
        furthest[(k >= self.size) | ~found.all(axis=1)] = np.inf
        return (np.nonzero(found)[0], cols[found]), furthest

    def _search(self, queries: Float32, k: int) -> tuple[Float64, Ids]:
        index = self._built if self._gpu is None or k > MAX_GPU_NEIGHBOURS else self._gpu
        if self.kind == "hnsw":
            # With fewer candidates than k FAISS stops early and returns fewer rows.
            options = load_faiss().SearchParametersHNSW(efSearch=max(self._ef_search, k))
            values, cols = index.search(queries, k, params=options)
        else:
            values, cols = index.search(queries, k)
        gaps = values.astype(np.float64)
        return (1.0 - gaps if self._similarity else gaps), cols

    def _within_by_nearest(self, queries: Float32, gap: float) -> Pairs:
        """Ask for more and more of the nearest rows until the last one is outside.

        HNSW's own range search aborts the process (FAISS 1.15) once a call is long enough for FAISS to
        look for interrupts, and it keeps no more than ef_search candidates. Where so many rows are near that
        walking along links compares as many as there are, all rows are compared instead.
        """
        k, rows, cols = FIRST_REACH, [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        waiting = np.arange(len(queries))
        while len(waiting) and k * PER_CANDIDATE < self.size:
            gaps, found = self._search(queries[waiting], k)
            near = (found >= 0) & (gaps <= gap)
            more = near[:, -1]
            done = np.flatnonzero(~more)
            some = near[done]
            rows.append(waiting[done][np.nonzero(some)[0]])
            cols.append(found[done][some])
            waiting, k = waiting[more], 4 * k
        if len(waiting):
            left = self._range_search(self._built.storage, queries[waiting], gap)
            rows.append(waiting[left[0]])
            cols.append(left[1])
        return np.concatenate(rows), np.concatenate(cols)

    def _range_search(self, index: Any, queries: Float32, gap: float) -> Pairs:
        limit = np.float32(1.0 - gap if self._similarity else gap)
        # FAISS compares strictly.
        radius = float(np.nextafter(limit, np.float32(-np.inf if self._similarity else np.inf)))
        if self._gpu is None:
            starts, _, cols = index.range_search(queries, radius)
        else:
            from faiss.contrib.exhaustive_search import range_search_gpu

            starts, _, cols = range_search_gpu(queries, radius, self._gpu, index)
        return np.repeat(np.arange(len(queries)), np.diff(starts.astype(np.int64))), cols


def _empty(kind: Kind, X: Matrix, geometry: Geometry, seed: int) -> Any:
    """Make an index of the kind, trained if the kind needs that."""
    faiss = load_faiss()
    n, p = X.shape
    # Not L2 on unit rows: a zero row would lie nearer than one at a right angle.
    metric = faiss.METRIC_L2 if geometry.metric == "euclidean" else faiss.METRIC_INNER_PRODUCT
    if kind == "flat":
        return faiss.IndexFlat(p, metric)
    if kind == "hnsw":
        built = faiss.IndexHNSWFlat(p, LINKS, metric)
        built.hnsw.efConstruction = EF_CONSTRUCTION
        built.hnsw.rng = faiss.RandomGenerator(seed)
        return built
    lists = max(1, min(int(LISTS_PER_ROOT * n**0.5), n // ROWS_PER_LIST))
    built = faiss.IndexIVFFlat(faiss.IndexFlat(p, metric), p, lists, metric)
    built.cp.seed = seed
    built.cp.min_points_per_centroid = 1  # silences a warning on tiny data
    most = min(n, TRAINING_PER_LIST * lists)
    drawn = np.sort(np.random.default_rng(seed).choice(n, most, replace=False))
    built.train(geometry.prepared(X[drawn]))
    return built


def _on_gpu(built: Any) -> Any:
    """Return the index on the first GPU, or None without a GPU."""
    faiss = load_faiss()
    if not hasattr(faiss, "StandardGpuResources") or faiss.get_num_gpus() == 0:
        return None
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, built)
