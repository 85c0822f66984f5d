"""MLflow pyfunc loader of registered models: from published source columns to class and probabilities.

MLflow imports this module by name and hands it the folder of files; nothing is unpickled.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from engine.core.json_files import write_json
from engine.training.ensemble import Ensemble
from engine.training.features import FeatureMaker
from engine.training.version import Version
from operators.base import (
    FEATURE_FAULT,
    FEATURES,
    ROW_ID,
    Context,
    Operator,
    OperatorError,
    ShardInfo,
    copy_state,
)
from operators.columns import vectors_to_numpy
from operators.ingest.adaptor import STATE
from operators.ingest.kernel import Reason, assemble_features, explain_value
from operators.registry import operator_class

if TYPE_CHECKING:
    import pandas as pd

SERVING = "serving.json"
ENCODING = "encoding"
"""Folder with the state of the operator that makes the features."""
REQUEST = "request_id"
PARAMS = {"sample": False, "seed": 0}


def export(model: Ensemble, version: Version, maker: FeatureMaker, folder: Path) -> None:
    """Write what serving needs: the ensemble, and how features are made of source columns."""
    shutil.rmtree(folder, ignore_errors=True)
    model.save(folder)
    state = json.loads((maker.state / STATE).read_text("utf-8"))
    encoders = [
        {"name": operator.name, "params": operator.params.model_dump(mode="json")}
        for operator in maker.operators
        if operator.name != "ingest"
    ]
    if any(operator.name == "encode" for operator in maker.operators):
        (folder / ENCODING).mkdir()
        copy_state(maker.state, folder / ENCODING, leave_out=(STATE,))
    record = {
        "version": version.name,
        "classes": state["classes"],
        "features": _columns(version, folder / ENCODING),
        "widths": state["widths"],
        "encoder": encoders[0] if encoders else None,
    }
    write_json(folder / SERVING, record)


class Served:
    """The object that ``mlflow.pyfunc.load_model`` wraps."""

    def __init__(self, folder: str | Path) -> None:
        self.model = Ensemble.load(folder)
        self._about: dict[str, Any] = json.loads((Path(folder) / SERVING).read_text("utf-8"))
        encoder = self._about["encoder"]
        self._encoder = None if encoder is None else _open(encoder, Path(folder) / ENCODING)

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """``prediction`` (label) and ``probability_<label>`` of each row.

        With ``params={"sample": True, "seed": ...}`` the prediction is that of one base model, drawn for the
        row's ``request_id``; see ``Ensemble.sample``.

        Raises ValueError for a value that is no feature, or a sample without request ids.
        """
        import pandas as pd

        params = {**PARAMS, **(params or {})}
        columns = [name for name in model_input.columns if name != REQUEST]
        X = self.features(pa.Table.from_pandas(model_input[columns], preserve_index=False))
        probabilities = self.model.predict_proba(X)
        chosen = probabilities.argmax(axis=1)
        if params["sample"]:
            if REQUEST not in model_input.columns:
                raise ValueError(f"sample: give each row's id in a column {REQUEST!r}")
            chosen = self.model.sample(X, model_input[REQUEST].astype(str).tolist(), seed=int(params["seed"]))
        classes = self._about["classes"]
        found: dict[str, Any] = {"prediction": [classes[index] for index in chosen]}
        for index, label in enumerate(classes):
            found[f"probability_{label}"] = probabilities[:, index]
        return pd.DataFrame(found, index=model_input.index)

    def features(self, table: pa.Table) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Source columns (n rows) as the model's features (n, d)."""
        names = self._about["features"]
        missing = [name for name in names if name not in table.column_names]
        if missing:
            raise ValueError(f"the column {missing[0]!r} is missing; the model reads {', '.join(names)}")
        if self._encoder is not None:
            try:
                made = self._encoder(table.append_column(ROW_ID, pa.array(np.arange(table.num_rows))))
            except OperatorError as error:
                raise ValueError(str(error)) from None
            bad = np.flatnonzero(made.column(FEATURE_FAULT).is_valid().to_numpy())
            if len(bad):
                fault = made.column(FEATURE_FAULT)[int(bad[0])].as_py()
                raise ValueError(f"row {bad[0]}: column {fault['column']!r} {fault['error']}")
            return vectors_to_numpy(made.column(FEATURES))
        X, codes = assemble_features(table, names, self._about["widths"])
        if codes.any():
            row, place = np.argwhere(codes)[0].tolist()
            reason, width = Reason(int(codes[row, place])), self._about["widths"][place]
            value, text = explain_value(table[names[place]], row, reason, width)
            raise ValueError(f"row {row}: column {names[place]!r} {text} (value: {value})")
        return X


class _OneShard:
    """Reader of one shard that holds the rows of a request, which come from no file and may name none."""

    shards = (ShardInfo(0, "", 0, 2**62, 0),)

    def read(self, shard: int, columns: Any) -> pa.Table:
        raise OperatorError("a request has no stored columns")

    read_source = read


def _columns(version: Version, encoding: Path) -> list[str]:
    """Return the source columns that the features are made of; those that `encode` leaves out are none."""
    names: list[str] = version.manifest["source"]["features"]
    if not encoding.exists():
        return names
    from operators.encode.outputs import provenance

    used = {output.source for output in provenance(encoding)}
    return [name for name in names if name in used]


def _open(encoder: Mapping[str, Any], state: Path | None = None) -> Any:
    kind = operator_class(encoder["name"]).variant(encoder["params"])
    operator: Operator[Any] = kind(kind.Params.recorded(encoder["params"]))
    return operator.open_for_new_rows(Context(_OneShard(), state or Path()))


def _load_pyfunc(path: str) -> Served:
    """Load a model; MLflow calls this function by its name."""
    return Served(path)
