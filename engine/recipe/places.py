"""The files and folders that a recipe names beside its paths: those of its catalogs and of its networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine.recipe.pretrained import is_packaged, is_pretrained
from operators.models.spec import PRETRAINED

IN_MEMORY = ":memory:"
"""SQLite's name of a database that is no file."""


def catalog_files(key: str, catalog: Any) -> Iterator[tuple[str, str]]:
    """Yield key and path of the warehouse and the SQLite file of a catalog given by its properties.

    Parameters
    ----------
    key
        The catalog's key in the recipe.
    catalog
        Its properties; a name or None has no files here.

    Examples
    --------
    >>> [*catalog_files("catalog", {"uri": "sqlite:///cat.db", "warehouse": "lake"})]
    [('catalog.warehouse', 'lake'), ('catalog.uri', 'cat.db')]
    >>> [*catalog_files("catalog", {"uri": "https://catalog", "warehouse": "main"})]
    []

    """
    if not isinstance(catalog, Mapping):
        return
    given = (catalog.get(name) for name in ("warehouse", "uri"))
    warehouse, uri = (value if isinstance(value, str) else "" for value in given)
    in_file = uri.startswith("sqlite")
    if "/" in warehouse or (in_file and warehouse):  # else a name, which the catalog's server knows
        yield f"{key}.warehouse", warehouse
    file = uri.partition("://")[2].removeprefix("/")
    if in_file and file not in ("", IN_MEMORY):
        yield f"{key}.uri", file


def network_folders(params: Mapping[str, Any], space: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield key and folder of each pretrained network that a training names, except of networks in packages.

    Parameters
    ----------
    params
        ``train.params``.
    space
        ``train.search.space``; empty without a search.

    """
    models = {"train.params.model": params.get("model")}
    if isinstance(searched := space.get("model"), list):
        models |= {f"train.search.space.model.{number}": model for number, model in enumerate(searched)}
    for key, model in models.items():
        if isinstance(model, str) and is_pretrained(model) and not is_packaged(model):
            yield key, model.removeprefix(PRETRAINED)
