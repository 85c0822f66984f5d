"""A dataset that a test module's ``frame`` and ``OPERATORS`` describe, published once for each module.

Registered models hold few files of Rowsieve's own code: 800 of them were copied four times for each model.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from engine.training import registration
from tests.unit.engine.training.publishing import publish

WHOLE = "test_served_model.py"
"""The tests of what a model holds, which also serve it in a process without Rowsieve."""


def few_code_files(scratch: Path) -> list[str]:
    """Write the packages of ``code_paths`` with one empty module each, and return their folders."""
    folders = [scratch / name for name in ("connectors", "engine", "operators")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    return [str(folder) for folder in folders]


@pytest.fixture(scope="module", autouse=True)
def small_models(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set it for the tests of a module, but for those of what a model holds."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.name != WHOLE:
            patch.setattr(registration, "code_paths", few_code_files)
        yield


@pytest.fixture(scope="module")
def published(
    frame: pd.DataFrame, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Output folder of the module's frame in one shard."""
    return publish(frame, tmp_path_factory.mktemp("one"), request.module.OPERATORS)
