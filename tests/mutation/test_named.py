"""The unit tests notice the mutants that readers named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.__main__ import OPERATORS, ROOT, copy_project
from tests.mutation.named import NAMED, NamedMutant

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mutants")
    copy_project(folder)
    return folder


def exit_code(project: Path, test: str) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", os.path.normpath(test)]
    done = subprocess.run(
        command,
        cwd=project,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        check=False,
        timeout=280,
    )
    return done.returncode


@pytest.mark.parametrize("mutant", NAMED, ids=lambda mutant: f"{mutant.module}: {mutant.new}")
def test_a_named_mutant_is_noticed(mutant: NamedMutant, project: Path) -> None:
    test = f"{OPERATORS}/{mutant.tests}"
    module = project / mutant.module
    text = (ROOT / mutant.module).read_text("utf-8")
    assert exit_code(project, test) == pytest.ExitCode.OK
    module.write_text(mutant.code(text), "utf-8")
    try:
        assert exit_code(project, test) == pytest.ExitCode.TESTS_FAILED
    finally:
        module.write_text(text, "utf-8")
