"""Runs the rows of the table and keeps what they gave."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from tests.benchmarks.dbscan import peers
from tests.benchmarks.dbscan.cases import Case, expected_memory, expected_seconds
from tests.benchmarks.dbscan.rows import near_share
from tests.benchmarks.dbscan.worker import ROOT, Limits, Worker
from tests.benchmarks.harness import Timing, machine, measure

OURS, PRODUCT = "ours", "two-pass product"
PYTHON = ROOT / ".venv-peers" / "bin" / "python"
STORE = Path(__file__).parent / "measured.json"
PACKAGES = ("numpy", "torch")
GIB = 2**30
# CPU seconds above which ours is not tried, and no run goes on. The plain product has a bar at 100,000 rows.
OUR_SECONDS, BAR_SECONDS = 150.0, 500.0
REPEATS, OUR_REPEATS = 3, 5
PATIENCE, OUR_PATIENCE = 10.0, 60.0
LISTING = """
import importlib.util as u, json, sys
from importlib.metadata import version
wanted = json.loads(sys.argv[1])
print(json.dumps({p: version(p) for m, p in wanted.items() if u.find_spec(m)}))
"""
DISTRIBUTIONS = {
    "sklearn": "scikit-learn",
    "sklearnex": "scikit-learn-intelex",
    "faiss": "faiss-cpu",
    "dbscan": "dbscan",
}

Found = dict[str, Any]


class Bench:
    """Measures the rows of a table of times.

    Parameters
    ----------
    python : interpreter that has the peers; where it is not there, this one, with the peers it has.
    memory : most bytes for one peer.
    seconds : a peer that would take longer, by its time on fewer rows, is not run.
    store : file of what was measured so far; it is read for estimates and written after every row.
    """

    def __init__(
        self, python: Path = PYTHON, memory: float = 10 * GIB, seconds: float = 60.0, store: Path = STORE
    ) -> None:
        self._memory, self._seconds, self._store = int(memory), seconds, store
        self.measured: Found = json.loads(store.read_text()) if store.exists() else {}
        self.python = str(python) if python.exists() else sys.executable
        asked = [self.python, "-c", LISTING, json.dumps(DISTRIBUTIONS)]
        self._versions: dict[str, str] = json.loads(
            subprocess.run(asked, check=True, capture_output=True).stdout
        )
        self._machine = machine(PACKAGES, self._versions)

    def missing(self) -> list[str]:
        """Peers that the interpreter lacks."""
        return [name for name, peer in peers.PEERS.items() if not self._has(peer)]

    def note(self, kind: str, key: str, found: Found) -> None:
        """Keep a row and print it."""
        self.measured.setdefault(kind, {})[key] = {**found, "machine": self._machine}
        self._store.write_text(json.dumps(self.measured, indent=1, sort_keys=True) + "\n")
        print(json.dumps({key: found}), flush=True)

    def row(self, case: Case) -> Found:
        """All peers on one case."""
        X, setting = case.build()
        near = near_share(X, setting.eps)
        left_out = {name: self._left_out(name, case, setting, near) for name in peers.PEERS}
        runs = {name: (peers.PEERS[name].run.__name__, setting) for name in peers.PEERS if not left_out[name]}
        with self.workers(X, runs) as workers:
            del X
            timings = measure(
                {name: worker.run for name, worker in workers.items()},
                dict.fromkeys(runs, REPEATS) | {OURS: OUR_REPEATS},
                patience=dict.fromkeys(runs, PATIENCE) | {OURS: OUR_PATIENCE},
            )
        labels = [timing.result.labels for timing in timings.values()]
        reference = next((some for some in labels if some is not None), None)
        entries = {name: _entry(name, timing, reference) for name, timing in timings.items()}
        entries |= {name: why for name, why in left_out.items() if why}
        noise = None if reference is None else float(np.mean(reference < 0))
        return {
            "n": case.n, "d": case.d, "regime": case.regime, "near": near, "noise": noise, "peers": entries
        }  # fmt: skip

    @contextmanager
    def workers(
        self, X: Any, runs: Mapping[str, tuple[str, peers.Setting]], threads: int = 1
    ) -> Iterator[dict[str, Worker]]:
        """Warm processes for functions of `peers`, each in the interpreter that it needs."""
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            np.save(Path(folder) / "rows.npy", X)
            found = {}
            for name, (function, setting) in runs.items():
                foreign = name in peers.PEERS and peers.PEERS[name].module
                found[name] = Worker(
                    function,
                    Path(folder),
                    setting,
                    Limits(BAR_SECONDS, self._memory),
                    python=self.python if foreign else sys.executable,
                    threads=threads,
                )
                stack.callback(found[name].close)
            for worker in found.values():
                worker.wait()
            yield found

    def _left_out(self, name: str, case: Case, setting: peers.Setting, near: float) -> Found:
        """Return the reason for leaving a peer out, with the estimate that says so; empty if it is run."""
        peer = peers.PEERS[name]
        if not self._has(peer):
            return {"reason": "missing"}
        if text := peers.refusal(name, case.d, setting.unit):
            return {"reason": text}
        memory = expected_memory(name, case, near)
        if memory > self._memory:
            return {"reason": "memory", "bytes": memory}
        seconds = expected_seconds(name, case, self.measured.get("rows", {}))
        if seconds is not None and seconds > self._limit(name, case):
            return {"reason": "time", "estimate": seconds}
        return {}

    def _limit(self, name: str, case: Case) -> float:
        if name == OURS:
            return OUR_SECONDS
        barred = name == PRODUCT and case.n == 100_000 and case.regime == "tight"
        return BAR_SECONDS if barred else self._seconds

    def _has(self, peer: peers.Peer) -> bool:
        return peer.module is None or DISTRIBUTIONS[peer.module] in self._versions


def _entry(name: str, timing: Timing, reference: Any) -> Found:
    """One cell: seconds, peak and agreement with the reference; or the failure."""
    outcome = timing.result
    if outcome.failure:
        return {"reason": outcome.failure}
    labels = outcome.labels
    some = labels >= 0 if name == PRODUCT else slice(None)  # it labels core samples alone
    return {
        "median": timing.median,
        "low": timing.low,
        "high": timing.high,
        "peak": outcome.peak,
        "differ": None if name == PRODUCT else int(np.count_nonzero(labels != reference)),
        "ari": float(adjusted_rand_score(reference[some], labels[some])),
    }
