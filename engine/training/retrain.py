"""``rowsieve retrain``: train on a version, register the model, and promote it if it is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from connectors.storage import ObjectPath
from engine.core.errors import InputError
from engine.core.events import Listener, silent
from engine.core.legacy import tag_value
from engine.core.output_layout import output_of, split_version
from engine.publish.lineage_events import Datasets, recorded_job, refusals_recorded
from engine.publish.lineage_facets import (
    dataset_name,
    dataset_version_of,
    manifest_facets,
    model_name,
    output_name,
    promotion_tests,
    quality_facet,
)
from engine.publish.own_artifacts import check_artifacts, upload_file
from engine.publish.tracking import OUTPUT_TAG, client, has_records, mlflow_answers, quoted, tracking_uri
from engine.recipe.promotion import PromotionRule, check_model_name
from engine.recipe.search import ON_COMMAND_LINE, Axis, Sampler, parse_axis, yaml_value
from engine.recipe.trainers import trainer_of
from engine.storage.withdrawals import check_stands, similar_output
from engine.training.data.version import Version, open_version, root_of
from engine.training.evaluation.plots import PLOTS, draw, draw_importance, draw_losses, draw_strength
from engine.training.fit.job import TrainingJob
from engine.training.live_run import TrainingWatch
from engine.training.page import write_page
from engine.training.promotion import PromotionDecision, promote
from engine.training.reference import Reference, check_kind, measure_reference
from engine.training.registration import RegisteredModel, register, registered_before, scores_of
from engine.training.search import SearchResult, search_parameters
from engine.training.training_run import TrainResult, TrainSpec, train
from operators.base import Executor


@dataclass(frozen=True)
class RetrainResult:
    """Result of ``rowsieve retrain``."""

    result: TrainResult
    selection: SearchResult | None
    registered: RegisteredModel | None
    verdict: PromotionDecision | None
    reference: Reference | None = None
    """Class-balanced ERM on the same rows; None where it was not asked for."""
    run_id: str | None = None
    """MLflow's id of the run of the training; None without tracking, and while the server is away."""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-able values."""
        return {
            "folder": str(self.result.folder),
            "version": self.result.version.name,
            "reused": self.result.reused,
            "models": len(self.result.model.models),
            "model_weights": self.result.model.model_weights.tolist(),
            "evaluations": {split: e.to_dict() for split, e in self.result.scores.items()},
            "selection": self.selection.to_dict() if self.selection else None,
            "strength": self.result.record.get("strength"),
            "importance": self.result.importance,
            "reference": self.reference.to_dict() if self.reference else None,
            "run_id": self.run_id,
            "registered": vars(self.registered) if self.registered else None,
            "promoted": vars(self.verdict) if self.verdict else None,
        }


@dataclass(frozen=True)
class RetrainOptions:
    """The search for parameters before a training, and the registration of the model after it."""

    grid: Mapping[str, Axis] | None = None
    """Parameter -> values or range; None: no search. See :func:`engine.training.search.search_parameters`."""
    trials: int | None = None
    """Number of random draws from the grid; None: all its cells."""
    seeds: int | None = None
    """Number of trainings of each candidate; None: the default of ``search_parameters``."""
    prune: bool = False
    """Give up poor candidates after their first training; see ``search_parameters``."""
    sampler: Sampler | None = None
    """Way to draw candidates: ``grid``, ``random`` or ``tpe``; None: the default of ``search_parameters``."""
    names: Mapping[str, str] = field(default_factory=lambda: ON_COMMAND_LINE)
    """Names of the options of the search where it was asked for, for errors."""
    name: str | None = None
    """Name under which the model is registered; None: it is not registered."""
    promote_if: str | None = None
    """Rule by which the registered model becomes champion; None: it does not."""
    once: bool = False
    """Do not register a training that is registered under this name."""
    reference: str = "auto"
    """Class-balanced ERM beside the model: ``auto``, a linear model; ``same``, the model's kind; ``none``."""
    track: bool = True
    """Record the training on MLflow while it goes on, if the output has a database or a server is named."""

    def checked(self) -> RetrainOptions:
        """Return these options. Raises InputError if they contradict each other."""
        check_kind(self.reference, "--reference")
        if self.promote_if and not self.name:
            raise InputError("--promote-if compares with a registered champion: give --register NAME too.")
        if self.name is not None:
            check_model_name(self.name, "--register")
        if (self.trials or self.seeds or self.prune or self.sampler) and not self.grid:
            raise InputError(
                "--trials, --seeds, --sampler and --prune choose among candidates: give --grid "
                "KEY=VALUE,VALUE too."
            )
        return self


