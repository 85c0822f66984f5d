"""Plans over sidecars written by hand, from which a report is drawn without a run."""

import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from connectors import open_source
from connectors.sink import write_parquet
from engine.core.digests import digest
from engine.core.json_files import write_json
from engine.execution.local_executor import LocalExecutor
from engine.plan.model import Plan, PlannedOperator
from engine.recipe.recipe import Recipe
from engine.report import write_report
from engine.report.context import PlanContext, read_classes
from engine.report.survey import survey
from operators.base import CATEGORY, VECTOR, Apply, Context, Operator, OperatorParams, ReportContext
from operators.gradients.adaptor import Gradients
from operators.gradients.params import GradientsParams
from operators.ingest.adaptor import Ingest
from operators.ingest.params import IngestParams
from operators.report import ReportSection

SYMBOLS = "●▲■◆✕"
CLASSES = ["no", "yes"]
KINDS = {
    "valid": pa.bool_(),
    "y": pa.int32(),
    "x": VECTOR,
    "gradient": VECTOR,
    "prediction": pa.int32(),
    "loss": pa.float32(),
    "group": pa.int32(),
    "is_outlier": pa.bool_(),
    "outlier_source": CATEGORY,
    "marked_by": CATEGORY,
    "weight": pa.float32(),
    "split": CATEGORY,
}
ADDED_BY = {
    "ingest": ("valid", "y", "x"),
    "probe": ("prediction", "loss"),
    "gradients": ("gradient",),
    "groups": ("group",),
    "outliers": ("is_outlier", "outlier_source", "marked_by"),
    "weights": ("weight",),
    "split": ("split",),
}


DESCRIBED: dict[str, Operator[Any]] = {
    "ingest": Ingest(IngestParams(label="label", features=("x",))),
    "gradients": Gradients(GradientsParams()),
}
"""Operators whose sections are in the page unless the test names others."""


class Written(Operator[OperatorParams]):
    """Stands for an operator whose columns the test wrote itself; may borrow the section of a real one."""

    version = 1
    Params: ClassVar[type[OperatorParams]] = OperatorParams
    requires = ()

    def __init__(self, name: str, columns: list[str], described: Operator[Any] | None = None) -> None:
        super().__init__(OperatorParams())
        self.name = name  # type: ignore[misc]
        self.columns, self.described = columns, described

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        return tuple(pa.field(name, KINDS[name]) for name in self.columns)

    def open(self, context: Context) -> Apply:
        raise NotImplementedError

    def report_section(self, context: ReportContext) -> ReportSection | None:
        if self.described is None or not self.columns:
            return None
        return self.described.report_section(context)


def plan_over(
    folder: Path,
    source: pa.Table,
    columns: dict[str, list[Any]],
    *,
    shards: int = 3,
    classes: list[str] = CLASSES,
    selection: dict[str, Any] | None = None,
    described: dict[str, Operator[Any]] = DESCRIBED,
    **sections: Any,
) -> Plan:
    """A plan with ``source`` in several files and ``columns`` as committed sidecars."""
    data, output = folder / "data", folder / "out"
    data.mkdir(parents=True)
    cuts = np.linspace(0, source.num_rows, shards + 1).astype(int).tolist()
    for i in range(shards):
        write_parquet(source.slice(cuts[i], cuts[i + 1] - cuts[i]), data / f"s{i}.parquet")
    recipe = Recipe.parse(
        {
            "name": "made",
            "source": {"path": str(data), "label": "label"},
            "output": {"path": str(output)},
            **sections,
        }
    )
    opened = open_source(
        str(data), "parquet", shard_bytes=2**27, identities=lambda ps: {p: digest(p) for p in ps}
    )
    there = {who: [name for name in names if name in columns] for who, names in ADDED_BY.items()}
    planned = tuple(
        PlannedOperator(Written(who, names, described.get(who)), digest(who)) for who, names in there.items()
    )
    plan = Plan(
        recipe=recipe,
        source=opened,
        listing=opened.list(),
        features=("x",),
        operators=planned,
        fingerprint=digest("plan"),
        version="v123",
    )
    for operator in planned:
        for i, shard in enumerate(plan.shards):
            part = slice(shard.first_row, shard.first_row + shard.n_rows)
            table = pa.table(
                {name: pa.array(columns[name][part], KINDS[name]) for name in there[operator.name]}
            )
            plan.store.commit(operator.fingerprint, i, table, seconds=0.5)
        plan.store.state(operator.fingerprint).mkdir(parents=True, exist_ok=True)
    write_json(plan.store.state(plan.fingerprint_of("ingest")) / "classes.json", {"classes": classes})
    if selection is not None:
        write_json(plan.store.state(plan.fingerprint_of("groups")) / "selection.json", selection)
    return plan


MANIFEST = {"version": "v123", "content": "abc", "packages": {"numpy": "2"}, "parts": []}


def made(n: int = 90, seed: int = 0) -> tuple[pa.Table, dict[str, list[Any]]]:
    """Two classes of two groups each and some noise; the probe fails on group 1; three bad rows."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    group = np.where(rng.random(n) < 0.1, -1, 2 * y + (rng.random(n) < 0.25))
    wrong = (group == 1) | (group == -1)
    x = rng.normal(0, 0.2, (n, 4)) + 3 * np.eye(4)[group]
    source = pa.table(
        {
            "picture": pa.array(list(rng.random((n, 6))), pa.list_(pa.float64())),
            "label": pa.array([CLASSES[v] for v in y]),
            "text": pa.array([f"text of {i}" for i in range(n)]),
            "really": pa.array([f"kind {v}" for v in group]),
            "broken": pa.array((group == -1) | (rng.random(n) < 0.05)),
        }
    )
    columns: dict[str, list[Any]] = {
        "valid": [True] * n,
        "y": y.tolist(),
        "x": x.tolist(),
        "gradient": (x * 2).tolist(),
        "prediction": np.where(wrong, 1 - y, y).tolist(),
        "loss": rng.random(n).tolist(),
        "group": group.tolist(),
        "is_outlier": (group == -1).tolist(),
        "outlier_source": ["dbscan" if g == -1 else "" for g in group],
        "weight": [1.0] * n,
        "split": rng.choice(["train", "test"], n).tolist(),
    }
    for row in (4, 5, 40):
        columns = {name: [*v[:row], None, *v[row + 1 :]] for name, v in columns.items()}
        columns["valid"][row] = False
    return source, columns


def section_of(plan: Plan, name: str, metrics: dict[str, float] | None = None) -> ReportSection | None:
    """The section that the operator of this name contributes."""
    executor = LocalExecutor()
    planned = next(planned for planned in plan.operators if planned.name == name)
    found = survey(plan, executor)
    context = PlanContext(plan, planned, found, read_classes(plan), metrics or {}, executor)
    return planned.operator.report_section(context)


def html_of(plan: Plan) -> str:
    path = Path(plan.recipe.output.path) / "reports" / "v123.html"
    assert write_report(plan, MANIFEST, {"groups": {"found": 4.0}}, path) == path
    return path.read_text("utf-8")


def cells(html: str) -> list[list[str]]:
    """Text of every table row."""
    rows = re.findall(r"<tr.*?</tr>", html, re.DOTALL)
    return [
        [re.sub(r"<.*?>", "", cell).strip() for cell in re.findall(r"<t[dh].*?</t[dh]>", row, re.DOTALL)]
        for row in rows
    ]
