"""Training beside plain torch loops: seconds a step, a boosting round, an ensemble; one worker against two.

python -m tests.benchmarks.training [--ray | --large | --many] [--write-readme]

``--ray``: 1 against 2 workers, and nothing else; ``--large``: 130,000 rows, and nothing else; ``--many``:
10,000,000 rows, and nothing else.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engine.recipe.trainers import parse_params
from engine.training.data.rows import Dataset, dataset_of_arrays
from engine.training.fit.kernel import fit
from tests.benchmarks.harness import Row, bar, figure, machine, measure, ratio, table, write_section
from tests.benchmarks.training_large import compare
from tests.benchmarks.training_many import many

README = Path(__file__).with_name("README.md")
MLP: dict[str, Any] = {"model": "mlp", "hidden": [100, 100], "lr": 0.01, "batch_size": 128, "slots": 1}
BATCH = 128
ROUND_EPOCHS = 2


def rows() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """COMPAS where its file is, else rows of its shape: (7214, 8), two classes."""
    folder = os.environ.get("ROWSIEVE_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")
    path = Path(folder) / "compas" / "compas-scores-two-years.csv"
    if not path.exists():
        rng = np.random.default_rng(0)
        X = rng.normal(size=(7214, 8)).astype(np.float32)
        return X, (X[:, 0] + rng.normal(size=7214) > 0).astype(np.int64)
    found = pd.read_csv(path)
    counts = found[["juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"]].to_numpy(float)
    marks = [found["c_charge_degree"] == "F", found["sex"] == "Male", found["race"] == "Caucasian"]
    X = np.column_stack([counts, found["age"] / 10, *marks]).astype(np.float32)
    return X, found["is_recid"].to_numpy(np.int64)


def dataset(n_shards: int = 1) -> Dataset:
    """70 % train, 30 % selection set; six groups for the group rules."""
    X, y = rows()
    rng = np.random.default_rng(0)
    split = np.where(rng.random(len(y)) < 0.7, "train", "validation")
    return dataset_of_arrays(X, y, groups=rng.integers(0, 6, len(y)), split=split, n_shards=n_shards)


class PlainLoop:
    """A plain training loop: one process, no slots, no checkpoints."""

    def __init__(self, data: Dataset) -> None:
        train = data.train[0]
        self.X, self.y = torch.tensor(train.X), torch.tensor(train.y)
        self.X = (self.X - self.X.mean(0)) / self.X.std(0)
        layers = [nn.Linear(8, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 2)]
        self.model = nn.Sequential(*layers)

    def epochs(self, count: int, weight: Tensor | None = None) -> None:
        """Passes over the rows, shuffled, or drawn with replacement by weight; the optimiser starts anew."""
        optimiser = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
        n = len(self.y)
        for _ in range(count):
            order = torch.randperm(n) if weight is None else torch.multinomial(weight, n, replacement=True)
            for start in range(0, n, BATCH):
                batch = order[start : start + BATCH]
                optimiser.zero_grad()
                nn.functional.cross_entropy(self.model(self.X[batch]), self.y[batch]).backward()  # type: ignore[no-untyped-call]
                optimiser.step()

    @torch.no_grad()
    def errors(self) -> Tensor:
        """0/1 losses on the train rows."""
        return (self.model(self.X).argmax(1) != self.y).double()

    def boost(self, epochs: int, rounds: int) -> None:
        """alpha-AdaLPBoost's base models."""
        self.epochs(epochs)
        warm = {name: value.clone() for name, value in self.model.state_dict().items()}
        total = torch.zeros(len(self.y), dtype=torch.float64)
        for _ in range(rounds - 1):
            total += self.errors()
            self.model.load_state_dict(warm)
            self.epochs(ROUND_EPOCHS, torch.softmax(total, 0))


def ours(data: Dataset, **values: Any) -> Callable[[], Any]:
    """A training of ours, to be timed."""
    return partial(fit, data, parse_params({**MLP, **values}))


