"""Skips what needs hosts where they cannot be made; the cluster that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.bed import why_not
from tests.hosts.cluster import Cluster, cluster
from tests.hosts.faults import TRIALS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if Path(item.path).parent == Path(__file__).parent]
    reason = why_not() if mine else ""
    for item in mine:
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def many() -> Iterator[Cluster]:
    """The cluster of a module: head, two workers, storage, MLflow and a client, each a host."""
    with cluster() as made:
        yield made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for trial in TRIALS:
        terminalreporter.write_line(
            f"{trial.fault}: at {trial.moment} {trial.during}, {trial.seconds:.0f} s, "
            f"longest pause {trial.pause:.1f} s, kept {trial.kept}, recomputed {trial.recomputed}, "
            f"repeated {trial.repeated} {trial.notes}"
        )
