"""The README's commands run as they stand, and its recipe is a recipe."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from engine.cli.app import app
from engine.recipe.recipe import Recipe
from tests.adult import write_adult
from tests.data import recipe_for, spurious_table, write_shards
from tests.operator_roles import PAGE, ROLES, stated_roles

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
CUES = [path.parent for path in sorted((ROOT / "operators/cues").rglob("__init__.py"))]
COMMANDS = [
    line.removeprefix("$ ")
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("$ ")
]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as after `make demo`: recipes, a small demo dataset, and a recipe of the user's own."""
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    (folder / ".venv").symlink_to(Path(sys.executable).parent.parent)
    done = run("python -m connectors.digits demo/data --rows 300", folder)
    assert done.returncode == 0, done.stderr
    write_shards(folder / "data", spurious_table())
    write_adult(folder / "adult.csv")
    (folder / "my-recipe.yaml").write_text(yaml.safe_dump(recipe_for(Path("data"), Path("out"))))
    return folder


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """In a shell, with this environment's Python first."""
    binaries = Path(sys.executable).parent
    return subprocess.run(
        ["bash", "-c", f"PATH={binaries}:$PATH; {command}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


# Ray is tested in tests/cluster; here the same commands run in one process, to save the time.
LOCAL = " --set run.executor=local"


ROWSIEVE = [c for c in COMMANDS if "bin/rowsieve " in c]
# What these run, other tests run too, without a process of their own: `test_init.py` runs the recipe that
# `init` writes, and `test_docs_pages.py` the exports.
# `diff` needs the second version, which one of the long commands publishes.
LONG = (
    "full.yaml",
    " compare ",
    " retrain ",
    "operators.split.validation",
    " run adult.yaml",
    " export ",
    " diff ",
)
FAILING = [c for c in ROWSIEVE if "source.lable" in c]
MARKED = [
    pytest.param(c, marks=pytest.mark.slow) if any(part in c for part in LONG) else c
    for c in ROWSIEVE
    if c not in FAILING
]


@pytest.mark.parametrize("command", MARKED)
def test_commands_run(command: str, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, to import the libraries once; a shell makes words of the text, as it would."""
    local = LOCAL if "deploy/recipes" in command else ""
    program, *words = run(f"printf '%s\\n' {command}{local}", workplace).stdout.splitlines()
    assert program == ".venv/bin/rowsieve"
    monkeypatch.chdir(workplace)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", FAILING)
def test_a_command_that_fails_says_what_the_page_says(command: str, workplace: Path) -> None:
    """In a process of its own, by the program that is installed."""
    done = run(command + LOCAL, workplace)
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip() in README


@pytest.mark.slow
def test_the_demo_prints_what_the_front_page_says(tmp_path: Path) -> None:
    """Names of versions and runs, and the time, are placeholders, as they change."""
    (shown,) = re.findall(r"```text\n(VERSION .*?)```", README, re.DOTALL)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parent.parent)
    made = run("python -m connectors.digits demo/data", tmp_path)
    assert made.returncode == 0, made.stderr
    done = run(f".venv/bin/rowsieve run deploy/recipes/demo.yaml{LOCAL}", tmp_path)
    assert done.returncode == 0, done.stderr
    printed = re.sub(r"\bv[0-9a-f]{12}\b", "VERSION", done.stdout)
    printed = re.sub(r"run [0-9a-f]{32}", "run RUN", printed)
    assert _without_seconds(shown) == _without_seconds(printed)


def _without_seconds(text: str) -> list[str]:
    return [re.sub(r", [\d.]+ s$", "", line) for line in text.strip().splitlines()]


@pytest.mark.parametrize("target", [c.split()[1] for c in COMMANDS if c.startswith("make ")])
def test_make_knows_its_targets(target: str) -> None:
    done = run(f"make --dry-run {target}", ROOT)
    assert done.returncode == 0, done.stderr


def test_every_kind_of_command_is_covered() -> None:
    rest = [c for c in COMMANDS if c not in ROWSIEVE and not c.startswith("make ")]
    assert rest == ["git clone <this repository> rowsieve && cd rowsieve"]


def test_the_recipe_is_a_recipe() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert Recipe.parse(yaml.safe_load(block)).name == "churn"


def package_pages() -> list[Path]:
    """Return the README of every package and of every folder in one."""
    found = [*ROOT.glob("[!.]*/README.md"), *ROOT.glob("[!.]*/[!.]*/README.md")]
    assert len(found) > 20
    return found


def test_tests_that_are_named_exist() -> None:
    named = {
        f"{page.relative_to(ROOT)}: {path}"
        for page in [*ROOT.glob("*.md"), *package_pages()]
        for path in re.findall(r"tests/[\w/]+\.py", page.read_text("utf-8"))
    }
    assert len(named) > 20
    assert {entry for entry in named if not (ROOT / entry.split(": ")[1]).exists()} == set()


def test_modules_that_are_named_by_their_path_exist() -> None:
    """Such as `plan/planner.py`: from the page's folder or one in it, from the one above it, or the root."""
    named = {
        (page, path)
        for page in package_pages()
        for path in re.findall(r"`([\w/]+/\w+\.py)`", page.read_text("utf-8"))
    }
    assert len(named) > 100
    missing = [
        f"{page.relative_to(ROOT)}: {path}"
        for page, path in sorted(named)
        if not any((start / path).exists() for start in (page.parent, page.parent.parent, ROOT))
        if not [*page.parent.glob(f"*/{path}")]
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("page", "folder"),
    [
        *((package, package) for package in ("engine/report", "engine/runs", "engine/storage")),
        ("engine/storage", "engine/storage/lease"),
        ("engine/training", "engine/training"),
        *(
            ("engine/training", f"engine/training/{part}")
            for part in ("data", "evaluation", "fit", "serving")
        ),
        *(("operators/cues", str(folder.relative_to(ROOT))) for folder in CUES),
    ],
)
def test_the_page_of_a_package_names_its_modules(page: str, folder: str) -> None:
    named = set(re.findall(r"\b(\w+\.py)\b", (ROOT / page / "README.md").read_text("utf-8")))
    modules = {path.name for path in (ROOT / folder).glob("*.py")} - {"__init__.py"}
    assert modules
    assert modules - named == set()


def test_every_file_of_the_operators_has_one_role() -> None:
    text = PAGE.read_text("utf-8")
    assert f"| folder | {' | '.join(ROLES)} |" in text
    assert [role for role in ROLES if f"- **{role}**:" not in text] == []
    files = [path for path in PAGE.parent.rglob("*.py") if path.name != "__init__.py"]
    assert sorted(name for name, _ in stated_roles()) == sorted(
        str(path.relative_to(PAGE.parent)) for path in files
    )


def test_links_lead_somewhere() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in package_pages()
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text())
        if not (page.parent / link).exists()
    ]
    missing += [link for link in re.findall(r"\]\(([^)#:]+)\)", README) if not (ROOT / link).exists()]
    assert missing == []
