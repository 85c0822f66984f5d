"""Promotion of a registered model: its comparison with the champion, and the alias ``champion`` on MLflow."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from connectors.storage import Place, remove_tree
from engine.core.errors import InputError
from engine.execution.local_executor import LocalExecutor
from engine.publish.tracking import client
from engine.recipe.promotion import CannotCompareError, Condition, PromotionRule
from engine.storage.object_run_store import synced_executor
from engine.training.champion import PairedAnswers, count_paired_answers, rows_for
from engine.training.data.version import Version, root_of
from engine.training.evaluation.by_group import INFERRED, Scores
from engine.training.evaluation.split_scores import GroupFacts, RowSource, score
from engine.training.fit.ensemble import Ensemble
from engine.training.fit.job import TrainingJob
from engine.training.registration import RegisteredModel
from engine.training.serving.stored_models import CHAMPION, champion_of, champion_version, withdrawn_data
from engine.training.training_run import TrainResult
from operators.base import Executor

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

WORST_GROUP = "worst_group_"
"""What the names of metrics of the worst group contain, behind the name of the grouping."""
SCRATCH = ".champion-"
"""Beginning of the name of a folder that holds a copy of the champion during a comparison."""
SECONDS_OF_COMPARISON = 7 * 86_400
"""Age from which such a folder was left by a comparison that was killed."""
MAX_COMPARISONS = 3
"""Comparisons of a challenger, of which all but the first follow a change of the champion during the last."""
_logger = logging.getLogger("rowsieve")


@dataclass(frozen=True)
class PromotionDecision:
    """Decision about the alias ``champion``, with its reason."""

    promoted: bool
    reason: str


@dataclass(frozen=True)
class _Comparison:
    """Outcome of a comparison with the champion that the registry had when it began."""

    champion: str | None
    """Version number of the champion; None without one."""
    decision: PromotionDecision
    lost: str = ""
    """The accuracy that a promotion costs without being asked about it; see ``PromotionRule``."""


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
    them. Of a champion that stays, the reason says where its rows were withdrawn. If another training has
    become champion in the meantime, the challenger is compared anew with that one, at most
    ``MAX_COMPARISONS`` times in all.

    Raises
    ------
    InputError
        The challenger has neither test nor validation rows, or no such metric.
    InfeasibleError
        MLflow does not say which version is the champion.
    """
    split = next((name for name in ("test", "validation") if name in result.scores), None)
    if split is None:
        raise InputError(
            "--promote-if: there are neither test nor validation rows to compare on. Set source.holdout, or "
            "split.test."
        )
    found = client(result.version.output)
    run_on = executor or LocalExecutor()
    for _ in range(MAX_COMPARISONS):
        compared = _compare(found, registered, result, job, rule, run_on, split, truth)
        if compared.champion == registered.version:
            return compared.decision
        if not compared.decision.promoted or _champion_number(found, registered.name) == compared.champion:
            break
    else:
        reason = (
            f"the champion changed during each of {MAX_COMPARISONS} comparisons: run the same command again"
        )
        compared = replace(compared, decision=PromotionDecision(False, reason))
    if compared.decision.promoted:
        found.set_registered_model_alias(registered.name, CHAMPION, registered.version)
        _warn_of_loss(registered, compared.lost)
    return _record_decision(found, registered, compared.decision)


def _champion_number(mlflow_client: MlflowClient, name: str) -> str | None:
    version = champion_version(mlflow_client, name)
    return None if version is None else str(version.version)


