"""The removal of a version, in every order with a run that has the same version published or made current.

A removal may be suspended at any operation, and go on after the run has taken the lease over.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from engine.core.errors import LockedError
from engine.core.output_layout import version_folder
from engine.runs.history import _remove
from engine.storage.lease import base
from tests.unit.engine.storage.lease.interleavings import Fate
from tests.unit.engine.storage.lease.test_interleavings import Make, Scene, _steps, carry_out, scene

__all__ = ["scene"]
OLD, LATEST, REMOVAL = "v1", "v2", "removal"


class SceneOfRemoval(Scene):
    """An output with two published versions; a writer of ``REMOVAL`` removes the older one."""

    def _carry_out(self, lease: base.Lease, version: str) -> None:
        if version != REMOVAL:
            super()._carry_out(lease, version)
        elif self.current() != OLD:
            _remove(self.output, OLD, lease)

    def finish(self) -> None:
        """Check that who got to the end got what it wanted, the newest above all."""
        self.look()
        last = next(writer for writer in self.writers if writer.name == self.newest())
        present = (version_folder(self.output, OLD) / "manifest.json").exists()
        for writer in self.writers:
            assert writer.ended
            if not isinstance(writer.error, LockedError | type(None)) and not writer.killed:
                raise AssertionError(f"{writer.name} ended with {writer.error!r}") from writer.error
        if last.error is None and self.versions[last.name] == OLD:
            assert present
            assert self.current() == OLD


@pytest.fixture
def made(scene: Make) -> Iterator[Make]:
    """Return a function that makes a scene in which both versions are published."""
    with patch("tests.unit.engine.storage.lease.test_interleavings.Scene", SceneOfRemoval):

        def make(versions: dict[str, str]) -> Scene:
            found = scene({"first": OLD, "second": LATEST} | versions)
            for name in ("first", "second"):
                found.start(name).run_to_end()
                found.look()
            return found

        yield make


EVERY = [pytest.mark.slow, pytest.mark.timeout(1800)]
STRIDES = [pytest.param(1, marks=EVERY, id="every order"), pytest.param(11, id="some orders")]
BOTH = {"a": REMOVAL, "b": OLD}


def length(found: Scene, name: str) -> int:
    """Return the number of steps of one writer alone."""
    writer = found.start(name)
    writer.run_to_end()
    assert writer.error is None
    return writer.steps


@pytest.mark.parametrize("stride", STRIDES)
def test_a_removal_that_wakes_up_takes_nothing_from_its_successor(stride: int, made: Make) -> None:
    n, m = length(made(BOTH), "a"), length(made(BOTH), "b")
    for first in range(0, n + 1, stride):
        for second in range(first % stride, m + n + 6, stride):  # b may have to publish it again
            carry_out(made(BOTH), first, second)


@pytest.mark.parametrize("fate", ["die before", "die after"])
@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_removal_that_dies_is_followed_by_a_run(stride: int, fate: Fate, made: Make) -> None:
    for at in range(0, length(made(BOTH), "a"), stride):
        found = made(BOTH)
        a = found.start("a")
        _steps(found, a, at)
        _steps(found, a, 1, fate)
        b = found.start("b")
        while not b.ended:
            _steps(found, b, 1)
        assert b.error is None, f"after {at} steps: {b.error!r}"
        found.finish()
