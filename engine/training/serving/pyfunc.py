"""Registered models as MLflow pyfuncs: from source columns to class, probabilities and reasons.

Nothing is unpickled.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from connectors.storage import read_part_schema
from engine.core.json_files import read_json, write_json
from engine.training.data.features import FeatureMaker
from engine.training.data.raw_rows import COLUMNS, clean_columns, read_columns, table_of, write_columns
from engine.training.data.version import Version
from engine.training.fit.ensemble import Ensemble, request_text
from engine.training.serving.served_files import check_columns, check_files, naming, read_description
from operators.base import (
    FEATURE_FAULT,
    FEATURES,
    ROW_ID,
    Apply,
    Context,
    Operator,
    OperatorError,
    ShardInfo,
    copy_state,
)
from operators.columns import vectors_to_numpy
from operators.embed.network_inputs import NAME
from operators.embed.params import IMAGE_MODELS, EmbedParams
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


def write_served_model(
    model: Ensemble, version: Version, maker: FeatureMaker, folder: Path, target: str | None = None
) -> None:
    """Write the files of a served model: the ensemble, and how features are made from source columns.

    ``target`` is the column that a regression predicts.
    """
    shutil.rmtree(folder, ignore_errors=True)
    model.save(folder)
    describe_features(version, maker, folder, target)


def describe_features(version: Version, maker: FeatureMaker, folder: Path, target: str | None = None) -> None:
    """Write how features are made from source columns: ``serving.json``, and the state of `encode`."""
    state = read_json(maker.state / STATE)
    encoders = [
        {"name": operator.name, "params": operator.params.model_dump(mode="json")}
        for operator in maker.operators
        if operator.name != "ingest"
    ]
    if encoders and encoders[0]["name"] in ("encode", NAME):
        (folder / ENCODING).mkdir()
        copy_state(maker.state, folder / ENCODING, leave_out=(STATE, "categories-*", "tally.json"))
    inputs = maker.inputs
    record = {
        "version": version.name,
        "classes": state["classes"] if target is None else [],
        "features": _feature_columns(version, folder / ENCODING) if inputs is None else [inputs.column],
        "widths": state["widths"],
        "encoder": encoders[0] if encoders else None,
        "texts": version.manifest["source"].get("texts"),
        "reading": version.manifest["source"].get("reading"),
    }
    if target is not None:
        record["target"] = target
    write_json(folder / SERVING, record)
    write_columns(input_schema(version, record["features"], image_columns(maker)), folder)


def input_schema(version: Version, names: Sequence[str], images: Collection[str] = ()) -> pa.Schema:
    """Return the types of some source columns, from the version's first part.

    The columns ``images`` have the type binary, also if the dataset holds paths, since a request must not
    name files of the server.
    """
    schema = read_part_schema(version.folder / version.manifest["parts"][0]["path"])
    return pa.schema([pa.field(n, pa.binary()) if n in images else schema.field(n) for n in names])


def image_columns(maker: FeatureMaker) -> frozenset[str]:
    """Return the columns from which the chain makes features by an encoder of images."""
    if maker.inputs is not None:
        return frozenset({maker.inputs.column} if maker.inputs.takes == "image" else ())
    params = [operator.params for operator in maker.operators]
    return frozenset(p.column for p in params if isinstance(p, EmbedParams) and p.model in IMAGE_MODELS)


class FeatureError(ValueError, OperatorError):
    """Features cannot be made of these rows, or not on this machine. The message names the remedy."""


class ServedFeatures:
    """Makes features from source columns, by the files of :func:`describe_features`."""

    schema: pa.Schema | None = None
    """Types of the model's input columns; None for a model of a release that did not keep them."""
    optional: frozenset[str] = frozenset()
    """Source columns whose values may be missing, because `encode` has a rule for missing values."""
    missing_texts: tuple[str, ...] = ()
    """Texts that stand for a missing value."""
    _cleaning: tuple[tuple[str, ...], bool] | None = None
    """Texts that the source read as missing, and whether it dropped space around texts; None for neither."""
    networks: bool = False
    """Whether a pretrained network makes features from texts or images."""

    def __init__(self, folder: Path, n_classes: int) -> None:
        """Read the files. Raises InputError, which names the file, if one is damaged or forged."""
        self._about = read_description(folder / SERVING, n_classes)
        with naming(folder / COLUMNS):
            self.schema = read_columns(folder)
        check_columns(folder / COLUMNS, self.schema, self.names)
        encoder = self._about["encoder"]
        with naming(folder / (SERVING if encoder is None else ENCODING)):
            self._encoder = None if encoder is None else _open_encoder(encoder, folder / ENCODING)
            if encoder is not None and encoder["name"] == "encode":
                self.optional, self.missing_texts = _optional_columns(encoder["params"], folder / ENCODING)
            self.networks = encoder is not None and _has_network(encoder, folder / ENCODING)
        if texts := self._about.get("texts"):
            self._cleaning = (tuple(texts["missing"]), bool(texts["strip"]))
            self.missing_texts = (*self.missing_texts, *texts["missing"])

    @property
    def reading(self) -> dict[str, Any]:
        """Return how the source was read: ``format``, and ``options``, ``rename``, ``flatten`` if there
        were any."""
        return dict(self._about.get("reading") or {})

    @property
    def version(self) -> str:
        """Return the name of the dataset version that the model was trained on."""
        return str(self._about["version"])

    @property
    def names(self) -> list[str]:
        """Return the source columns that the model reads. A request must have all of them."""
        return list(self._about["features"])

    def features(
        self, table: pa.Table, faults: Mapping[int, str] | None = None
    ) -> tuple[np.ndarray[Any, np.dtype[np.float32]], list[str | None]]:
        """Return the features (m, d) of the m usable rows, and for each row None or why it cannot be used."""
        names = self.names
        missing = [name for name in names if name not in table.column_names]
        if missing:
            raise ValueError(
                f"the column {missing[0]!r} is missing; the model reads {', '.join(names)}. A row without a "
                f"value has null in the column."
            )
        if self._cleaning is not None:
            table = clean_columns(table, *self._cleaning)
        known = faults or {}
        reasons: list[str | None] = [known.get(row) for row in range(table.num_rows)]
        if self._encoder is not None:
            return self._encoded(self._encoder, table, reasons)
        X, codes = assemble_features(table, names, self._about["widths"])
        for row, place in np.argwhere(codes).tolist():
            reason, width = Reason(int(codes[row, place])), self._about["widths"][place]
            value, text = explain_value(table[names[place]], row, reason, width)
            reasons[row] = reasons[row] or f"column {names[place]!r} {text} (value: {value})"
        return X[[reason is None for reason in reasons]], reasons

    @staticmethod
    def _encoded(
        encoder: Apply, table: pa.Table, reasons: list[str | None]
    ) -> tuple[np.ndarray[Any, np.dtype[np.float32]], list[str | None]]:
        try:
            made = encoder(table.append_column(ROW_ID, pa.array(np.arange(table.num_rows))))
        except OperatorError as error:
            raise FeatureError(str(error)) from None
        for row, fault in enumerate(made.column(FEATURE_FAULT).to_pylist()):
            if fault is not None and reasons[row] is None:
                shown = f" (value: {fault['value']})" if fault["value"] else ""
                reasons[row] = f"column {fault['column']!r} {fault['error']}{shown}"
        usable = pa.array([reason is None for reason in reasons], pa.bool_())
        return vectors_to_numpy(made.column(FEATURES).filter(usable)), reasons


