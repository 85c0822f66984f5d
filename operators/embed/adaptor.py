"""``embed`` over shards: a source column through an encoder that every actor loads once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.foundation.messages import shorten
from operators.base import (
    FEATURE_FAULT,
    FEATURES,
    REASON,
    ROW_ID,
    Apply,
    Context,
    Cost,
    Executor,
    OperatorError,
    OperatorParams,
    ReportContext,
    ShardReader,
)
from operators.columns import vectors_with_gaps
from operators.embed.column_encoder import ColumnEncoder
from operators.embed.params import BUILT_IN, IMAGE_MODELS, EmbedParams, missing_packages
from operators.factories import check_allowed
from operators.report import ReportSection

if TYPE_CHECKING:
    from operators.embed.kernel import Encoder

KEY = "operators.embed.model"
"""Key of a recipe that names the encoder."""


class Embed(ColumnEncoder[EmbedParams]):
    """Adds ``x``, a text's or image's vector from a pretrained network, and ``x_fault`` where there is none.

    It reads one source column and learns from no row, so that another label, or another draw of validation
    and test rows, needs no second pass through the network.
    """

    name = "embed"
    version = 4
    cost = Cost(20_000, 20_000, by_features=False)
    Params: ClassVar[type[OperatorParams]] = EmbedParams
    keeps_open = True
    prefers_gpu = True

    @property
    def column(self) -> str:
        """Return the source column with texts or images."""
        return self.params.column

    @property
    def takes_texts(self) -> bool | None:
        """Return whether the encoder takes texts, not images; None where only the loaded encoder says."""
        return self.params.model not in IMAGE_MODELS if self.params.model in BUILT_IN else None

    def may_read_paths(self, schema: pa.Schema) -> bool:
        """Return whether the column may hold paths of images."""
        if self.takes_texts or self.column not in schema.names:
            return False
        kind = schema.field(self.column).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Check on a worker, before any actor starts, that the encoder's package is there."""
        list(executor.map(check_factory, [self.params.model]))
        return {}

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """Draw maps of feature space."""
        from operators.planes import vector_maps

        return ReportSection("Feature space", point_maps=vector_maps(context, FEATURES, "Feature space"))

    def open(self, context: Context) -> Apply:
        """Load the encoder once. Raises OperatorError where its package is missing."""
        # Imported here because planning imports this module and must not load torch.
        from operators.models import prepare_device

        params = self.params
        resources = params.resources.on(float("inf"), prefers_gpu=True)
        device = prepare_device(resources.cpus, resources.gpus)
        encoder = find_factory(params.model)(params, device)
        size = params.rows_at_once(on_gpu=device.type == "cuda")

        def apply(table: pa.Table) -> pa.Table:
            return embedding_of(table, context, encoder, params.column, size)

        return apply


def embedding_of(table: pa.Table, context: Context, encoder: Encoder, name: str, batch_size: int) -> pa.Table:
    """Return ``x`` and ``x_fault`` of a table's rows, whose column ``name`` an encoder takes."""
    from operators.embed.kernel import embed_rows
    from operators.image_files import refusal

    column, folder = table.column(name), _folder(context.shards, table)
    values = column_values(column, name, encoder.takes, folder)
    refused = {
        row: reason
        for row, value in enumerate(values)
        if folder and isinstance(value, Path) and (reason := refusal(folder, value))
    }
    opened = [None if row in refused else value for row, value in enumerate(values)]
    vectors, reasons = embed_rows(encoder, opened, batch_size=batch_size)
    reasons |= refused
    missing = np.zeros(len(values), bool)
    missing[list(reasons)] = True
    faults = pa.array([_fault(name, values, reasons, row) for row in range(len(values))], REASON)
    return pa.table({FEATURES: vectors_with_gaps(vectors, missing), FEATURE_FAULT: faults})


def check_factory(model: str) -> None:
    """Raise OperatorError where the model's package or factory is missing; loads no built-in's packages."""
    if model in BUILT_IN:
        _check_packages(model, KEY)
    else:
        find_factory(model)


def find_factory(model: str, key: str = KEY) -> Callable[..., Any]:
    """Return the function behind a model's name. Raises OperatorError, with the key of the recipe that names
    it, if it cannot be imported.
    """
    _check_packages(model, key)
    if model not in BUILT_IN:
        check_allowed(model, key)
    module_name, _, attribute = BUILT_IN.get(model, model).partition(":")
    try:
        return getattr(import_module(module_name), attribute)  # type: ignore[no-any-return]
    except ModuleNotFoundError as error:
        raise OperatorError(
            f"{key} '{model}': no module named '{error.name}'. Check the spelling, and that "
            "the package is installed or on PYTHONPATH on every node."
        ) from error
    except AttributeError as error:
        raise OperatorError(
            f"{key} '{model}': '{module_name}' has no '{attribute}'. Check the spelling."
        ) from error


def _check_packages(model: str, key: str) -> None:
    """Raise OperatorError if a package of a built-in model is not installed on this machine."""
    for package in missing_packages(model):
        raise OperatorError(
            f"{key} '{model}': the package {package} is not installed. On every node: "
            f"pip install -c deploy/constraints.txt 'rowsieve[embed]'."
        )


def column_values(column: pa.ChunkedArray, name: str, takes: str, folder: Path | None) -> list[Any]:
    """Return the encoder's input for each row: text, image bytes or the path of an image; None for null.

    Parameters
    ----------
    column : strings, binaries, or structs with a field ``bytes`` (as in Hugging Face's image columns).
    name : of the column, for errors.
    takes : ``text`` or ``image``.
    folder : that paths of images are relative to; None: rows come from a request, and may name no file, or
        from no local file.

    Raises
    ------
    OperatorError
        The column's type holds no text, or no images; or it holds paths, and there is no folder.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return column_values(column.cast(kind.value_type), name, takes, folder)
    if takes == "image" and pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        return column_values(pc.struct_field(column, "bytes"), name, takes, folder)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        found = column.to_pylist()
        if takes == "text":
            return found  # type: ignore[no-any-return]
        if folder is None:
            raise OperatorError(
                f"The column {name!r} holds text, and images are read by their paths only below the local "
                f"folder of a source's file: a request may name no files of the server. Give the bytes of "
                f"the images."
            )
        return [None if path is None else folder / path for path in found]
    if takes == "image" and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return column.to_pylist()  # type: ignore[no-any-return]
    expected = "text" if takes == "text" else "images as bytes or paths"
    raise OperatorError(
        f"operators.embed.column: {name!r} has type {kind}, and this model takes {expected}. Name another "
        f"column{' (source.text_columns keeps a CSV column as text)' if takes == 'text' else ''}."
    )


def _fault(column: str, values: list[Any], reasons: dict[int, str], row: int) -> dict[str, str] | None:
    if row not in reasons:
        return None
    return {"column": column, "value": shorten(values[row]), "error": reasons[row]}


def _folder(reader: ShardReader, table: pa.Table) -> Path | None:
    """Return the folder of the file that a shard's rows come from; None for rows from no local file."""
    first = table.column(ROW_ID)[0].as_py() if table.num_rows else 0
    shard = bisect_right([shard.first_row for shard in reader.shards], first) - 1
    folder = reader.shards[shard].folder
    return Path(folder) if folder else None