def retrain(
    spec: TrainSpec,
    executor: Executor,
    options: RetrainOptions = RetrainOptions(),
    listener: Listener = silent,
) -> RetrainResult:
    """Train or reuse a model, optionally choose its parameters from a grid, register it and promote it.

    ``listener`` gets events of the operator ``train`` in epochs, and of ``search`` in trainings.

    Raises InputError for anything that the user can correct, before the training if that is possible.
    """
    with refusals_of_training(spec):
        version = open_version(spec.dataset)
    job = f"{version.manifest['recipe']}.train.{trainer_of(spec.params)}"
    datasets = partial(_datasets, version, options.promote_if)
    with recorded_job(version.output, job, "TRAINING", datasets) as seen:
        options = options.checked()
        if options.promote_if:
            check_stands(version.output, version.name)
        seen.value = found = _retrain(spec, executor, options, listener)
    return found


def refusals_of_training(spec: TrainSpec) -> AbstractContextManager[None]:
    """Return the context in which a version is opened: OpenLineage is told of a training that has none."""
    output = output_of(split_version(spec.dataset)[0] if isinstance(spec.dataset, str) else spec.dataset)
    return refusals_recorded(output, f"train.{trainer_of(spec.params)}", "TRAINING")


def _datasets(version: Version, promote_if: str | None, found: RetrainResult | None) -> Datasets:
    """Return version, model and the promotion check for OpenLineage; the model once it is trained."""
    from openlineage.client import event_v2

    manifest = version.manifest
    metrics = {"dataQualityMetrics": quality_facet(manifest, as_input=True)}
    facets = manifest_facets(manifest)
    made = Datasets([event_v2.InputDataset(*output_name(version.output), facets=facets, inputFacets=metrics)])
    if found is not None:
        state = {"version": dataset_version_of(found.result.place.name)}
        made.outputs = [event_v2.OutputDataset(*dataset_name(found.result.place), facets=state)]
        if found.registered is not None:
            model = model_name(found.registered.tracking_uri, found.registered.name)
            number = {"version": dataset_version_of(str(found.registered.version))}
            made.outputs.append(event_v2.OutputDataset(*model, facets=number))
        made.tests = promotion_tests(vars(found.verdict) if found.verdict else None, promote_if or "")
    return made


def _retrain(
    spec: TrainSpec, executor: Executor, options: RetrainOptions, listener: Listener
) -> RetrainResult:
    rule = PromotionRule.parse(options.promote_if) if options.promote_if else None
    for condition in rule.conditions if rule else ():
        condition.check_task(spec.params.task == "regression")
    selection = None
    if options.grid:
        selection = search_parameters(
            spec,
            options.grid,
            executor,
            trials=options.trials,
            seeds=options.seeds,
            prune=options.prune,
            listener=listener,
            sampler=options.sampler,
            names=options.names,
        )
    chosen = selection.spec if selection else spec
    watch = TrainingWatch(listener, options.track)
    with watch.closing():
        result = train(replace(chosen, importance=True), executor, watch)
        watch.finish()
        if selection and result.reused:  # the search has trained it
            job = TrainingJob(result.version, chosen.params, chosen.seed, result.folder)
            watch.open(job, result.place)
        return _after_training(result, chosen, executor, options, rule, selection, watch)


