"""What a user says about the place a recipe is to run in, checked; and the recipe's paths there."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.core.errors import InputError
from engine.jobs.paths import moved
from engine.recipe.recipe import Recipe

Kind = Literal["rayjob", "raycronjob", "cronjob", "raycluster"]
_FIELD = re.compile(r"[0-9A-Za-z*/,?-]+")
_LONGEST_NAME = 40  # Kubernetes' 63 less what KubeRay and CronJobs append


class Options(BaseModel):
    """Options of ``rowsieve deploy render``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    schedule: str | None = None
    timezone: str = "Etc/UTC"
    image: str | None = None
    """Default: what deploy/Dockerfile is built as."""
    workers: int | None = Field(default=None, ge=1)
    gpu: bool = False
    mount: str = "/data"
    claim: str | None = None
    """An existing PersistentVolumeClaim; without one, a claim is rendered."""
    address: str | None = None
    """cronjob: submit to this cluster instead of running in the pod."""
    token_secret: str | None = None
    """Secret with the cluster's token under the key ``auth_token``."""
    mlflow: str | None = None
    credentials: str = "rowsieve-credentials"
    """Secret whose keys become environment variables; it may be absent."""

    @property
    def image_name(self) -> str:
        """The image of every container."""
        return self.image or f"rowsieve:{version('rowsieve')}-{'gpu' if self.gpu else 'cpu'}"

    def checked(self) -> Options:
        """Raises InputError where options do not go together."""
        scheduled = self.kind in ("raycronjob", "cronjob")
        if scheduled and not self.schedule:
            raise InputError(f'--kind {self.kind} needs --schedule, such as --schedule "0 2 * * *".')
        if self.schedule and not scheduled:
            raise InputError(f"--kind {self.kind} runs once; --schedule is for raycronjob and cronjob.")
        if self.schedule:
            _check_schedule(self.schedule)
        if self.address and self.kind != "cronjob":
            raise InputError("--submit-to is for --kind cronjob: the other kinds bring their own cluster.")
        if self.address and not self.token_secret:
            raise InputError("--submit-to needs --token-secret: the secret with that cluster's token.")
        if not PurePosixPath(self.mount).is_absolute():
            raise InputError(f"--mount {self.mount}: an absolute path, such as /data.")
        return self


def _check_schedule(text: str) -> None:
    fields = text.split()
    if len(fields) != 5 or not all(_FIELD.fullmatch(field) for field in fields):
        raise InputError(
            f'--schedule "{text}": five fields: minute, hour, day, month, weekday; "0 2 * * *" is 2 o\'clock.'
        )


def kubernetes_name(name: str) -> str:
    """A recipe's name as Kubernetes takes it: lower case letters, digits and '-'."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain[:_LONGEST_NAME].rstrip("-") or "rowsieve"


def placed(recipe: Recipe, mount: str) -> tuple[Recipe, bool]:
    """The recipe with paths below the volume at ``mount``, and whether any lies there (URIs do not).

    Relative paths become relative to the volume. Raises InputError for an absolute path elsewhere.
    """
    local: list[str] = []

    def place(key: str, path: str) -> str:
        if "://" in path:
            return path
        local.append(_place(key, path, mount))
        return local[-1]

    return moved(recipe, place), bool(local)


def _place(key: str, path: str, mount: str) -> str:
    whole = PurePosixPath(mount) / path  # an absolute path stays as it is
    if ".." in whole.parts or not whole.is_relative_to(mount):
        raise InputError(
            f"{key}: {path!r} lies outside of the volume, which the pods see at {mount}. Set another path, "
            f"or --mount to the folder that the volume stands for."
        )
    return str(whole)
