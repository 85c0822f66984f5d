"""A dataset that a test module's ``frame`` and ``OPERATORS`` describe, published once for each module."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.unit.engine.training.publishing import publish


@pytest.fixture(scope="module")
def published(
    frame: pd.DataFrame, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Output folder of the module's frame in one shard."""
    return publish(frame, tmp_path_factory.mktemp("one"), request.module.OPERATORS)
