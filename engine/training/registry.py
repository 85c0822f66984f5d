"""Registration of trained models on MLflow: the run with its scores, the model version, and its aliases.

:mod:`engine.training.serving.stored_models` reads models back.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.storage import Place
from engine.core.errors import InfeasibleError, InputError, one_line
from engine.core.legacy import tag_value
from engine.core.redaction import redact
from engine.execution.local_executor import LocalExecutor
from engine.publish.mlflow_outbox import BATCH, experiment_id
from engine.publish.own_artifacts import check_artifacts, upload_file, upload_folder
from engine.publish.tracking import OUTPUT_TAG, VERSION_TAG, client, metric_key, param_text, tracking_uri
from engine.recipe.promotion import CannotCompareError, PromotionRule
from engine.recipe.trainers import TrainParams, trainer_of
from engine.storage.object_run_store import synced_executor
from engine.storage.registrations import record_registration
from engine.training.champion import count_paired_answers, rows_for
from engine.training.data.features import FeatureMaker
from engine.training.data.version import Version, root_of
from engine.training.evaluation.plots import PLOTS, STRENGTH
from engine.training.evaluation.split_scores import score
from engine.training.fit.ensemble import Ensemble
from engine.training.fit.job import FEATURES, TrainingJob
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
from engine.training.serving.stored_models import CHAMPION, DATA, MODEL, champion_of, withdrawn_data
from engine.training.training_run import TrainResult
from operators.base import Executor

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput
    from mlflow.tracking import MlflowClient

TRAINING_TAG = "rowsieve.training"
"""Tag of a model version: the name of the training's folder, which identifies its rows and parameters."""
CHALLENGER = "challenger"
_logger = logging.getLogger("rowsieve")


@dataclass(frozen=True)
class RegisteredModel:
    """A model version in the registry."""

    name: str
    version: str
    run_id: str
    tracking_uri: str
    """Address of the MLflow server, without user and password: it is written to files."""


@dataclass(frozen=True)
class PromotionDecision:
    """Decision about the alias ``champion``, with its reason."""

    promoted: bool
    reason: str


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
    """Return the registered version of a model that belongs to this training, or None.

    Raises InfeasibleError if MLflow does not answer.
    """
    from mlflow.exceptions import MlflowException

    output = result.version.output
    try:
        versions = client(output).search_model_versions(f"name = '{name}'")
    except MlflowException as error:
        raise InfeasibleError(
            f"MLflow at {tracking_uri(output)} does not say whether it has the model {name!r}: "
            f"{one_line(error)}. Start it, or correct MLFLOW_TRACKING_URI. The trained model is kept; the "
            f"same command continues from there."
        ) from None
    for version in versions:
        if tag_value(version.tags, TRAINING_TAG) == result.folder.name:
            uri = redact(tracking_uri(result.version.output))
            return RegisteredModel(name, str(version.version), str(version.run_id), uri)
    return None


def promote(
    registered: RegisteredModel,
    result: TrainResult,
    job: TrainingJob,
    rule: PromotionRule,
    *,
    executor: Executor | None = None,
    truth: str | None = None,
) -> PromotionDecision:
    """Move ``champion`` to the new version if the rule holds on the test rows of its dataset.

    Champion and challenger are scored on the same rows and groups, each through its own features. Without
    test rows the validation rows serve, and the reason says that the challenger may have been selected on
    them. Of a champion that stays, the reason says where its rows were withdrawn. Raises InputError if the
    challenger has neither or no such metric.
    """
    split = next((name for name in ("test", "validation") if name in result.scores), None)
    if split is None:
        raise InputError(
            "--promote-if: there are neither test nor validation rows to compare on. Set source.holdout, or "
            "split.test."
        )
    mine = result.scores[split]
    found = client(result.version.output)
    # Beside the challenger's files, where workers can read it.
    with tempfile.TemporaryDirectory(dir=result.folder, prefix=".champion-") as scratch:
        current = champion_of(found, registered.name, Path(scratch), result.version.output)
        theirs = paired = None
        if current is not None:
            version, folder = current
            if version == registered.version:
                return PromotionDecision(True, f"version {version} is the champion already")
            try:
                source = rows_for(folder, job)
            except CannotCompareError as error:
                reason = f"champion {version} cannot answer for the new rows: {error}. Set the alias by hand."
                reason += _withdrawn_text(found, registered.name, version, result.version.output)
                return _record_decision(found, registered, PromotionDecision(False, reason))
            champion = Ensemble.load(folder)
            with synced_executor(executor or LocalExecutor(), result.place, result.folder) as opened:
                scored = score(
                    job, champion, opened, folder=folder, truth=truth, splits=[split], source=source
                )
                theirs = scored[split].metrics()
                paired = count_paired_answers(
                    job, result.folder, folder, source, opened, split=split, truth=truth
                )
    holds, reason = rule.evaluate(mine.metrics(), theirs, paired)
    if holds and theirs is not None:
        reason += _warned_loss(rule, registered, mine.metrics(), theirs)
    if theirs is not None and split == "validation":
        reason += "; on validation rows, which the challenger may have been selected on: hold rows out"
    if current is not None and not holds:
        reason += _withdrawn_text(found, registered.name, current[0], result.version.output)
    if holds:
        found.set_registered_model_alias(registered.name, CHAMPION, registered.version)
    return _record_decision(found, registered, PromotionDecision(holds, reason))


def _warned_loss(
    rule: PromotionRule, registered: RegisteredModel, mine: Mapping[str, float], theirs: Mapping[str, float]
) -> str:
    """Warn of a promotion that costs much accuracy without being asked about it; return the reason's part."""
    text = rule.unbounded_loss(mine, theirs)
    if not text:
        return ""
    _logger.warning(
        "%s %s is champion now, and %s. To bound it, add ` and accuracy > champion - 0.005` to the rule; to "
        "go back, set the alias by hand.",
        registered.name,
        registered.version,
        text,
    )
    return f"; {text}"


def _withdrawn_text(mlflow_client: MlflowClient, name: str, champion: str, output: Place) -> str:
    """Say where a champion that stays was trained on a withdrawn version, and what to do; else nothing."""
    told = withdrawn_data(mlflow_client, name, champion, output)
    if not told:
        return ""
    return (
        f"; champion {champion} {told}. It stays champion, and the yardstick, until a model beats it by the "
        "rule or the alias is set by hand"
    )


def _record_decision(
    mlflow_client: MlflowClient, registered: RegisteredModel, decision: PromotionDecision
) -> PromotionDecision:
    """Write a decision to the challenger's run and return it; MLflow cuts tags at 5,000 characters."""
    text = ("promoted: " if decision.promoted else "kept: ") + decision.reason
    mlflow_client.set_tag(registered.run_id, "rowsieve.promotion", text[:5000])
    return decision


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
    found = [(metric_key(key), value, 0, 0) for key, value in scores_of(result, reference).items()]
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
        "rowsieve.trainer": trainer_of(params),
    }
    return str(mlflow_client.create_model_version(name, source, run_id, tags=tags).version)


def _create_if_missing(name: str, mlflow_client: MlflowClient) -> None:
    """Create the registered model unless MLflow has it."""
    from mlflow.exceptions import MlflowException

    try:
        mlflow_client.get_registered_model(name)
    except MlflowException:
        mlflow_client.create_registered_model(name)
