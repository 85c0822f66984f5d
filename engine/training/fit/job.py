"""One training as a picklable value, carried out by one task or by every worker of a group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from connectors.storage import ObjectPath, Place, remove_file
from engine.core.digests import digest
from engine.core.json_files import DamagedFileError, read_json, write_json
from engine.core.suggestions import explain
from engine.recipe.trainers import LATER_KEYS, TrainParams, trainer_of
from engine.storage.object_run_store import private_copy
from engine.storage.state_sync import snapshot, upload
from engine.training.data.features import FeatureMaker, Reweighting, dataset_of_version
from engine.training.data.rows import Dataset
from engine.training.data.strength import fingerprint_parts, strength_weights_of, summary_of
from engine.training.data.version import Version, root_of
from engine.training.fit.callbacks import installed_callbacks
from engine.training.fit.pretrained import content_of, inputs_of
from engine.training.fit.progress import PROGRESS, ProgressFile

if TYPE_CHECKING:
    from engine.training.fit.ensemble import Ensemble
    from engine.training.fit.kernel import TrainingOutcome
    from operators.communicator import Communicator

RECORD = "training.json"
BLOCKS = "entries of a vector share a standard deviation"
"""Part of a training's fingerprint: earlier releases scaled each entry by itself."""
FEATURES = "features"


@dataclass(frozen=True)
class TrainingJob:
    """A version to train on, the trainer's parameters, and the folder that receives the model."""

    version: Version
    params: TrainParams
    seed: int
    folder: Path
    """All workers must see it; ``features/`` in it holds the fitted feature maker's state."""
    progress: Place | None = None
    """Folder or prefix that gets a file with the epochs so far; None: they are not noted."""

    @property
    def root(self) -> Path:
        """Folder beneath which no link is followed where the model is written."""
        return root_of(self.version, self.folder)

    @property
    def resolved_params(self) -> TrainParams:
        """The parameters with the defaults that depend on the number of train rows."""
        return self.params.for_rows(int(self.version.manifest["summary"]["splits"].get("train", 0)))

    @property
    def maker(self) -> FeatureMaker:
        """Maker of the version's features and labels."""
        return FeatureMaker(self.version.reader(), self.folder / FEATURES, inputs_of(self.params))

    def dataset(self, reweigh: Reweighting | None = None) -> Dataset:
        """Return the version's splits as the training reads them; the maker must be fitted.

        ``reweigh``: see :func:`engine.training.data.features.dataset_of_version`.
        """
        return dataset_of_version(self.version, self.maker, self.params.noise, reweigh, self.params.target)


def training_fingerprint(version: Version, params: TrainParams, seed: int) -> str:
    """Return the digest of all that base models depend on: rows, value-relevant parameters and seed."""
    values = params.model_dump(mode="json", exclude={*params.execution_only, *params.mixture_only})
    unset = [key for key, usual in LATER_KEYS.items() if values.get(key) == usual]
    n_rows = int(version.manifest["summary"]["splits"].get("train", 0))
    values = {key: value for key, value in values.items() if key not in unset}
    values["epochs"] = params.for_rows(n_rows).n_epochs
    blocks = [BLOCKS] if params.scales_features and not params.is_estimator and _has_vectors(version) else []
    parts = [*blocks, *fingerprint_parts(version, params), *content_of(params)]
    return digest([version.manifest["content"], values, seed, *parts])


def _has_vectors(version: Version) -> bool:
    """Return whether features may come from vectors, whose entries share a standard deviation.

    These are lists, and what operators make of texts and images.
    """
    kinds = {str(field["name"]): str(field["type"]) for field in version.manifest["schema"]}
    used = [kinds.get(name, "") for name in version.manifest["source"]["features"]]
    return any(word in kind for kind in used for word in ("list<", "string", "binary"))


def run_job(
    job: TrainingJob, communicator: Communicator | None = None, remote: ObjectPath | None = None
) -> dict[str, Any]:
    """Train; rank 0 writes the model and ``training.json``. Returns the latter.

    ``remote``: see :func:`engine.training.fit.kernel.fit`.

    Raises OperatorError if the rows or the model cannot be used.
    """
    from engine.training.fit.kernel import fit
    from operators.models import prepare_device

    resources = job.params.resources
    callbacks = installed_callbacks()
    if job.progress is not None:
        root = job.root if isinstance(job.progress, Path) else job.progress
        callbacks.append(ProgressFile(job.progress / PROGRESS, root))
    device = prepare_device(resources.cpus, resources.gpus)
    fitted = fit(
        job.dataset(strength_weights_of(job.params, job.folder)),
        job.resolved_params,
        seed=job.seed,
        communicator=communicator,
        folder=job.folder,
        root=job.root,
        remote=remote,
        content=str(job.version.manifest["content"]),
        device=device,
        callbacks=callbacks,
    )
    record = training_record(fitted, job)
    if communicator is None or communicator.rank == 0:
        _save(fitted, job, job.maker.classes)
        write_json(job.folder / RECORD, record, root=job.root)
    return record


