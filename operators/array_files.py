"""Arrays in files that appear as a whole."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def save_array(path: Path, what: npt.NDArray[Any] | Mapping[str, npt.NDArray[Any]]) -> None:
    """Write one array (.npy) or several (.npz). Readers never see a partially written file."""
    temporary = path.with_name(f".{uuid.uuid4().hex}{path.suffix}")
    with temporary.open("wb") as file:
        if isinstance(what, np.ndarray):
            np.save(file, what, allow_pickle=False)
        else:
            np.savez(file, **dict(what), allow_pickle=False)
    os.replace(temporary, path)
