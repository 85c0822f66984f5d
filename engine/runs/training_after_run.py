"""``train:`` in a recipe: what happens once its version is published, once for each version and section."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.storage import Place
from engine.core.digests import digest
from engine.core.json_files import write_json
from engine.recipe.incremental import TrainSection
from engine.recipe.promotion import Condition
from operators.base import Executor

if TYPE_CHECKING:
    from engine.recipe.recipe import Recipe

_log = logging.getLogger("rowsieve")
NO_CHAMPION = "there is no champion yet"


def training_file(output: Place, version: str) -> Place:
    """Where the outcome lies."""
    return output / "runs" / f"{version}.train.json"


def after_publish(
    recipe: Recipe, output: Place, manifest: Mapping[str, Any], executor: Callable[[], Executor]
) -> dict[str, Any] | None:
    """Train where the recipe's rule says so; what was decided, by which numbers, and what came of it.

    The same version and section train and register once, however often this is called; what was broken off
    goes on. None without the section. ``executor`` is called where there is something to do.
    """
    section, version = recipe.train, str(manifest["version"])
    if section is None:
        return None
    key = digest([section.model_dump(mode="json"), recipe.seed])
    known = read_training(output, version)
    if known and known["key"] == key:
        return known
    trains, why = decide(section, recipe, output, manifest, executor)
    _log.info("train: %s, %s", "training" if trains else "not training", why)
    record: dict[str, Any] = {"key": key, "version": version, "when": section.when, "why": why}
    record["trained"] = trains
    if trains:
        record |= _train(section, recipe, output, version, executor())
    write_json(training_file(output, version), record)
    return record


def decide(
    section: TrainSection,
    recipe: Recipe,
    output: Place,
    manifest: Mapping[str, Any],
    executor: Callable[[], Executor],
) -> tuple[bool, str]:
    """Whether to train, and why or why not."""
    if section.when in ("always", "never"):
        return section.when == "always", f"train.when is {section.when}"
    if section.when == "drift":
        return _by_drift(manifest.get("incremental"))
    rule = Condition.parse(section.when, "train.when")
    scores = _champion_scores(section, recipe, output, str(manifest["version"]), executor)
    if scores is None:
        return True, NO_CHAMPION
    holds, reason = rule.judge(scores, None)
    return holds, f"champion on the new rows: {reason}"


def _by_drift(record: Mapping[str, Any] | None) -> tuple[bool, str]:
    if record is None:
        return True, "the version has no base, so that nothing was learnt before"
    over = [figure["name"] for figure in record.get("drift", ()) if figure["over"]]
    if record["outcome"] != "predict":
        return True, f"operators have learnt again: {record.get('why', '')}"
    return bool(over), f"drift of {', '.join(over)}" if over else "no drift beyond the thresholds"


def _champion_scores(
    section: TrainSection, recipe: Recipe, output: Place, version: str, executor: Callable[[], Executor]
) -> dict[str, float] | None:
    """Of the champion on the validation rows of a version; None without a champion or such rows."""
    from engine.core.output_layout import version_folder
    from engine.publish.tracking import client
    from engine.recipe.trainers import parse_params
    from engine.training.ensemble import Ensemble
    from engine.training.job import RECORD, TrainingJob
    from engine.training.registry import champion_of
    from engine.training.running import score
    from engine.training.version import open_version

    place = output if isinstance(output, Path) else None  # where workers can read it
    with tempfile.TemporaryDirectory(dir=place, prefix=".champion-") as scratch:
        current = champion_of(client(output), str(section.register_as), scratch)
        if current is None:
            return None
        params = parse_params({"trainer": section.trainer, **section.params})
        job = TrainingJob(
            open_version(version_folder(output, version)), params, recipe.seed, Path(scratch) / "job"
        )
        job.maker.fit(executor())
        write_json(job.folder / RECORD, {"groups": {}})
        champion = Ensemble.load(current[1])
        found = score(job, champion, executor(), folder=current[1], splits=["validation"])
    return found["validation"].metrics() if "validation" in found else None


def _train(
    section: TrainSection, recipe: Recipe, output: Place, version: str, executor: Executor
) -> dict[str, Any]:
    from engine.core.output_layout import version_folder
    from engine.recipe.trainers import parse_params
    from engine.training.retrain import retrain
    from engine.training.running import TrainSpec

    params = parse_params({"trainer": section.trainer, **section.params})
    spec = TrainSpec(version_folder(output, version), params, recipe.seed, truth=section.truth)
    found = retrain(spec, executor, name=section.register_as, promote_if=section.promote_if, once=True)
    scores = {split: e.metrics() for split, e in found.result.evaluations.items()}
    return {
        "trainer": section.trainer,
        "model": found.result.folder.name,
        "scores": scores,
        "registered": vars(found.registered) if found.registered else None,
        "promoted": vars(found.verdict) if found.verdict else None,
    }


def read_training(output: Place, version: str) -> dict[str, Any] | None:
    """What :func:`after_publish` left of a version; None where there is nothing."""
    try:
        found: dict[str, Any] = json.loads(training_file(output, version).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found


def describe(record: Mapping[str, Any]) -> str:
    """A line for people."""
    if not record["trained"]:
        return f"not trained: {record['why']}"
    text = f"trained {record['trainer']} ({record['why']})"
    if record["registered"]:
        text += f", registered {record['registered']['name']} version {record['registered']['version']}"
    if record["promoted"]:
        verb = "is champion now" if record["promoted"]["promoted"] else "is held back"
        text += f", {verb}: {record['promoted']['reason']}"
    return text
