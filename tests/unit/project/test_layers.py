"""The layers of the engine, imports between the three packages, and no import cycles.

Imports inside functions and below TYPE_CHECKING count, relative ones too, and texts that name a module, such
as ``"operators.splits.adaptor:Split"``: they are imported when they are used.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from operators.registry import operator_names
from tests.operator_roles import stated_roles

ROOT = Path(__file__).parents[3]
PACKAGES = ("engine", "operators", "connectors")
FOUNDATION = "connectors.foundation"
"""What every package may import."""
OTHERS = ("tests", "deploy")
"""Folders of the repository that no package imports."""
LAYERS = (
    "core",
    "storage",
    "recipe",
    "plan",
    "execution",
    "publish",
    "report",
    "training",
    "runs",
    "jobs",
    "cli",
    "api",
)
REGISTRIES = {
    "operators.embed.params": "networks of `embed` by name",
    "operators.groups.operator": "methods of `groups` by name",
}
"""Modules whose texts name what implements a contract. It imports the contract's package, so that there is a
cycle in the texts; the registry reads it when a recipe asks for it."""
NO_IMPORTS = {
    ("engine.jobs.schedule", "engine.cli.app"): "it starts the command as a process of its own",
    ("engine.report.templates", "engine.report"): "the folder of the templates",
}
"""Texts that name a module which their process never imports."""
LIBRARIES = {
    "descriptions": "rules that describe groups: kernels without an operator",
    "lpboost": "the linear programs of boosting: kernels without an operator",
    "metrics": "figures of the report and of evaluation: kernels without an operator",
    "models": "descriptions of networks: no operator",
    "report": "the types of report sections, a part of the contract",
}
"""Folders of ``operators`` that any module of the engine may import: they hold no operator."""
KNOWN_OPERATORS = {
    "cues": (
        "the drawn weights of `retrain` follow its weight path; commands and reports show its suspects; "
        "`validate` names answers to them that are no features, and plans refuse excluded ones",
        {
            "engine.cli.cues",
            "engine.cli.retrain",
            "engine.plan.likely_leaks",
            "engine.plan.named_slices",
            "engine.plan.preview",
            "engine.plan.sources",
            "engine.runs.descriptions",
            "engine.training.page",
            "engine.training.evaluation.plots",
            "engine.training.data.strength",
        },
    ),
    "dbscan": ("a public estimator", {"engine.api.estimators"}),
    "dckm": ("a public estimator", {"engine.api.estimators"}),
    "embed": (
        "`init` proposes it for texts and images; a plan covers the pictures that it reads by paths; serving "
        "reads images as it does; a training makes the inputs of pretrained networks",
        {
            "engine.plan.first_recipe",
            "engine.plan.picture_identities",
            "engine.plan.source_columns",
            "engine.training.data.features",
            "engine.training.fit.pretrained",
            "engine.training.serving.pyfunc",
        },
    ),
    "encode": (
        "`init` and `validate` tell the kind of a column as it does; a served model reads rows as it does",
        {
            "engine.plan.doubtful_values",
            "engine.plan.first_kinds",
            "engine.plan.first_label",
            "engine.plan.first_recipe",
            "engine.plan.likely_leaks",
            "engine.plan.named_slices",
            "engine.plan.preview",
            "engine.plan.sample",
            "engine.plan.source_columns",
            "engine.plan.source_keys",
            "engine.plan.sources",
            "engine.runs.descriptions",
            "engine.runs.drift",
            "engine.training.serving.pyfunc",
        },
    ),
    "eos": ("a public estimator", {"engine.api.estimators"}),
    "grasp": ("a public estimator", {"engine.api.estimators"}),
    "groups": (
        "a training repeats its warning where no class is divided although rows break a shortcut",
        {"engine.training.data.version"},
    ),
    "ingest": (
        "`init`, `validate` and `curate` check labels as it does; a served model reads rows as it does",
        {
            "engine.api.curation",
            "engine.cli.columns",
            "engine.plan.first_label",
            "engine.plan.likely_leaks",
            "engine.plan.preview",
            "engine.plan.sample",
            "engine.runs.explain",
            "engine.training.data.features",
            "engine.training.evaluation.importance",
            "engine.training.serving.pyfunc",
        },
    ),
    "neighbours": ("a public estimator", {"engine.api.estimators"}),
    "parts": (
        "the engine itself adds this operator, and readers of `fit` leave out the rows that it draws",
        {
            "engine.execution.worker",
            "engine.plan.decisions",
            "engine.plan.fitted_rows",
            "engine.plan.increment",
            "engine.plan.model",
            "engine.plan.operator_setup",
            "engine.plan.source_columns",
            "engine.plan.version_resolution",
            "engine.runs.compare.comparison",
            "engine.storage.reader",
            "engine.training.data.version",
        },
    ),
    "probe": (
        "training fits its networks by the kernel that fits the probe",
        {
            "engine.training.fit.ensemble",
            "engine.training.fit.estimators",
            "engine.training.fit.kernel",
            "engine.training.fit.last_layer",
            "engine.training.objectives.row_losses",
            "engine.training.fit.on_ray",
            "engine.training.data.rows",
            "engine.training.fit.session",
        },
    ),
    "splits": (
        "a public estimator; the plan draws parts as `split: {method: random}` would",
        {"engine.api.estimators", "engine.plan.fitted_rows"},
    ),
}
"""Operators whose own modules the engine imports beside their contract: why, and which modules do."""
RAY = {
    "engine.api.published",
    "engine.api.training_rows",
    "engine.execution.cluster",
    "engine.execution.lost_hosts",
    "engine.execution.node_health",
    "engine.execution.ray_executor",
    "engine.execution.shard_stages",
    "engine.jobs.connection",
    "engine.runs.plugins.prometheus",
    "engine.storage.state_sync",
    "operators.probe.ray_train",
}
MLFLOW = {
    "engine.publish.mlflow_outbox",
    "engine.publish.outbox_sync",
    "engine.publish.own_artifacts",
    "engine.publish.tracking",
    "engine.training.serving.model_package",
    "engine.training.serving.network_flavour",
    "engine.training.promotion",
    "engine.training.registration",
    "engine.training.serving.stored_models",
}
"""The modules that import Ray and MLflow: no kernel, and no source."""
Graph = dict[str, set[str]]


def module_files(root: Path = ROOT) -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in (root / package).rglob("*.py"):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


@lru_cache(maxsize=1)
def nodes_of(text: str) -> list[ast.AST]:
    """Return all nodes of a module, parsed once for its imports and its texts."""
    return [*ast.walk(ast.parse(text))]


def imports_of(name: str, text: str, modules: set[str], *, package: bool = False) -> set[str]:
    """Return the modules that the statements of a module import; ``package``: it is an ``__init__.py``."""
    found: set[str] = set()
    for node in nodes_of(text):
        if isinstance(node, ast.ImportFrom):
            above = name.split(".")[: len(name.split(".")) - node.level + package] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            inner = {f"{source}.{alias.name}" for alias in node.names}
            found |= inner & modules if inner & modules else {source}
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {module for one in found if (module := _known(one, modules))} - {name}


def _known(name: str, modules: set[str]) -> str:
    """Return the module that an imported name is, or is in; empty for a package of others.

    The package ``rowsieve`` is the folder ``engine/api``.
    """
    name = re.sub(r"^rowsieve(?=\.|$)", "engine.api", name)
    if name.split(".")[0] in OTHERS:
        return name
    return name if name in modules else ""


def texts_of(name: str, text: str, modules: set[str]) -> set[str]:
    """Return the modules that texts of a module name: ``a.b``, ``a.b:Name``, or ``.b`` in a package."""
    found = set()
    for node in nodes_of(text):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            given = re.fullmatch(r"(\.?\w+(?:\.\w+)*)(?::\w+)?", node.value)
            if given and (module := f"{name}{given[1]}" if given[1][0] == "." else given[1]) in modules:
                found.add(module)
    return {module for module in found if "." in module} - {name}


def cycles(graph: Graph) -> set[frozenset[str]]:
    """Strongly connected components with more than one module."""
    reach: Graph = {}
    for start in graph:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting += graph.get(node, ())
        reach[start] = seen
    components = {frozenset(b for b in reach[a] if a in reach.get(b, ())) for a in graph if a in reach[a]}
    return {component for component in components if len(component) > 1}


def by_folder(graph: Graph, packages: set[str], depth: int = 2) -> Graph:
    """Return the imports between folders, and modules beside folders; a folder holds its own folders.

    ``depth`` is that of the folders below the root: ``engine.training`` has 2.
    """

    def place(name: str) -> str:
        return ".".join(name.split(".")[:depth])

    found: Graph = {place(name): set() for name in graph}
    for name, others in graph.items():
        found[place(name)] |= {place(other) for other in others} - {place(name)}
    return {name: others - packages for name, others in found.items() if name not in packages}


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Every module with those that it imports, by a statement or by a text that a registry does not hold."""
    files = module_files()
    found = {}
    for name, path in files.items():
        text = path.read_text("utf-8")
        found[name] = imports_of(name, text, set(files), package=path.name == "__init__.py")
        if name not in REGISTRIES:
            named = texts_of(name, text, set(files))
            found[name] |= {other for other in named if (name, other) not in NO_IMPORTS}
    return found


