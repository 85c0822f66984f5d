"""The built wheel and sdist are complete, and of use in a clean environment without torch, Ray and MLflow."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.data import recipe_for, spurious_table, write_shards

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy" / "README.md"
PACKAGES = ("connectors", "engine", "operators")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PATIENCE = 600
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


def call(*command: str, cwd: Path, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist, built in a copy of what git knows."""
    folder = tmp_path_factory.mktemp("dist")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a clone of the repository")
    for name in filter(None, listed.stdout.splitlines()):
        if (ROOT / name).exists():
            (folder / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / "src" / name)
    for kind in ("build_wheel", "build_sdist"):
        call(sys.executable, "-c", BUILD, kind, str(folder), cwd=folder / "src")
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


@pytest.mark.slow
def test_the_wheel_has_every_module_and_file_of_the_packages(built: tuple[Path, Path]) -> None:
    wanted = {
        re.sub(r"^engine/api/", "rowsieve/", str(path.relative_to(ROOT)))
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.suffix in (".py", ".j2", ".json", ".typed")
    }
    assert contents(built[0]).keys() == wanted


@pytest.mark.slow
def test_the_sdist_gives_the_same_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert {"LICENSE", "README.md", "pyproject.toml"} <= {path.name for path in source.iterdir()}
    call(sys.executable, "-c", BUILD, "build_wheel", str(tmp_path), cwd=source)
    (wheel,) = tmp_path.glob("*.whl")
    assert contents(wheel) == contents(built[0])


def slim_packages() -> list[str]:
    """Return the packages that the page on deployment installs beside the wheel where no run takes place."""
    (line,) = re.findall(
        r"^pip install -c deploy/constraints.txt (typer .*)$", DEPLOY.read_text("utf-8"), re.M
    )
    return line.split()


@pytest.fixture(scope="module")
def slim(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment with the wheel and the packages of a slim installation."""
    folder = tmp_path_factory.mktemp("slim") / "venv"
    call(sys.executable, "-m", "venv", str(folder), cwd=folder.parent)
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    call(*pip, "--no-deps", str(built[0]), cwd=folder.parent)
    words = [*pip, "-c", str(ROOT / "deploy" / "constraints.txt"), *slim_packages()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        pytest.skip(f"the packages cannot be had here: {done.stderr.strip()[-300:]}")
    return folder


def test_what_a_slim_installation_has_is_a_dependency() -> None:
    names = {re.split(r"[\[<>=]", text)[0] for text in PROJECT["project"]["dependencies"]}
    assert set(slim_packages()) < names
    assert not {"torch", "ray", "mlflow", "scikit-learn", "scipy", "matplotlib"} & set(slim_packages())


@pytest.mark.slow
def test_a_slim_installation_validates_and_names_what_a_run_lacks(slim: Path, tmp_path: Path) -> None:
    write_shards(tmp_path / "data", spurious_table(), 2)
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe_for(Path("data"), Path("out"))))
    command, python = str(slim / "bin" / "rowsieve"), str(slim / "bin" / "python")
    found = call(python, "-c", "import rowsieve; print(rowsieve.__file__)", cwd=tmp_path).stdout
    assert found.startswith(str(slim))
    assert "validate" in call(command, "--help", cwd=tmp_path).stdout
    assert "r.yaml: valid. 240 rows" in call(command, "validate", "r.yaml", cwd=tmp_path).stdout
    for words in (
        "plan r.yaml",
        "init data/s0.parquet --label label",
        "operators",
        "sources",
        "policy",
        "schema run",
    ):
        assert call(command, *words.split(), cwd=tmp_path).stdout
    done = call(command, "run", "r.yaml", cwd=tmp_path, code=2)
    assert re.search(r"error: the package '\w+' is not installed and needed here", done.stderr)
    assert "Traceback" not in done.stderr
