"""The training that the section ``train`` of a recipe asks for, once for each version and section."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from connectors.storage import Place
from engine.core.digests import digest
from engine.core.events import Event, Listener, silent
from engine.core.json_files import write_json
from engine.core.output_layout import version_folder
from engine.plan.refit_reasons import learnt_again
from engine.publish.tracking import client
from engine.recipe.incremental import TrainSection
from engine.recipe.promotion import CannotCompareError, Condition
from engine.recipe.recipe import Recipe
from engine.recipe.search import IN_RECIPE, SearchSection
from engine.recipe.trainers import parse_params
from engine.runs.plugins.base import RunContext, RunPlugin
from engine.runs.training_record import read_training, training_file
from engine.storage.manifest import NAME, is_published, read_manifest
from engine.storage.object_run_store import local_cache, synced_executor
from engine.storage.withdrawals import withdrawal_of
from operators.base import Executor

_log = logging.getLogger("rowsieve")
NO_CHAMPION = "there is no champion yet"


class Training(RunPlugin):
    """Trains a model on the published version if the recipe's rule says so."""

    name: ClassVar[str] = "training"

    def published(self, run: RunContext) -> None:
        """Train, or record why not."""
        plan, version = run.plan, run.publication
        if plan.recipe.train is None:
            return
        meter = run.meter("train")
        meter.emit("start")
        version.training = train_if_due(
            plan.recipe, plan.output, version.manifest, run.executor, _progress_alone(run.listener)
        )
        meter.emit("finish")


def _progress_alone(listener: Listener) -> Listener:
    """Return a listener that passes progress on: the run itself tells of the start and the end of a step."""

    def told(event: Event) -> None:
        if event.kind == "progress":
            listener(event)

    return told


def train_if_due(
    recipe: Recipe,
    output: Place,
    manifest: Mapping[str, Any],
    executor: Callable[[], Executor],
    listener: Listener = silent,
) -> dict[str, Any] | None:
    """Train if the recipe's rule says so, and keep the record of the decision and its result.

    The same version and section train and register once, however often this is called. A training that was
    interrupted is continued.

    Parameters
    ----------
    executor
        Returns the executor; it is called only if there is something to compute.
    listener
        Gets the progress of the training.

    Returns
    -------
    The record, JSON-able; None if the recipe has no section ``train``.

    """
    section, version = recipe.train, str(manifest["version"])
    if section is None:
        return None
    later = {"reference": "auto", "search": None}
    usual = {name for name, default in later.items() if getattr(section, name) == default}
    key = digest([section.model_dump(mode="json", exclude=usual), recipe.seed])
    known = read_training(output, version)
    if known and known["key"] == key:
        return known
    trains, why = decide_training(section, recipe, output, manifest, executor)
    _log.info("train: %s, %s", "training" if trains else "not training", why)
    record: dict[str, Any] = {"key": key, "version": version, "when": section.when, "why": why}
    record["trained"] = trains
    if trains:
        record |= _train(section, recipe, output, version, executor(), listener)
    write_json(training_file(output, version), record, root=output)
    return record


def decide_training(
    section: TrainSection,
    recipe: Recipe,
    output: Place,
    manifest: Mapping[str, Any],
    executor: Callable[[], Executor],
) -> tuple[bool, str]:
    """Return whether to train, and the reason."""
    if section.when in ("always", "never"):
        return section.when == "always", f"train.when is {section.when}"
    if section.when == "drift":
        return _by_drift(section, output, manifest)
    rule = Condition.parse(section.when, "train.when")
    try:
        scores = _champion_scores(section, recipe, output, manifest, executor)
    except CannotCompareError as error:
        return True, f"the champion cannot answer for the new rows: {error}"
    if scores is None:
        return True, NO_CHAMPION
    holds, reason = rule.evaluate(scores, None)
    return holds, f"champion on the new rows: {reason}"


def _by_drift(section: TrainSection, output: Place, manifest: Mapping[str, Any]) -> tuple[bool, str]:
    """Look for drift in a version and in those between it and the version the champion was trained on.

    A drift whose training failed, or was held back, would otherwise be forgotten the next night. A champion
    that was trained on a withdrawn version is reason enough.
    """
    trains, why = _drifted(manifest.get("incremental"))
    if trains or not section.register_as:
        return trains, why
    trained_on = _champions_version(section, output)
    if trained_on is None:
        return True, NO_CHAMPION
    withdrawn = withdrawal_of(output, trained_on) if NAME.fullmatch(trained_on) else None
    if withdrawn is not None:
        return True, f"the champion was trained on {trained_on}, which was withdrawn: {withdrawn.why}"
    seen = {str(manifest["version"])}  # a forged base could lead back to itself
    while not trains and str(manifest["version"]) != trained_on:
        base = str(manifest["incremental"]["base"])
        if base == trained_on or base in seen or not is_published(output, base):
            break
        seen.add(base)
        manifest = read_manifest(version_folder(output, base))
        trains, found = _drifted(manifest.get("incremental"))
        why = f"the champion is older than version {base}: {found}" if trains else why
    return trains, why