def run_job_on_copy(job: TrainingJob, place: ObjectPath, communicator: Communicator) -> dict[str, Any]:
    """Train as one of several workers whose hosts share no disk, each on its own copy of a prefix.

    Checkpoints and models are put at ``place`` as they are made, the rest at the end, ``training.json`` last.
    A worker that starts later, on any host, continues from there.
    """
    with private_copy(place) as folder:
        before = snapshot(folder)
        record = run_job(replace(job, folder=folder), communicator, remote=place)
        if communicator.rank == 0:
            made = [name for name, entry in snapshot(folder).items() if before.get(name) != entry]
            upload(folder, [name for name in made if name != RECORD], place)
            upload(folder, [RECORD], place)
    return record


class _Point(BaseModel):
    strength: float
    mean_accuracy: float
    worst_accuracy: float


class _TradeOff(BaseModel):
    rows: int
    points: list[_Point] = Field(min_length=1)


class _Strength(BaseModel):
    strength: float
    max_mean_loss: float
    end: str
    trade_off: _TradeOff


class _Record(BaseModel):
    trainer: str
    train_rows: int
    groups: dict[int, int]
    curve: list[dict[str, Any]]
    strength: _Strength | None = None
    fingerprint: str | None = None
    wrong_labels: dict[int, float] = Field(default_factory=dict)


def read_record(folder: Path) -> dict[str, Any]:
    """Return the content of ``training.json``, whose form is checked: the folder may be shared.

    Raises DamagedFileError, which names the file and the key, and OSError.
    """
    found: dict[str, Any] = read_json(folder / RECORD)
    try:
        _Record.model_validate(found)
    except ValidationError as error:
        raise DamagedFileError(explain(error, _Record, f"{folder / RECORD} is damaged or forged")) from None
    return found


def training_record(fitted: TrainingOutcome, job: TrainingJob) -> dict[str, Any]:
    """Return the content of ``training.json``.

    ``groups`` holds the train rows of each group; under -1 - c those of class c that are in none.
    """
    names = job.dataset().group_names
    groups = dict(zip(names, fitted.counts.group_rows.tolist(), strict=True))
    apart = {-1 - label: rows for label, rows in enumerate(fitted.counts.rows_without_group.tolist()) if rows}
    return {
        "trainer": trainer_of(job.params),
        "models": fitted.n_models,
        "train_rows": fitted.counts.n_rows,
        "selection_rows": len(fitted.selection_rows),
        "selection_split": fitted.selection_split,
        "groups": {str(name): rows for name, rows in (groups | apart).items()},
        "fingerprint": training_fingerprint(job.version, job.params, job.seed),
        "best_epoch": fitted.best_epoch,
        "curve": fitted.curve,
        **({"wrong_labels": wrong} if (wrong := job.version.wrong_labels()) else {}),
        **({"strength": found} if (found := summary_of(job.folder)) else {}),
    }


def _save(fitted: TrainingOutcome, job: TrainingJob, classes: list[Any]) -> None:
    from engine.training.fit.ensemble import DESCRIPTION, Ensemble

    about = {
        "trainer": trainer_of(job.params),
        "params": job.params.model_dump(mode="json", exclude=set(job.params.execution_only)),
        "seed": job.seed,
        "classes": classes,
        "version": job.version.name,
        "content": job.version.manifest["content"],
        "source": {k: job.version.manifest["source"][k] for k in ("label", "features")},
    }
    mixed = mix(fitted, job.params, about, job.folder)
    remove_file(job.folder / DESCRIPTION, root=job.root)
    Ensemble.save(mixed, job.folder, root=job.root)


def mix(
    fitted: TrainingOutcome, params: TrainParams, about: dict[str, Any], folder: Path | None = None
) -> Ensemble:
    """Return the fitted base models as an ``Ensemble`` with the mixture that the parameters ask for."""
    import safetensors.torch

    from engine.training.fit.checkpoint import MODELS, model_path
    from engine.training.fit.ensemble import Ensemble, build_from

    states = fitted.states
    if folder is not None:
        paths = [model_path(folder / MODELS, index) for index in range(fitted.n_models)]
        states = [safetensors.torch.load_file(path) for path in paths]
    t = len(states)
    models = tuple(build_from(fitted.spec, state) for state in states)
    made = Ensemble(
        spec=fitted.spec,
        models=models,
        model_weights=np.full(t, 1 / t),
        selection_losses=fitted.selection_losses,
        selection_rows=fitted.selection_rows,
        selection_weights=fitted.selection_weights,
        about=about,
        target=fitted.target_scale,
    )
    return remix(made, params)


def remix(model: Ensemble, params: TrainParams, alpha: float | None = None) -> Ensemble:
    """Return the same base models with the mixture that the parameters ask for.

    ``alpha`` asks for the mixture of this tail instead. The parameters in ``about`` name the mixture too.
    """
    mixture = params.mixture
    if mixture is None:
        return model
    averaged = alpha is None and mixture.kind == "average"
    mixed = model.average() if averaged else model.reweight(mixture.alpha if alpha is None else alpha)
    if "params" not in mixed.about:
        return mixed
    asked = params.model_dump(mode="json", include=set(params.mixture_only))
    asked["mixing"] = mixed.about["mixing"]
    if alpha is not None and "alpha" in asked:
        asked["alpha"] = alpha
    return replace(mixed, about=mixed.about | {"params": mixed.about["params"] | asked})
