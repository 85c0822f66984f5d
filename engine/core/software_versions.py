"""Versions of what computed a result."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("rowsieve", "numpy", "pyarrow", "ray", "scikit-learn", "scipy", "torch")


def package_versions() -> dict[str, str]:
    """Installed versions of Python and of the packages whose numbers end up in the data."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