def _after_training(
    result: TrainResult,
    chosen: TrainSpec,
    executor: Executor,
    options: RetrainOptions,
    rule: PromotionRule | None,
    selection: SearchResult | None,
    watch: TrainingWatch,
) -> RetrainResult:
    """Score the reference, then draw, record, register and promote a model."""
    reference = measure_reference(chosen, result, executor, check_kind(options.reference, "--reference"))
    _draw_pictures(result)
    run_id = _record_scores(result, reference, selection, watch)
    name = options.name
    registered = registered_before(result, name) if name and options.once else None
    if name and registered is None:
        registered = register(
            result, chosen.params, name, seed=chosen.seed, run_id=run_id, reference=reference
        )
    verdict = None
    if registered and rule:
        job = TrainingJob(result.version, chosen.params, chosen.seed, result.folder)
        verdict = promote(registered, result, job, rule, executor=executor, truth=chosen.truth)
    page = write_page(result, registered, verdict, reference, selection)
    if isinstance(result.place, ObjectPath):
        (result.place / page.name).write_bytes(page.read_bytes())
    if registered:
        _upload_page(result, page, registered.run_id)
    elif run_id:
        with suppress(Exception):  # a server that has gone does not end a training that has ended
            _upload_page(result, page, run_id)
    return RetrainResult(result, selection, registered, verdict, reference, run_id)


def _upload_page(result: TrainResult, page: Path, run_id: str) -> None:
    found = client(result.version.output)
    check_artifacts(found, run_id, result.version.output)
    upload_file(found, run_id, page, root=root_of(result.version, result.folder))


def _record_scores(
    result: TrainResult, reference: Reference | None, selection: SearchResult | None, watch: TrainingWatch
) -> str | None:
    """Add the scores to the run of a training; return its id if the server has it."""
    if watch.run is None:
        return None
    evaluations = {split: scores.to_dict() for split, scores in result.scores.items()}
    texts = {"training.json": result.record, "evaluation.json": evaluations}
    if selection is not None:
        texts["search.json"] = selection.to_dict()
    watch.run.complete(result.record["curve"], scores_of(result, reference), texts)
    return watch.run.run_id


def _draw_pictures(result: TrainResult) -> None:
    """Write all pictures of a training beside its model."""
    for split, evaluation in result.evaluations.items():
        draw(evaluation, result.folder / PLOTS / split, f"{result.version.name}, {split}")
    for split, regression in result.regressions.items():
        draw_losses(regression, result.folder / PLOTS / split, f"{result.version.name}, {split}")
    if "strength" in result.record:
        draw_strength(result.record["strength"], result.folder / PLOTS)
    if result.importance and "columns" in result.importance:
        draw_importance(result.importance, result.folder / PLOTS)


def find_dataset(name: str) -> str:
    """Return the output folder that a name refers to: a folder itself, or a recipe known to MLflow.

    Keeps ``@VERSION``. Raises InputError if nothing of that name is known.
    """
    place, version = split_version(name)
    if "://" in name or Path(place).exists():
        return name
    here = Path()
    if not has_records(here):
        raise InputError(
            f"--dataset {name}: there is no folder {place!r}, and no MLflow server is named to look it up. "
            "Give the output folder of a recipe that has run, such as demo/out, or set MLFLOW_TRACKING_URI."
            f"{similar_output(place)}"
        )
    with mlflow_answers(here, f"where the dataset {place!r} lies"):
        found = client(here)
        experiments = [experiment.experiment_id for experiment in found.search_experiments()]
        runs = found.search_runs(experiments, f"dataset.name = {quoted(place)}", max_results=1)
    if not runs:
        raise InputError(
            f"--dataset {name}: no run on {tracking_uri(here)} published a dataset {place!r}. Give the "
            f"output folder of a recipe that has run, such as demo/out.{similar_output(place)}"
        )
    output = str(tag_value(runs[0].data.tags, OUTPUT_TAG))
    return f"{output}@{version}" if version else output


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Parse ``KEY=VALUE`` texts with YAML values into a mapping. Raises InputError."""
    found = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--set {setting}: write it as key=value, for example lr=0.1.")
        found[key.strip()] = yaml_value(f"--set {setting}", text)
    return found


def parse_grid(axes: Sequence[str]) -> dict[str, Axis]:
    """Parse ``KEY=V1,V2`` and ``KEY=LOW..HIGH`` texts into axes. Raises InputError."""
    found: dict[str, Axis] = {}
    for axis in axes:
        key, equals, text = axis.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--grid {axis}: write it as key=value,value, for example lr=0.01,0.1.")
        found[key.strip()] = parse_axis(text, f"--grid {axis}")
    return found
