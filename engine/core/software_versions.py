"""Versions of the software that computes a result."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("rowsieve", "numpy", "pyarrow", "ray", "scikit-learn", "scipy", "torch")


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that influence published values."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    """Read the versions once for a process: the packages are installed for as long as it runs."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
