"""Figures that are not rendered, for tests that look at other things.

Each training draws four figures or more and each report several, at a tenth of a second each. Tests of the
figures themselves (``engine/report``, ``engine/runs/compare``, ``engine/training/evaluation``, ``operators``,
``project``) render them.
"""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

BLANK = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg=="
)
"""A PNG of one pixel."""


@contextmanager
def draw_blank_pictures() -> Iterator[None]:
    """Write one pixel for each figure within the block."""

    def save(figure: Figure, target: Any, **_: Any) -> None:
        if isinstance(target, (str, Path)):
            Path(target).write_bytes(BLANK)
        else:
            target.write(BLANK)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        yield
