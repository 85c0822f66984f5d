"""The files and folders that a recipe names, with their keys: one list for the policy and for other machines.

A name of a table in a catalog is none; the files of a catalog that the recipe describes itself are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from engine.recipe.pretrained import is_packaged, is_pretrained
from operators.models.spec import PRETRAINED

if TYPE_CHECKING:
    from engine.recipe.incremental import TrainSection
    from engine.recipe.recipe import Recipe

ICEBERG = "iceberg"
"""The format whose paths may be names of tables in a catalog."""
IN_MEMORY = ":memory:"
"""SQLite's name of a database that is no file."""


def paths_in(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield key and path of each file or folder that a recipe names.

    The value at the key ends with the path: ``hf:`` of a network and ``sqlite:///`` of a catalog precede it.
    """
    source = recipe.source
    catalog = source.options.get("catalog")
    if source.format != ICEBERG or catalog is None:
        yield "source.path", source.path
    else:
        yield from _files_of("source.options.catalog", catalog)
    stored = recipe.operators.get("gradients", {}).get("stored")
    if isinstance(stored, dict) and isinstance(stored.get("path"), str):
        yield "operators.gradients.stored.path", stored["path"]
    if recipe.train is not None:
        yield from _networks(recipe.train)
    for key, path, is_table in written_by(recipe):
        if not is_table:
            yield key, path


def written_by(recipe: Recipe) -> Iterator[tuple[str, str, bool]]:
    """Yield key and value of each place that a run writes to, and whether it is a table in a catalog."""
    yield "output.path", recipe.output.path, False
    for number, export in enumerate(recipe.output.export):
        is_table = export.format == ICEBERG and export.catalog is not None
        yield f"output.export.{number}.path", export.path, is_table
        for key, path in _files_of(f"output.export.{number}.catalog", export.catalog):
            yield key, path, False


def _files_of(key: str, catalog: Any) -> Iterator[tuple[str, str]]:
    """Yield the warehouse and the SQLite file of a catalog that is given by its properties."""
    if not isinstance(catalog, Mapping):
        return
    warehouse, uri = (str(catalog.get(name, "")) for name in ("warehouse", "uri"))
    in_file = uri.startswith("sqlite")
    if "/" in warehouse or (in_file and warehouse):  # else a name, which the catalog's server knows
        yield f"{key}.warehouse", warehouse
    file = uri.partition("://")[2].removeprefix("/")
    if in_file and file not in ("", IN_MEMORY):
        yield f"{key}.uri", file


def _networks(train: TrainSection) -> Iterator[tuple[str, str]]:
    """Yield the folders of pretrained networks that a training names, except of networks in packages."""
    models = {"train.params.model": train.params.get("model")}
    searched = train.search.space.get("model") if train.search is not None else None
    if isinstance(searched, list):
        models |= {f"train.search.space.model.{number}": model for number, model in enumerate(searched)}
    for key, model in models.items():
        if isinstance(model, str) and is_pretrained(model) and not is_packaged(model):
            yield key, model.removeprefix(PRETRAINED)