def test_the_checks_see_lazy_relative_and_named_imports_and_cycles() -> None:
    modules = {"a", "b", "c", "c.d", "c.e", "engine.api", "engine.api.f"}
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import b\n"
    lazy = "def f():\n    from c import d\n"
    assert imports_of("a", guarded + lazy, modules) == {"b", "c.d"}
    assert imports_of("c.d", "from .e import x\nfrom . import y", modules) == {"c", "c.e"}
    assert imports_of("c", "from .d import x\nfrom . import e", modules, package=True) == {"c.d", "c.e"}
    public = "from rowsieve import x\nfrom tests.data import y"
    assert imports_of("a", public, modules) == {"engine.api", "tests.data"}
    assert texts_of("c", "import_module('.d', __name__)\nhome = 'engine.api.f:F'\n'no.module'", modules) == {
        "c.d",
        "engine.api.f",
    }
    loop: Graph = {"a": {"b"}, "b": {"c.d"}, "c.d": {"a"}, "e": {"a"}}
    assert cycles(loop) == {frozenset({"a", "b", "c.d"})}


def test_the_checks_see_cycles_of_folders() -> None:
    apart: Graph = {
        "p.a.x": {"p.b.x"},
        "p.b.y": {"p.a.y"},
        "p.a.y": set(),
        "p.b.x": {"p.c", "p"},
        "p": {"p.a.x"},
    }
    assert cycles(apart) == {frozenset({"p", "p.a.x", "p.b.x"})}
    assert cycles(by_folder(apart, {"p"})) == {frozenset({"p.a", "p.b"})}