class ServedModel(ServedFeatures):
    """A registered model, as ``mlflow.pyfunc.load_model`` wraps it."""

    def __init__(self, folder: str | Path) -> None:
        """Read the files of a model. Raises InputError, which names the file, if one is damaged or forged."""
        folder = Path(folder)
        check_files(folder)
        self.model = Ensemble.load(folder)
        super().__init__(folder, 0 if self.model.target is not None else self.model.spec.n_classes)

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return ``prediction`` (a label), ``probability_<label>`` and ``reason`` of each row.

        The prediction of a regression is a number, and there are no probabilities.
        A row that cannot be used has null predictions and a reason. It does not affect the other rows.

        Parameters
        ----------
        model_input
            n rows with the model's columns.
        params
            With ``{"sample": True, "seed": ...}`` one base model predicts each row. It is drawn by the row's
            ``request_id``; see ``Ensemble.sample``. A feature of this name is read as both.

        Raises
        ------
        ValueError
            A column of the model is missing, or a sample is asked for without an id for each row, or of a
            regression.

        """
        params = {**PARAMS, **(params or {})}
        ids = None
        if params["sample"] and self.target is not None:
            raise ValueError("sample: this model predicts a number, and has no base models to draw from")
        if params["sample"]:
            if REQUEST not in model_input.columns:
                raise ValueError(f"sample: give each row's id in a column {REQUEST!r}")
            ids = _request_ids(model_input[REQUEST])
        is_feature = self.schema is not None and REQUEST in self.schema.names
        columns = [name for name in model_input.columns if name != REQUEST or is_feature]
        table, faults = table_of(model_input[columns], self.schema, self.missing_texts)
        found = self.predict_table(table, faults, request_ids=ids, seed=int(params["seed"])).to_pandas()
        # JSON has null, but no NaN.
        nulls = found.columns if found["reason"].notna().any() else ["reason"]
        for name in nulls:
            found[name] = found[name].astype(object).where(found[name].notna(), None)
        answers: pd.DataFrame = found.set_axis(model_input.index, axis=0)
        return answers

    def predict_table(
        self,
        table: pa.Table,
        faults: Mapping[int, str] | None = None,
        *,
        request_ids: Sequence[str] | None = None,
        seed: int = 0,
    ) -> pa.Table:
        """Predict the rows of a table whose columns have the types of training; see :meth:`predict`.

        Parameters
        ----------
        table
            N rows.
        faults
            Reasons, by position, of rows that cannot be used.
        request_ids
            N ids, to answer each row by one base model; None for the mean of all.
        seed
            Of the draw of base models.
        """
        X, reasons = self.features(table, faults)
        good = np.flatnonzero([reason is None for reason in reasons])
        if self.target is not None:
            numbers = np.full(table.num_rows, np.nan)
            numbers[good] = self.model.predict_numbers(X)
            answers = [pa.array(numbers, from_pandas=True), pa.array(reasons, pa.string())]
            return pa.table(dict(zip(self.answers, answers, strict=True)))
        classes: list[Any] = self._about["classes"]
        probabilities = np.full((table.num_rows, len(classes)), np.nan)
        predicted: list[Any] = [None] * table.num_rows
        if len(good):
            probabilities[good] = self.model.predict_proba(X)
            chosen = probabilities[good].argmax(axis=1)
            if request_ids is not None:
                chosen = self.model.sample(X, [request_ids[row] for row in good.tolist()], seed=seed)
            for row, index in zip(good.tolist(), chosen.tolist(), strict=True):
                predicted[row] = classes[index]
        by_class = [pa.array(probabilities[:, index], from_pandas=True) for index in range(len(classes))]
        columns = [pa.array(predicted, pa.array(classes).type), *by_class, pa.array(reasons, pa.string())]
        return pa.table(dict(zip(self.answers, columns, strict=True)))

    @property
    def target(self) -> str | None:
        """Return the source column that a regression predicts; None for a model of classes."""
        return self._about.get("target")

    @property
    def answers(self) -> list[str]:
        """Return the column names of a prediction: ``prediction``, ``probability_<label>``, ``reason``."""
        return ["prediction", *(f"probability_{label}" for label in self._about["classes"]), "reason"]


def _request_ids(column: pd.Series[Any]) -> list[str]:
    """Return the ids of requests as texts. Raises ValueError, which names the first row without one."""
    missing = np.flatnonzero(column.isna())
    if len(missing):
        raise ValueError(
            f"sample: {len(missing)} of {len(column)} rows have no {REQUEST!r}, the first at position "
            f"{missing[0]}. Give each row the id of what is decided"
        )
    return [request_text(request) for request in column.tolist()]


class _OneShard:
    """Reader of the rows of a request as one shard. They come from no file, so nothing can be read."""

    shards = (ShardInfo(0, "", 0, 2**62, 0),)

    def read(self, shard: int, columns: Any) -> pa.Table:
        raise OperatorError("a request has no stored columns")

    read_source = read


def _feature_columns(version: Version, encoding: Path) -> list[str]:
    """Return the source columns that features are made from, without those that `encode` leaves out."""
    names: list[str] = version.manifest["source"]["features"]
    if not encoding.exists():
        return names
    from operators.encoded_features import provenance

    used = {output.source for output in provenance(encoding)}
    return [name for name in names if name in used]


def _optional_columns(params: Mapping[str, Any], encoding: Path) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the columns whose values may be missing, and the texts that stand for a missing value."""
    from operators.encode.column_use import Kind
    from operators.encode.params import EncodeParams
    from operators.encoded_features import provenance

    checked = EncodeParams.recorded(params)
    kinds = {output.source: output.kind for output in provenance(encoding)}
    filled = (Kind.NUMERIC, Kind.BOOLEAN, Kind.DATETIME)
    fails = {n for n, kind in kinds.items() if kind in filled and checked.numeric_of(n).missing == "fail"}
    whole = {name for name, kind in kinds.items() if kind in (Kind.VECTOR, Kind.IMAGE)}
    return frozenset(kinds) - fails - whole, checked.missing_values


def _has_network(encoder: Mapping[str, Any], encoding: Path) -> bool:
    """Return whether a pretrained network makes features from texts or images."""
    if encoder["name"] != "encode":
        return encoder["name"] in ("embed", NAME)
    from operators.encode.column_use import Kind
    from operators.encoded_features import provenance

    return any(output.kind in (Kind.TEXT, Kind.IMAGE) for output in provenance(encoding))


def _open_encoder(encoder: Mapping[str, Any], state: Path | None = None) -> Any:
    """Return the function by which the operator that ``serving.json`` names makes features of new rows."""
    try:
        found = operator_class(encoder["name"])
    except KeyError:
        raise OperatorError(
            f"serving.json: encoder: there is no operator {encoder['name']!r}. Install the package that has "
            "it"
        ) from None
    kind = found.variant(encoder["params"])
    operator: Operator[Any] = kind(kind.Params.recorded(encoder["params"]))
    return operator.open_for_new_rows(Context(_OneShard(), state or Path()))
