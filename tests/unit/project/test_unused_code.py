"""Every function, class, method and constant of the product has a user in the product.

What only tests call is either part of the public API (``__all__`` of the package ``rowsieve``), or it belongs
into the tests. A name of a module counts as used where the module itself reads it, where another module
imports it or reads it through the module, or where a text names it (``"module:Name"``). An ``__init__.py``
that only passes names on is no user of them. Methods are told by their names alone.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("engine", "operators", "connectors")

ALLOWED = {
    "operators.dbscan.graph_dbscan.approximate_dbscan": "labels of a graph that a user has, in a notebook",
    "operators.dbscan.kernel.dbscan_grid": "the kernel on arrays, for notebooks",
    "operators.lpboost.problem.duality_gap": "certifies weights of any other solver",
    "engine.training.evaluation.by_group.evaluate": "scores on arrays, see engine/training/README.md",
    "engine.training.fit.in_memory.fit_arrays": "training on arrays, see engine/training/README.md",
    "connectors.policy.set_policy": "for a program that embeds Rowsieve and sets its policy in code",
    "engine.api.published.PublishedVersion.for_sklearn": "for trainers of users",
    "engine.api.published.PublishedVersion.to_torch": "for trainers of users",
    "engine.training.serving._load_pyfunc": "MLflow calls it by name",
    "operators.embed.minilm.last_layer": "a recipe names it as the probe's model",
    "operators.eos.losses.GaussianModel.covariance": "users read it from the estimator's ``model_``",
    "operators.neighbours.class_index.build_part": "read where FAISS is needed",
    "operators.neighbours.class_index.write_rows": "read where FAISS is needed",
}
"""Names without a user in the product, with the reason for keeping them."""
PROTOCOLS = {
    "_read_block": "pyiceberg.avro.file",
    "_repr_html_": "IPython",
    "fit_predict": "scikit-learn",
    "ignore_aliases": "yaml.Dumper",
    "model_post_init": "pydantic",
    "read_int_bytes_dict": "pyiceberg.avro.reader",
    "read_ints": "pyiceberg.avro.reader",
    "readable": "io.RawIOBase",
    "seekable": "io.RawIOBase",
    "skip_int": "pyiceberg.avro.reader",
    "tell": "io.RawIOBase",
}
"""Methods that another library calls by name."""


PUBLIC = "engine.api"
"""Package whose ``__all__`` is the public API."""


class Module:
    """Definitions and uses of one module; its tree is not kept, as all of them together slow Python down."""

    def __init__(self, name: str, text: str, *, is_package: bool = False) -> None:
        self.name = name
        self.reads: set[str] = set()
        self.attributes: set[str] = set()
        self.imports: set[str] = set()
        self.texts: set[str] = set()
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Load):
                    self.reads.add(node.id)
            elif isinstance(node, ast.Attribute):
                self.attributes.add(node.attr)
            elif isinstance(node, ast.ImportFrom):
                above = name.split(".")[: -node.level] if node.level else []
                source = ".".join([*above, *([node.module] if node.module else [])])
                self.imports |= {f"{source}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.texts.add(node.value.rpartition(":")[2])
        self.exported = exported_by(name, tree)
        self.own = {word for node in tree.body for word in names_of(node) if not word.startswith("__")}
        self.methods = [*methods_of(name, tree)]
        if is_package and not name.startswith(PUBLIC):
            passed_on = {full.rpartition(".")[2] for full in self.exported} - self.reads
            self.texts -= passed_on
            self.imports = {full for full in self.imports if full.rpartition(".")[2] not in passed_on}


def exported_by(name: str, tree: ast.Module) -> set[str]:
    """Return the full names that ``__all__`` lists."""
    return {
        f"{name}.{word}"
        for node in tree.body
        if isinstance(node, ast.Assign) and "__all__" in names_of(node)
        for word in ast.literal_eval(node.value)
    }


def methods_of(name: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the full name and the name of each method and property that a caller must name."""
    for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for part in (part for part in node.body if isinstance(part, ast.FunctionDef)):
            names = [] if part.name.startswith("__") else names_of(part)
            yield from ((f"{name}.{node.name}.{method}", method) for method in names)


def names_of(node: ast.stmt) -> list[str]:
    """Return the names that a statement defines; none for what pydantic or Typer register."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        how = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
        registered = ("validator", "serializer", ".callback", ".command")
        return [] if any(word in how for word in registered) else [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def unused(modules: list[Module], templates: str = "") -> set[str]:
    """Return the full names without a user; ``templates`` read methods and properties."""
    imported = set().union(*(module.imports for module in modules))
    exported = set().union(*(module.exported for module in modules if module.name.startswith(PUBLIC)))
    attributes = set().union(*(module.attributes for module in modules))
    texts = set().union(*(module.texts for module in modules))
    called = attributes | texts | set(PROTOCOLS) | {*re.findall(r"\.(\w+)", templates)}
    wrong = set()
    for module in modules:
        packages = [module.name.rsplit(".", k)[0] for k in range(module.name.count(".") + 1)]
        importers = [other for other in modules if not other.imports.isdisjoint(packages)]
        through = set().union(*(other.attributes for other in importers))
        public = {word for word in module.own if {f"{package}.{word}" for package in packages} & exported}
        local = {word for word in module.own if {f"{package}.{word}" for package in packages} & imported}
        lonely = module.own - public - local - module.reads - through - texts
        wrong |= {f"{module.name}.{word}" for word in lonely}
        wrong |= {full for full, name in module.methods if name not in called}
    return wrong


def test_the_check_finds_what_nothing_uses() -> None:
    first = Module("p.a", "def used(): ...\ndef lonely(): ...\ndef passed_on(): ...\ndef api(): ...\n")
    second = Module("p.b", "from p.a import used\nclass C:\n    def m(self): ...\n    def n(self): C().n()\n")
    text = "from p.a import passed_on\n__all__ = ['passed_on']\nlazy({'passed_on': 'a'})\n"
    package = Module("p", text, is_package=True)
    public = Module(PUBLIC, "from p.a import api\n__all__ = ['api']\n", is_package=True)
    modules = [first, second, package, public]
    assert unused(modules) == {"p.a.lonely", "p.a.passed_on", "p.b.C.m"}
    user = Module("p.c", "from p import passed_on\n")
    assert unused([*modules, user]) == {"p.a.lonely", "p.b.C.m"}


@pytest.fixture(scope="module")
def found() -> set[str]:
    modules = []
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found = Module(
                name.removesuffix(".__init__"),
                path.read_text("utf-8"),
                is_package=path.name == "__init__.py",
            )
            modules.append(found)
    templates = [path.read_text("utf-8") for path in (ROOT / "engine").rglob("*.j2")]
    return unused(modules, " ".join(templates))


def test_everything_has_a_user_in_the_product(found: set[str]) -> None:
    assert found - set(ALLOWED) == set(), "Move it to the tests, delete it, or give it a user"


def test_the_decision_counts_the_exceptions() -> None:
    text = (ROOT / "engine/README.md").read_text("utf-8")
    assert f"a list of {len(ALLOWED)} exceptions and their reasons" in text


def test_every_exception_is_needed(found: set[str]) -> None:
    assert set(ALLOWED) - found == set()