def test_the_engine_has_no_loose_modules() -> None:
    assert {path.name for path in (ROOT / "engine").glob("*.py")} == {"__init__.py"}
    folders = {path.name for path in (ROOT / "engine").iterdir() if (path / "__init__.py").exists()}
    assert folders == set(LAYERS)


def test_the_map_of_the_engine_has_the_layers_in_their_order() -> None:
    page = (ROOT / "engine/README.md").read_text("utf-8")
    assert re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE) == list(LAYERS)


def wrong_layers(graph: Graph) -> list[str]:
    return [
        f"{name} imports {other}"
        for name, others in graph.items()
        for other in others
        if name.startswith("engine.") and other.startswith("engine.")
        if LAYERS.index(other.split(".")[1]) > LAYERS.index(name.split(".")[1])
    ]


def test_every_layer_imports_only_layers_below_it(graph: Graph) -> None:
    assert wrong_layers({"engine.plan.a": {"engine.core.b", "engine.runs.c"}}) != []
    assert wrong_layers(graph) == []


def test_packages_import_only_what_they_may(graph: Graph) -> None:
    allowed = {
        "engine": set(PACKAGES),
        "operators": {"operators"},
        "connectors": {"connectors"},
    }
    wrong = [
        f"{name} imports {other}"
        for name, others in graph.items()
        for other in others
        if not other.startswith(FOUNDATION) and other.split(".")[0] not in allowed[name.split(".")[0]]
    ]
    assert wrong == []


def known_operators(graph: Graph) -> dict[str, set[str]]:
    """Return for each folder of an operator the modules of the engine that import from it."""
    folders = {path.parent.name for path in (ROOT / "operators").glob("*/__init__.py")} - set(LIBRARIES)
    found: dict[str, set[str]] = {}
    for name, others in graph.items():
        for folder in {other.split(".")[1] for other in others if other.startswith("operators.")} & folders:
            if name.startswith("engine."):
                found.setdefault(folder, set()).add(name)
    return found


def test_the_engine_knows_few_operators_beside_their_contract(graph: Graph) -> None:
    assert known_operators(graph) == {folder: names for folder, (_, names) in KNOWN_OPERATORS.items()}


def test_the_report_names_no_operator() -> None:
    """`groups` is also the name of what a page lists. Operators contribute sections by their contract."""
    names = {*operator_names()} - {"groups"}
    assert {"cues", "eos", "weights"} <= names
    named = {
        (path.name, node.value)
        for path in (ROOT / "engine/report").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and node.value in names
    }
    assert named == set()


