"""Registration of trained models on MLflow: the run with its scores, and the model version.

:mod:`engine.training.serving.stored_models` reads models back.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.core.digests import digest
from engine.core.errors import InfeasibleError, InputError, one_line
from engine.core.legacy import tag_value
from engine.core.redaction import redact
from engine.publish.mlflow_outbox import BATCH, experiment_id
from engine.publish.own_artifacts import check_artifacts, upload_file, upload_folder
from engine.publish.tracking import (
    OUTPUT_TAG,
    VERSION_TAG,
    by_metric_key,
    client,
    param_text,
    quoted,
    tracking_uri,
)
from engine.recipe.trainers import TrainParams, trainer_of
from engine.storage.registrations import record_registration
from engine.training.data.features import FeatureMaker
from engine.training.data.version import Version, root_of
from engine.training.evaluation.plots import PLOTS, STRENGTH
from engine.training.fit.job import FEATURES
from engine.training.fit.pretrained import inputs_of
from engine.training.live_run import EXPERIMENT, curve_values, dataset_of, params_of
from engine.training.reference import Reference
from engine.training.serving.model_package import (
    code_paths,
    column_notes,
    input_example,
    requirements,
    save_flavour,
    signature,
)
from engine.training.serving.pyfunc import ServedModel, write_served_model
from engine.training.serving.stored_models import DATA, MODEL
from engine.training.training_run import TrainResult

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput
    from mlflow.tracking import MlflowClient

TRAINING_TAG = "rowsieve.training"
"""Tag of a model version: the name of the training's folder, which identifies its rows and parameters."""
MIXTURE_TAG = "rowsieve.mixture"
"""Tag of a model version: digest of the training and of the weights of its base models."""
CHALLENGER = "challenger"


@dataclass(frozen=True)
class RegisteredModel:
    """A model version in the registry."""

    name: str
    version: str
    run_id: str
    tracking_uri: str
    """Address of the MLflow server, without user and password: it is written to files."""


def register(
    result: TrainResult,
    params: TrainParams,
    name: str,
    *,
    seed: int,
    run_id: str | None = None,
    reference: Reference | None = None,
) -> RegisteredModel:
    """Log a training as an MLflow run and its model as a new version of ``name``, alias ``challenger``.

    ``run_id`` names the run that was opened before the training and has its curve; by default a run is made.
    The run has the dataset version as input and tag, so that a model leads back to its rows; the model is a
    pyfunc of the published source columns. Raises InputError if MLflow does not answer, or the output's
    own database names a place outside the output for artifacts.
    """
    from mlflow.exceptions import MlflowException

    output = result.version.output
    found = client(output)
    try:
        is_new = run_id is None
        if run_id is None:
            tags = {VERSION_TAG: result.version.name, OUTPUT_TAG: str(output.resolve())}
            run_id = str(found.create_run(experiment_id(found, EXPERIMENT, output), tags=tags).info.run_id)
        with _set_final_status(found, run_id):
            check_artifacts(found, run_id, output)
            found.update_run(run_id, name=f"{trainer_of(params)} {result.version.name}")
            _log(result, params, seed, found, run_id, reference, is_new)
            record_registration(output, result.version.name, name, run_id)
            version = _log_model(result, params, name, found, run_id)
            record_registration(output, result.version.name, name, run_id, number=version)
            found.set_registered_model_alias(name, CHALLENGER, version)
    except MlflowException as error:
        raise InputError(
            f"MLflow at {tracking_uri(output)} does not take the model {name!r}: {error}. Check "
            f"MLFLOW_TRACKING_URI, or leave out --register."
        ) from None
    return RegisteredModel(name, version, run_id, redact(tracking_uri(output)))


@contextmanager
def _set_final_status(mlflow_client: MlflowClient, run_id: str) -> Iterator[None]:
    """Give the MLflow run its final status when the block ends, also after an error."""
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the error of the block is the one to report
            mlflow_client.set_terminated(run_id, "FAILED")
        raise
    mlflow_client.set_terminated(run_id, "FINISHED")


def registered_before(result: TrainResult, name: str) -> RegisteredModel | None:
    """Return the registered version of a model of this training and mixture, or None.

    A version of an older release, without the tag of the mixture, is the same model if there is one base
    model; several are registered anew, as their weights are not known. Raises InfeasibleError if MLflow does
    not answer.
    """
    from mlflow.exceptions import MlflowException

    output = result.version.output
    try:
        versions = client(output).search_model_versions(f"name = {quoted(name)}")
    except MlflowException as error:
        raise InfeasibleError(
            f"MLflow at {tracking_uri(output)} does not say whether it has the model {name!r}: "
            f"{one_line(error)}. Start it, or correct MLFLOW_TRACKING_URI. The trained model is kept; the "
            f"same command continues from there."
        ) from None
    for version in versions:
        if _is_model_of(result, version.tags):
            uri = redact(tracking_uri(result.version.output))
            return RegisteredModel(name, str(version.version), str(version.run_id), uri)
    return None


def _is_model_of(result: TrainResult, tags: Mapping[str, str]) -> bool:
    """Return whether a model version with these tags answers as the model of a training."""
    if tag_value(tags, TRAINING_TAG) != result.folder.name:
        return False
    mixture = tags.get(MIXTURE_TAG)
    return len(result.model.models) == 1 if mixture is None else mixture == mixture_digest(result)


def mixture_digest(result: TrainResult) -> str:
    """Return the digest of a training and of the weights of its base models, to nine decimals."""
    weights = [round(float(weight), 9) for weight in result.model.model_weights]
    return digest([result.folder.name, weights])


