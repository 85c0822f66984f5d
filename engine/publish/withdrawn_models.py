"""The record of a withdrawal on MLflow: tags of runs and models, and aliases of these models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from connectors.storage import Place
from engine.core.errors import InputError, one_line
from engine.core.legacy import tag_value
from engine.publish.tracking import VERSION_TAG, client, has_records, tracking_uri

WITHDRAWN_TAG = "rowsieve.withdrawn"
"""Tag of runs and model versions; its value is the reason."""


@dataclass(frozen=True)
class WithdrawnTag:
    """The change of a tag: ``why`` is written; None removes the tag; with ``dry_run`` nothing is changed."""

    why: str | None
    dry_run: bool = False

    def apply(self, tags: Mapping[str, str], write: Callable[[str], Any], remove: Callable[[], Any]) -> None:
        """Write or remove the tag of one run or model."""
        if self.dry_run:
            return
        if self.why is not None:
            write(self.why)
        elif WITHDRAWN_TAG in tags:
            remove()


@dataclass(frozen=True)
class TrainedModel:
    """A registered model that was trained on a withdrawn version.

    Attributes
    ----------
    name, number
        Registered model, and its version there.
    aliases
        Aliases that point to it.
    moved
        Alias -> number of the version to which it was moved; None if no older one may have it.

    """

    name: str
    number: str
    aliases: tuple[str, ...] = ()
    moved: dict[str, str | None] = field(default_factory=dict)


def tag_runs_and_models(
    output: Place, version: str, tag: WithdrawnTag, *, standing: Collection[str], move_aliases: bool
) -> list[TrainedModel]:
    """Tag the runs and models of a version, and return the models.

    Parameters
    ----------
    tag
        What to do with the tags. In a dry run aliases stay as well.
    standing
        Versions that are not withdrawn: an alias goes to the newest model version trained on one of these.
    move_aliases
        Move them. Otherwise they stay, whatever they point to.

    Raises
    ------
    InputError
        MLflow does not answer.

    """
    if not has_records(output):
        return []
    try:
        mlflow = client(output)
        _tag_runs(mlflow, version, tag)
        return list(_models(mlflow, version, tag, standing if move_aliases else None))
    except Exception as error:
        raise InputError(
            f"MLflow at {tracking_uri(output)} was not told: {one_line(error)}. Check MLFLOW_TRACKING_URI "
            "and give the same command again."
        ) from None


def _tag_runs(mlflow: Any, version: str, tag: WithdrawnTag) -> None:
    experiments = [found.experiment_id for found in mlflow.search_experiments()]
    for run in mlflow.search_runs(experiments, filter_string=f"tags.`{VERSION_TAG}` = '{version}'"):
        write = partial(mlflow.set_tag, run.info.run_id, WITHDRAWN_TAG)
        tag.apply(run.data.tags, write, partial(mlflow.delete_tag, run.info.run_id, WITHDRAWN_TAG))


def _models(
    mlflow: Any, version: str, tag: WithdrawnTag, standing: Collection[str] | None
) -> Iterator[TrainedModel]:
    known = [(model, tag_value(model.tags, VERSION_TAG)) for model in mlflow.search_model_versions()]
    for model, trained_on in known:
        if trained_on != version:
            continue
        key = (model.name, model.version, WITHDRAWN_TAG)
        write = partial(mlflow.set_model_version_tag, *key)
        tag.apply(model.tags, write, partial(mlflow.delete_model_version_tag, *key))
        aliases = tuple(mlflow.get_model_version(model.name, model.version).aliases)
        moved: dict[str, str | None] = {}
        if standing is not None:
            fit = [int(m.version) for m, of in known if m.name == model.name and of in standing]
            moved = dict.fromkeys(aliases, str(max(fit)) if fit else None)
        for alias in moved if any(moved.values()) and not tag.dry_run else ():
            mlflow.set_registered_model_alias(model.name, alias, moved[alias])
        yield TrainedModel(model.name, str(model.version), aliases, moved)