def test_no_modules_import_each_other_in_a_cycle(graph: Graph) -> None:
    assert cycles(graph) == set()


def test_no_folders_import_each_other_in_a_cycle(graph: Graph) -> None:
    found = by_folder(graph, set(PACKAGES))
    assert len(found["operators.groups"]) > 3
    assert cycles(found) == set()


def test_no_folders_within_a_folder_import_each_other_in_a_cycle(graph: Graph) -> None:
    packages = {name for name, path in module_files().items() if path.name == "__init__.py"}
    outer = {name for name in packages if name.count(".") < 2}
    found = by_folder(graph, outer, depth=3)
    assert {"engine.training.data", "engine.training.rules"} < found["engine.training.fit"]
    assert "engine.training.fit" not in found["engine.training.data"]
    assert cycles(found) == set()


def test_every_registry_is_one(graph: Graph) -> None:
    files = module_files()
    for name in REGISTRIES:
        whole = graph | {name: graph[name] | texts_of(name, files[name].read_text("utf-8"), set(files))}
        closed = cycles(whole) | cycles(by_folder(whole, set(PACKAGES)))
        assert closed, f"{name} closes no cycle: take it off the list"


def test_every_text_that_is_no_import_is_there() -> None:
    files = module_files()
    for name, other in NO_IMPORTS:
        assert other in texts_of(name, files[name].read_text("utf-8"), set(files))


def first_names(text: str) -> set[str]:
    """Return the first names of absolute imports."""
    names: set[str] = set()
    for node in nodes_of(text):
        if isinstance(node, ast.ImportFrom) and not node.level:
            names.add(str(node.module).split(".")[0])
        elif isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
    return names


def test_the_foundation_imports_the_standard_library_alone() -> None:
    paths = [path for name, path in module_files().items() if name.startswith(FOUNDATION)]
    names = set().union(*(first_names(path.read_text("utf-8")) for path in paths))
    assert {"difflib", "json"} <= names <= {*sys.stdlib_module_names}


@pytest.mark.parametrize(("library", "expected"), [("ray", RAY), ("mlflow", MLFLOW)])
def test_few_modules_import_ray_and_mlflow(library: str, expected: set[str]) -> None:
    texts = {name: path.read_text("utf-8") for name, path in module_files().items()}
    named = {name: text for name, text in texts.items() if re.search(rf"\b{library}\b", text)}
    assert {name for name, text in named.items() if library in first_names(text)} == expected


def reached(graph: Graph, start: str) -> set[str]:
    """Return every module that comes with a module, and the module."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += graph.get(node, ())
    return seen


KERNELS = [
    f"operators.{name.removesuffix('.py').replace('/', '.')}"
    for name, role in stated_roles()
    if role in ("kernel", "estimator")
]


def test_kernels_come_without_ray_and_mlflow(graph: Graph) -> None:
    """No module that they import imports one of the two, also on first use."""

    def wrong(graph: Graph) -> list[str]:
        return [name for name in KERNELS if reached(graph, name) & (RAY | MLFLOW)]

    planted = graph | {"operators.points": {*graph["operators.points"], "operators.probe.ray_train"}}
    assert {"operators.dbscan.kernel", "operators.grasp.estimator"} <= set(wrong(planted))
    assert len(KERNELS) > 100
    assert set(KERNELS) <= set(graph)
    assert wrong(graph) == []


def entry_points() -> Iterator[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    yield from project["scripts"].values()
    for group in project.get("entry-points", {}).values():
        yield from group.values()


def test_entry_points_lead_into_the_public_package() -> None:
    found = [_known(target.partition(":")[0], set(module_files())) for target in entry_points()]
    assert found
    assert {name.split(".")[1] for name in found} == {"api"}


COVERED_ELSEWHERE = {
    "connectors/storage": "tests/unit/engine/storage runs on a folder and on an object store",
}
"""Folders of code without a test folder of their own, with the place of their tests."""


def test_test_folders_mirror_the_code() -> None:
    code = {str(path.parent.relative_to(ROOT)) for path in module_files().values()}
    unit = ROOT / "tests/unit"
    tests = {str(path.parent.relative_to(unit)) for path in unit.rglob("test_*.py")} - {"project"}
    assert tests - code == set(), "folders of tests without code"
    assert code - tests - {*PACKAGES} == set(COVERED_ELSEWHERE), "code without tests"