def steps(data: Dataset, epochs: int) -> list[Row]:
    """Milliseconds a step, beside the plain loop's."""
    whole, quarters = data, dataset(4)
    runs: dict[str, Callable[[], Any]] = {"plain loop": lambda: PlainLoop(data).epochs(epochs)}
    for trainer in ("erm", "gdro", "cvar_doro", "chi2_dro"):
        runs[f"{trainer}, 1 slot"] = ours(whole, trainer=trainer, epochs=epochs)
    for slots in (2, 4):
        runs[f"gdro, {slots} slots"] = ours(quarters, trainer="gdro", epochs=epochs, slots=slots)
    found = measure(runs, 5)
    n_steps = epochs * -(-len(data.train[0]) // BATCH)
    plain = found["plain loop"].median
    return [
        {
            "step": name,
            "CPU ms": figure(1000 * timing.median / n_steps),
            "beside plain": ratio(timing.median / plain),
        }
        for name, timing in found.items()
    ]


def ensembles(data: Dataset, rounds: Sequence[int], epochs: int) -> tuple[list[Row], list[Row]]:
    """Whole ensembles beside the plain loop and beside one ERM fit; and the bars."""
    found_rows, bars = [], []
    for count in rounds:
        common = {"epochs": epochs, "round_epochs": ROUND_EPOCHS}
        runs = {
            "one ERM fit": ours(data, trainer="erm", epochs=epochs),
            "one ERM fit, plain loop": partial(_boost_plainly, data, epochs, 1),
            "ada, plain loop": partial(_boost_plainly, data, epochs, count),
        }
        for kind in ("ada", "lp", "regularized_lp"):
            options = {"trainer": "boosted_cvar", "rounds": count, "boosting": kind, "alpha": 0.1}
            runs[kind] = ours(data, **common, **options)
        found = measure(runs, 3)
        erm, plain = found["one ERM fit"].median, found["ada, plain loop"].median
        bare = (plain - found["one ERM fit, plain loop"].median) / (count - 1)
        for name, timing in found.items():
            cells = {"T": str(count), "what": name, "CPU s": str(timing)}
            cells["ERM fits"] = ratio(timing.median / erm)
            if name in ("ada", "lp", "regularized_lp"):
                cells["beside its plain loop"] = ratio(timing.median / plain)
                own = (timing.median - erm) / (count - 1)
                cells["a round, ms"] = f"{1000 * own:.0f}, in the plain loop {1000 * bare:.0f}"
            found_rows.append(cells)
        if count == 30:
            measured = found["ada"].median / erm
            bars.append(bar("ada, T = 30, beside one ERM fit", "< 3x", ratio(measured), measured < 3))
    return found_rows, bars


def _boost_plainly(data: Dataset, epochs: int, rounds: int) -> None:
    PlainLoop(data).boost(epochs, rounds)


def on_ray(epochs: int) -> list[Row]:
    """Wall seconds of one and two workers of Ray Train over a published version, and whether bytes agree."""
    import tempfile

    import ray

    import engine
    from engine.execution.ray_executor import RayExecutor
    from engine.training import TrainSpec, train
    from tests.data import recipe_for, spurious_table, write_shards

    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shards(folder / "data", spurious_table(20_000), 8)
        operators = {"groups": {"method": "none"}}
        engine.run(engine.Recipe.parse(recipe_for(folder / "data", folder / "out", operators=operators)))
        ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
        written = {}
        for workers in (1, 2):
            options = {**MLP, "trainer": "gdro", "epochs": epochs, "batch_size": 1024, "slots": 8}
            values = parse_params({**options, "where": "ray", "workers": workers})
            started = time.perf_counter()
            spec = TrainSpec(folder / "out", values, folder=folder / f"model-{workers}")
            result = train(spec, RayExecutor())
            seconds = time.perf_counter() - started
            written[workers] = (result.folder / "models" / "000.safetensors").read_bytes()
            same = "equal" if written[workers] == written[1] else "**differ**"
            found.append({"workers": str(workers), "wall s": figure(seconds), "bytes": same})
        ray.shutdown()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of this module."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.training", description=__doc__)
    parser.add_argument("--epochs", type=int, default=50, help="of one ERM fit")
    parser.add_argument("--rounds", type=int, nargs="+", default=[30, 100])
    parser.add_argument("--ray", action="store_true", help="1 against 2 workers, and nothing else")
    parser.add_argument("--large", action="store_true", help="130,000 rows to one loss, and nothing else")
    parser.add_argument("--many", action="store_true", help="10,000,000 rows, and nothing else")
    parser.add_argument("--repeats", type=int, default=3, help="turns of --large")
    parser.add_argument("--write-readme", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.ray:
        name, parts = "training-ray", [table(on_ray(options.epochs))]
    elif options.large:
        bars, rows_of_methods = compare(options.repeats)
        name, parts = "training-large", [table(bars), table(rows_of_methods)]
    elif options.many:
        name, parts = "training-many", [table(many())]
    else:
        data = dataset()
        each = steps(data, max(1, options.epochs // 10))
        whole, bars = ensembles(data, options.rounds, options.epochs)
        name, parts = "training", [table(bars), table(each), table(whole)]
    print(text := "\n\n".join(parts))
    if options.write_readme:
        write_section(README, name, f"{machine(('numpy', 'torch', 'scikit-learn', 'ray'))}.\n\n{text}")
    return 0


if __name__ == "__main__":
    main()