def _compare(
    mlflow_client: MlflowClient,
    registered: RegisteredModel,
    result: TrainResult,
    job: TrainingJob,
    rule: PromotionRule,
    executor: Executor,
    split: str,
    truth: str | None,
) -> _Comparison:
    """Compare a challenger with the present champion by the rule; no alias is moved."""
    mine, output = result.scores[split].metrics(), result.version.output
    _remove_left_behind(result)
    # Beside the challenger's files, where workers can read it.
    with tempfile.TemporaryDirectory(dir=result.folder, prefix=SCRATCH) as scratch:
        current = champion_of(mlflow_client, registered.name, Path(scratch), output)
        if current is None:
            holds, reason = rule.evaluate(mine, None, None)
            few = _notes(rule.conditions, result.scores[split])
            few += _undivided_text(rule.conditions, result.version)
            return _Comparison(None, PromotionDecision(holds, reason + few))
        version, folder = current
        if version == registered.version:
            return _Comparison(version, PromotionDecision(True, f"version {version} is the champion already"))
        try:
            source = rows_for(folder, job)
        except CannotCompareError as error:
            reason = f"champion {version} cannot answer for the new rows: {error}. Set the alias by hand."
            reason += _withdrawn_text(mlflow_client, registered.name, version, output)
            return _Comparison(version, PromotionDecision(False, reason))
        theirs, paired = _answers(result, job, folder, source, executor, split, truth)
    holds, reason = rule.evaluate(mine, theirs, paired)
    untested = [one for one in rule.conditions if one.confidence is None or paired is None]
    reason += _notes(untested, result.scores[split])
    reason += _undivided_text(rule.conditions, result.version)
    lost = rule.unbounded_loss(mine, theirs) if holds else ""
    reason += f"; {lost}" if lost else ""
    if split == "validation":
        reason += "; on validation rows, which the challenger may have been selected on: hold rows out"
    if not holds:
        reason += _withdrawn_text(mlflow_client, registered.name, version, output)
    return _Comparison(version, PromotionDecision(holds, reason), lost)


def _remove_left_behind(result: TrainResult) -> None:
    """Remove copies of champions that comparisons killed long ago have left beside a model."""
    for folder in result.folder.glob(f"{SCRATCH}*"):
        with suppress(FileNotFoundError):  # another comparison has removed it
            if folder.lstat().st_mtime < time.time() - SECONDS_OF_COMPARISON:
                remove_tree(folder, root=root_of(result.version, result.folder))


def _answers(
    result: TrainResult,
    job: TrainingJob,
    champion: Path,
    source: RowSource | None,
    executor: Executor,
    split: str,
    truth: str | None,
) -> tuple[dict[str, float], PairedAnswers | None]:
    """Return the champion's scores on a split, and the answers of both models to its rows."""
    groups = GroupFacts.of_record(result.record, job.version)
    with synced_executor(executor, result.place, result.folder) as opened:
        model = Ensemble.load(champion)
        scored = score(
            job, model, opened, groups, folder=champion, truth=truth, splits=[split], source=source
        )
        paired = count_paired_answers(
            job, result.folder, champion, opened, groups, split=split, source=source, truth=truth
        )
    return scored[split].metrics(), paired


def _notes(conditions: Sequence[Condition], scores: Scores) -> str:
    """Name the groups that are pooled, left out or have wrong labels, behind a semicolon; else nothing."""
    starts = [one.metric.partition(WORST_GROUP)[0] for one in conditions if WORST_GROUP in one.metric]
    texts = [scores.notes(start.rstrip("_") or INFERRED) for start in dict.fromkeys(starts)]
    return "".join(f"; {text}" for text in texts if text)


def _undivided_text(conditions: Sequence[Condition], version: Version) -> str:
    """Say that the worst group of a condition is a class, behind a semicolon; else nothing."""
    asked = any(one.metric.startswith(WORST_GROUP) for one in conditions)
    text = version.undivided_groups if asked else ""
    return f"; {text.removesuffix('.')}" if text else ""


def _warn_of_loss(registered: RegisteredModel, lost: str) -> None:
    """Warn of a promotion that costs much accuracy without being asked about it."""
    if lost:
        _logger.warning(
            "%s %s is champion now, and %s. To bound it, add ` and accuracy > champion - 0.005` to the rule; "
            "to go back, set the alias by hand.",
            registered.name,
            registered.version,
            lost,
        )


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
