"""A run on the cluster, a fault at a moment of it, and what the storage has seen of both."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tests.data import recipe_for, spurious_table, write_shards
from tests.hosts.bed import Started
from tests.hosts.cluster import (
    CLIENT,
    HEAD,
    RUN_SECONDS,
    Cluster,
    objects,
    on_this_machine,
    published,
    upload,
)

SHARDS = 8
OPERATORS: dict[str, dict[str, Any]] = {
    "probe": {"l2": 0.05, "trainer": "in_process"},
    "gradients": {},
    "groups": {"min_samples": [5]},
    "weights": {"method": "uniform"},
    "split": {},
}

LOCAL = {"executor": "local"}
"""The run of a driver that has no node of the cluster beside it."""


@dataclass
class Trial:
    """One run with one fault."""

    fault: str
    moment: int
    """Objects of operators that had been put when the fault began."""
    during: str = ""
    """Operator of the last one of them; empty for a fault that was there from the start."""
    seconds: float = 0.0
    """From the start of the run to the published version, with repetitions of the command."""
    pause: float = 0.0
    """Longest time without a new object of an operator."""
    kept: int = 0
    """Parts and fits that were committed before the fault."""
    repeated: int = 0
    """How often the command was given again."""
    recomputed: int = 0
    """Parts and fits that were put again after they had been committed."""
    notes: str = ""


TRIALS: list[Trial] = []
"""Of this session, for the table at its end."""


@dataclass
class Bench:
    """Rows on S3, the digests that every run must arrive at, and the cluster."""

    cluster: Cluster
    reference: dict[str, str]
    total: int
    """Objects of operators that a run without faults puts."""
    seconds: float
    """Time of a run without faults."""
    _outputs: int = field(default=0)

    def output(self) -> str:
        """Return a new place on S3."""
        self._outputs += 1
        return f"s3://faults/out-{self._outputs}"

    def start(self, output: str, host: str = HEAD, **sections: Any) -> Started:
        """Start a run of the recipe on a host."""
        folder = self.cluster.hosts[host].path("/tmp/home")
        name = f"{output.rpartition('/')[2]}.yaml"
        mapping = recipe_for(Path("/none"), Path("/none"), operators=OPERATORS, run={"executor": "ray"})
        mapping["source"]["path"], mapping["output"]["path"] = "s3://faults/data/*.parquet", output
        for section, values in sections.items():
            mapping[section] = {**mapping.get(section, {}), **values}
        (folder / name).write_text(yaml.safe_dump(mapping))
        return self.cluster.rowsieve("run", name, host=host)

    def store_puts(self, output: str) -> list[tuple[float, str, str]]:
        """PUTs of parts, records, states and fits of operators below an output."""
        return [put for put in self.cluster.storage.puts() if is_work(put[1], output)]

    def wait_for(self, output: str, moment: int, run: Started) -> None:
        """Wait until a run has put so many objects, or has ended."""
        seen = found = 0
        while run.process.poll() is None and found < moment:
            new = self.cluster.storage.puts(seen)
            seen, found = seen + len(new), found + sum(is_work(path, output) for _, path, _ in new)
            time.sleep(0.02)

    def moments(self, seed: int, count: int) -> list[int]:
        """Draw moments of a run, from its first part to its last."""
        rng = np.random.default_rng(seed)
        return sorted(int(moment) for moment in rng.integers(2, self.total - 4, count))


def make_bench(cluster: Cluster, folder: Path) -> Bench:
    """Put the rows on S3, run once on one host for the digests and once on the cluster for the time."""
    cluster.storage.s3.client().create_bucket(Bucket="faults")
    write_shards(folder / "data", spurious_table(), SHARDS)
    upload(cluster.storage, folder / "data", "faults", "data")
    mapping = recipe_for(Path("/none"), Path("/none"), operators=OPERATORS)
    mapping["source"]["path"], mapping["output"]["path"] = "s3://faults/data/*.parquet", "s3://faults/one"
    (folder / "one.yaml").write_text(yaml.safe_dump(mapping))
    on_this_machine(cluster.storage, ["run", str(folder / "one.yaml")], folder)
    bench = Bench(cluster, published(cluster.storage, "s3://faults/one"), 0, 0.0)
    calm = run_with(bench, "none", 10**6, lambda: None)
    bench.total, bench.seconds = calm.moment, calm.seconds
    return bench


def run_with(
    bench: Bench,
    fault: str,
    moment: int,
    strike: Callable[[], None],
    *,
    after: Callable[[], None] | None = None,
    allowed: Sequence[int] = (),
    host: str = HEAD,
    **sections: Any,
) -> Trial:
    """Run, call ``strike`` at a moment, wait for the end, and check what must hold after every fault.

    A run that ends with one of the exit codes ``allowed`` has told why in one paragraph; after ``after`` the
    command is given again. In the end the version has the bytes of the reference, and nothing that had been
    committed before the fault was put again.
    """
    output, started = bench.output(), time.monotonic()
    run = bench.start(output, host, **sections)
    bench.wait_for(output, moment, run)
    puts = bench.store_puts(output)
    before = committed(path for _, path, _ in puts)
    trial = Trial(fault, len(puts), kept=len(before))
    strike()
    code = run.wait(RUN_SECONDS)
    if after:
        after()
    while code:
        assert code in allowed, f"{fault} at {moment}: exit {code}\n{run.output}\n{bench.cluster.logs()}"
        assert "Traceback" not in run.output, run.output
        trial.notes = next((line for line in run.output.splitlines() if line.startswith("error")), "")[:600]
        trial.repeated += 1
        assert trial.repeated < 4, f"{fault} at {moment}: exit {code} again\n{run.output}"
        run = bench.start(output, host, **sections)
        code = run.wait(RUN_SECONDS)
    trial.seconds = time.monotonic() - started
    whole = bench.store_puts(output)
    trial.moment = min(trial.moment, len(whole))
    trial.pause = max((late - early for (early, *_), (late, *_) in pairwise(whole)), default=0.0)
    trial.recomputed = put_again([path for _, path, _ in whole])
    TRIALS.append(trial)
    assert published(bench.cluster.storage, output) == bench.reference, f"{fault} at {moment}"
    trial.during = operator_of(bench, output, puts[-1][1]) if puts else ""
    again = before.intersection(path for _, path, _ in whole[len(puts) :])
    assert not again, f"{fault} at {moment}: committed before it and put again: {again}"
    return trial


def record(bench: Bench, trial: Trial, output: str, started: float) -> None:
    """Check what has become of an output that several drivers had, and note it for the table."""
    trial.seconds = time.monotonic() - started
    trial.recomputed = put_again([path for _, path, _ in bench.store_puts(output)])
    TRIALS.append(trial)
    assert published(bench.cluster.storage, output) == bench.reference
    assert trial.recomputed == 0


def race(bench: Bench, name: str) -> None:
    """Start one driver on the cluster and one alone on another host: one of them writes, and the other says
    who does."""
    output, started = bench.output(), time.monotonic()
    runs = [bench.start(output, HEAD), bench.start(output, CLIENT, run=LOCAL)]
    codes = [run.wait(RUN_SECONDS) for run in runs]
    assert sorted(codes) == [0, 5], "\n".join(run.output for run in runs)
    (loser,) = (run for run, code in zip(runs, codes, strict=True) if code)
    assert "is being written by" in loser.output
    assert "Traceback" not in loser.output
    writers = {client for _, _, client in bench.store_puts(output)}
    assert (bench.cluster.hosts[CLIENT].address in writers) == (loser.host.name != CLIENT)
    record(bench, Trial(name, 0, notes=f"{loser.host.name} exits 5"), output, started)


def is_work(path: str, output: str) -> bool:
    """Return whether a path is that of a part, a record, a state or a fit of an operator."""
    return path.startswith(f"{output.removeprefix('s3:/')}/store/") and "/." not in path


def committed(paths: Any) -> set[str]:
    """Return the parts with their records, and the fits, among paths that were put."""
    found = set(paths)
    records = {path for path in found if path.endswith(".json") and f"{path[:-5]}.parquet" in found}
    fits = {path for path in found if path.endswith("/fit.json") and f"{path[:-8]}state.json" in found}
    return records | {f"{path[:-5]}.parquet" for path in records} | fits


def put_again(paths: Sequence[str]) -> int:
    """Count the parts that were put after their record, and the states that were put after their fit."""
    seen: set[str] = set()
    count = 0
    for path in paths:
        record = f"{path[:-8]}.json" if path.endswith(".parquet") else ""
        fit = f"{path[:-10]}fit.json" if path.endswith("/state.json") else ""
        count += record in seen or fit in seen
        seen.add(path)
    return count


def operator_of(bench: Bench, output: str, path: str) -> str:
    """Return the name of the operator whose object has this path."""
    fingerprint = path.removeprefix(f"{output.removeprefix('s3:/')}/store/").partition("/")[0]
    entries = manifest(bench, output)["operators"]
    return next((str(one["name"]) for one in entries if one["fingerprint"] == fingerprint), "")


def manifest(bench: Bench, output: str) -> dict[str, Any]:
    """Return the manifest of the current version of an output."""
    found = objects(bench.cluster.storage, output)
    version = found["CURRENT"].decode().split()[0]
    content: dict[str, Any] = json.loads(found[f"versions/{version}/manifest.json"])
    return content