def _log(
    result: TrainResult,
    params: TrainParams,
    seed: int,
    mlflow_client: MlflowClient,
    run_id: str,
    reference: Reference | None,
    is_new: bool,
) -> None:
    """Log a training. A run that was opened before the training, which is not new, has scores and curve."""
    from mlflow.entities import Metric, Param

    values = params_of(params, seed)
    strength = result.record.get("strength")
    if strength:
        values |= {"strength": param_text(strength["strength"])}
        _log_strength(strength, result, mlflow_client, run_id)
    if result.importance is not None:
        _log_importance(result.importance, mlflow_client, run_id)
    mlflow_client.log_batch(run_id, params=[Param(key, value) for key, value in values.items()])
    mlflow_client.log_inputs(run_id, [dataset_input(result.version)])
    found = [(key, value, 0, 0) for key, value in by_metric_key(scores_of(result, reference)).items()]
    found = [*found, *curve_values(result.record["curve"], 0)] if is_new else []
    for start in range(0, len(found), BATCH):
        metrics = [Metric(*value) for value in found[start : start + BATCH]]
        mlflow_client.log_batch(run_id, metrics=metrics)
    mlflow_client.log_dict(run_id, result.record, "training.json")
    scores = {split: evaluation.to_dict() for split, evaluation in result.scores.items()}
    mlflow_client.log_dict(run_id, scores, "evaluation.json")
    if result.scores:
        upload_folder(mlflow_client, run_id, result.folder / PLOTS, PLOTS)


def scores_of(result: TrainResult, reference: Reference | None = None) -> dict[str, float]:
    """Return the scores of a training, and of the reference beside it, under flat names."""
    found = {
        key: value
        for split, evaluation in result.scores.items()
        for key, value in evaluation.metrics(f"{split}.").items()
    }
    return found | (reference.metrics() if reference else {})


def _log_strength(
    strength: Mapping[str, Any], result: TrainResult, mlflow_client: MlflowClient, run_id: str
) -> None:
    """Log the trade-off as metrics, one step for each strength, as ``strength.json`` and as a picture."""
    from mlflow.entities import Metric

    points = strength["trade_off"]["points"]
    names = ("strength", "mean_accuracy", "worst_accuracy")
    metrics = [Metric(f"trade_off.{n}", p[n], 0, step) for step, p in enumerate(points) for n in names]
    mlflow_client.log_batch(run_id, metrics=metrics)
    mlflow_client.log_dict(run_id, dict(strength), "strength.json")
    picture = result.folder / PLOTS / STRENGTH
    upload_file(mlflow_client, run_id, picture, PLOTS, root=root_of(result.version, result.folder))


def _log_importance(importance: Mapping[str, Any], mlflow_client: MlflowClient, run_id: str) -> None:
    """Log the mean losses by source column as metrics, and everything as ``importance.json``.

    The picture is among the plots.
    """
    from mlflow.entities import Metric

    from operators.report.importances import importance_metrics

    metrics = [Metric(key, value, 0, 0) for key, value in importance_metrics(importance).items()]
    if metrics:
        mlflow_client.log_batch(run_id, metrics=metrics)
    mlflow_client.log_dict(run_id, dict(importance), "importance.json")


def dataset_input(version: Version) -> DatasetInput:
    """Return the published version as an MLflow input. Its digest covers every published byte."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    return DatasetInput(Dataset(**dataset_of(version)), [InputTag("mlflow.data.context", "training")])


def _log_model(
    result: TrainResult, params: TrainParams, name: str, mlflow_client: MlflowClient, run_id: str
) -> str:
    import mlflow.pyfunc

    with tempfile.TemporaryDirectory() as scratch:
        maker = FeatureMaker(result.version.reader(), result.folder / FEATURES, inputs_of(params))
        data = Path(scratch) / DATA
        write_served_model(result.model, result.version, maker, data, params.target)
        save_flavour(result.model, data)
        served = ServedModel(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the example has gaps where the signature allows them
            mlflow.pyfunc.save_model(
                Path(scratch) / MODEL,
                loader_module="engine.training.serving",
                data_path=str(data),
                code_paths=code_paths(Path(scratch) / "code"),
                signature=signature(result.version, [] if served.target else maker.classes, served),
                input_example=input_example(result.version, served),
                pip_requirements=requirements(served.networks, model=result.model.spec.model),
                metadata={
                    "rowsieve.version": result.version.name,
                    "rowsieve.trainer": trainer_of(params),
                    "rowsieve.columns": column_notes(served),
                },
            )
        mlflow_client.log_artifacts(run_id, str(Path(scratch) / MODEL), MODEL)
    _create_if_missing(name, mlflow_client)
    source = f"{mlflow_client.get_run(run_id).info.artifact_uri}/{MODEL}"
    tags = {
        VERSION_TAG: result.version.name,
        TRAINING_TAG: result.folder.name,
        MIXTURE_TAG: mixture_digest(result),
        "rowsieve.trainer": trainer_of(params),
    }
    return str(mlflow_client.create_model_version(name, source, run_id, tags=tags).version)


def _create_if_missing(name: str, mlflow_client: MlflowClient) -> None:
    """Create the registered model unless MLflow has it, as by another training at the same time.

    It is asked for first, since not everyone who may add a version may create a model.
    """
    from mlflow.exceptions import MlflowException

    with suppress(MlflowException):  # whatever ails the server, creation says it too
        mlflow_client.get_registered_model(name)
        return
    try:
        mlflow_client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
