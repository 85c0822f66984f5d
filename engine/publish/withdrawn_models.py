"""The record of a withdrawal on MLflow: tags of runs and models, and aliases of these models."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from connectors.storage import Place
from engine.core.errors import InputError, one_line
from engine.core.legacy import tag_names, tag_value
from engine.core.redaction import redact
from engine.publish.tracking import OUTPUT_TAG, VERSION_TAG, client, has_records, tracking_uri

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


@dataclass(frozen=True)
class ToldModels:
    """The models of a version on MLflow, and who else has a version of its name.

    Attributes
    ----------
    models
        The models that were trained on it.
    elsewhere
        Other outputs with a version of the same name, whose runs and models were left alone.

    """

    models: tuple[TrainedModel, ...] = ()
    elsewhere: tuple[str, ...] = ()


def tag_runs_and_models(
    output: Place, version: str, tag: WithdrawnTag, *, standing: Collection[str], move_aliases: bool
) -> ToldModels:
    """Tag the runs and models of a version of this output, and return the models.

    The name of a version says nothing of its output: equal recipes on equal data have the same one, and
    whoever can write to an output can choose it. On a server that several outputs share, only runs that name
    this output are touched, and models of these runs.

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
        return ToldModels()
    try:
        mlflow, owners = client(output), _Owners(output)
        _tag_runs(mlflow, owners, version, tag)
        models = tuple(_models(mlflow, owners, version, tag, standing if move_aliases else None))
        return ToldModels(models, tuple(sorted(owners.others)))
    except Exception as error:
        raise InputError(
            f"MLflow at {tracking_uri(output)} was not told: {one_line(error)}. Check MLFLOW_TRACKING_URI "
            "and give the same command again."
        ) from None


class _Owners:
    """Tells runs of an output from those of others, which it collects."""

    def __init__(self, output: Place) -> None:
        self._own, self._shared = str(output.resolve()), bool(os.environ.get("MLFLOW_TRACKING_URI"))
        self.others: set[str] = set()

    def is_own(self, tags: Mapping[str, str]) -> bool:
        """Return whether a run is of the output: it names it, or none, or the database is the output's."""
        named = tag_value(tags, OUTPUT_TAG)
        if not self._shared or named in (None, self._own):
            return True
        self.others.add(redact(str(named)))
        return False


def _tag_runs(mlflow: Any, owners: _Owners, version: str, tag: WithdrawnTag) -> None:
    experiments = [found.experiment_id for found in mlflow.search_experiments()]
    runs = [
        run
        for name in tag_names(VERSION_TAG)
        for run in mlflow.search_runs(experiments, filter_string=f"tags.`{name}` = '{version}'")
    ]
    for run in runs:
        if not owners.is_own(run.data.tags):
            continue
        write = partial(mlflow.set_tag, run.info.run_id, WITHDRAWN_TAG)
        tag.apply(run.data.tags, write, partial(mlflow.delete_tag, run.info.run_id, WITHDRAWN_TAG))


def _models(
    mlflow: Any, owners: _Owners, version: str, tag: WithdrawnTag, standing: Collection[str] | None
) -> Iterator[TrainedModel]:
    known = [(model, tag_value(model.tags, VERSION_TAG)) for model in mlflow.search_model_versions()]
    for model, trained_on in known:
        if trained_on != version or not owners.is_own(_run_tags(mlflow, model.run_id)):
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


def _run_tags(mlflow: Any, run_id: str | None) -> Mapping[str, str]:
    """Return the tags of a model's run; none where it has no run."""
    return dict(mlflow.get_run(run_id).data.tags) if run_id else {}