def _champions_version(section: TrainSection, output: Place) -> str | None:
    """Return the version that the champion was trained on; None without a champion."""
    from engine.training.serving.stored_models import trained_on

    return trained_on(client(output), str(section.register_as))


def _drifted(record: Mapping[str, Any] | None) -> tuple[bool, str]:
    if record is None:
        return True, "the version has no base, so that nothing was learnt before"
    over = [figure["name"] for figure in record.get("drift", ()) if figure["over"]]
    if record["outcome"] != "predict":
        return True, f"operators have learnt again: {record.get('why', '')}"
    if over:
        return True, f"drift of {', '.join(over)}"
    again = [f"{name} ({why})" for name, why in learnt_again(record).items()]
    if again:
        return True, f"operators have learnt again: {', '.join(again)}"
    return (
        False,
        "no significant drift beyond the thresholds" if "drift" in record else "there are no new rows",
    )


def _champion_scores(
    section: TrainSection,
    recipe: Recipe,
    output: Place,
    manifest: Mapping[str, Any],
    executor: Callable[[], Executor],
) -> dict[str, float] | None:
    """Score the champion on the rows of the shards that are new in a version; None without a champion.

    It has been trained on none of them, so its train and validation rows serve alike; test rows stay unseen.
    A version without a base, or without new shards, is scored on all its validation rows.
    """
    from engine.training.champion import rows_for
    from engine.training.data.version import open_version
    from engine.training.evaluation.split_scores import GroupFacts, score
    from engine.training.fit.ensemble import Ensemble
    from engine.training.fit.job import TrainingJob
    from engine.training.serving.stored_models import champion_of

    # Workers on other hosts read the champion and the features: from a shared folder, or from copies of it.
    place = output / "runs" if isinstance(output, Path) else local_cache()
    place.mkdir(exist_ok=True)
    # A name that the cleanup of the next run removes, if this one is killed.
    with tempfile.TemporaryDirectory(dir=place, prefix=".champion-", suffix=".tmp") as scratch:
        current = champion_of(client(output), str(section.register_as), Path(scratch), output)
        if current is None:
            return None
        params = parse_params({"trainer": section.trainer, **section.params})
        version = open_version(version_folder(output, str(manifest["version"])))
        job = TrainingJob(version, params, recipe.seed, Path(scratch) / "job")
        shards = manifest.get("incremental", {}).get("shards", {"old": 0, "new": 0})
        first, split = (shards["old"], "train+validation") if shards["new"] else (0, "validation")
        remote = output / "runs" / Path(scratch).name
        with synced_executor(executor(), remote, Path(scratch)) as synced:
            job.maker.fit(synced)
            champion = Ensemble.load(current[1])
            source = rows_for(current[1], job)
            found = score(
                job,
                champion,
                synced,
                GroupFacts.of_version(version),
                folder=current[1],
                splits=[split],
                source=source,
                first_shard=first,
            )
    return found[split].metrics() if split in found else None


def _train(
    section: TrainSection,
    recipe: Recipe,
    output: Place,
    version: str,
    executor: Executor,
    listener: Listener,
) -> dict[str, Any]:
    from engine.training.retrain import RetrainOptions, retrain
    from engine.training.training_run import TrainSpec

    params = parse_params({"trainer": section.trainer, **section.params})
    spec = TrainSpec(version_folder(output, version), params, recipe.seed, truth=section.truth)
    options = RetrainOptions(
        **_search_options(section.search),
        name=section.register_as,
        promote_if=section.promote_if,
        once=True,
        reference=section.reference,
        track=recipe.tracking.enabled,
    )
    found = retrain(spec, executor, options, listener)
    scores = {split: e.metrics() for split, e in found.result.scores.items()}
    return {
        "trainer": section.trainer,
        "model": found.result.folder.name,
        "scores": scores,
        **(
            {"strength": found.result.record["strength"]["strength"]}
            if "strength" in found.result.record
            else {}
        ),
        "importance": found.result.importance,
        "selection": found.selection.to_dict() if found.selection else None,
        "reference": found.reference.metrics() if found.reference else None,
        "registered": vars(found.registered) if found.registered else None,
        "promoted": vars(found.verdict) if found.verdict else None,
    }


def _search_options(search: SearchSection | None) -> dict[str, Any]:
    """Return the options of a training for the search that a recipe asks for."""
    if search is None:
        return {}
    return {
        "grid": search.axes,
        "trials": search.trials,
        "seeds": search.seeds,
        "prune": search.prune,
        "sampler": search.sampler,
        "names": IN_RECIPE,
    }
