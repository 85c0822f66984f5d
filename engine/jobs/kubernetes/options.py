"""Options of a deployment to Kubernetes, their checks, and the recipe's paths inside the pods."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.core.digests import digest
from engine.core.errors import InputError
from engine.jobs.cron import check_for_kubernetes, check_timezone
from engine.jobs.paths import replace_paths
from engine.recipe.recipe import Recipe

Kind = Literal["rayjob", "raycronjob", "cronjob", "raycluster"]
TIMEZONE = "Etc/UTC"
IMAGE = re.compile(r"[\w.-]+(:\d+)?(/[\w.-]+)*(:[\w.-]+)?(@[\w.+-]+:[0-9a-fA-F]+)?", re.ASCII)
"""An image: registry with its port, path, tag and digest."""
_MAX_NAME_LENGTH = 40  # Kubernetes' 63 less what KubeRay and CronJobs append


class Options(BaseModel):
    """Options of ``rowsieve deploy render``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    schedule: str | None = None
    timezone: str = TIMEZONE
    image: str | None = None
    """Image of the containers; the default is the name under which deploy/Dockerfile is built."""
    workers: int | None = Field(default=None, ge=1)
    gpu: bool = False
    mount: str = "/data"
    claim: str | None = None
    """An existing PersistentVolumeClaim; without one, a claim is rendered."""
    address: str | None = None
    """Cluster to which a ``cronjob`` submits the recipe instead of running it in its pod."""
    token_secret: str | None = None
    """Secret with the cluster's token under the key ``auth_token``."""
    mlflow: str | None = None
    credentials: str = "rowsieve-credentials"
    """Secret whose keys become environment variables; it may be absent."""

    @property
    def image_name(self) -> str:
        """Return the image of every container."""
        return self.image or f"rowsieve:{version('rowsieve')}-{'gpu' if self.gpu else 'cpu'}"

    def checked(self) -> Options:
        """Return these options. Raises InputError if they contradict each other."""
        scheduled = self.kind in ("raycronjob", "cronjob")
        if scheduled and not self.schedule:
            raise InputError(f'--kind {self.kind} needs --schedule, such as --schedule "0 2 * * *".')
        if self.schedule and not scheduled:
            raise InputError(f"--kind {self.kind} has no schedule; --schedule is for raycronjob and cronjob.")
        if self.schedule:
            check_for_kubernetes(self.schedule, "--schedule")
        if self.timezone != TIMEZONE and not scheduled:
            raise InputError(f"--kind {self.kind} has no schedule; --timezone is for raycronjob and cronjob.")
        if self.timezone != TIMEZONE:
            check_timezone(self.timezone)
        if self.address and self.kind != "cronjob":
            raise InputError("--submit-to is for --kind cronjob: the other kinds bring their own cluster.")
        if self.address and not self.token_secret:
            raise InputError("--submit-to needs --token-secret: the secret with that cluster's token.")
        if self.token_secret and self.kind == "cronjob" and not self.address:
            raise InputError(
                "--token-secret: this cronjob asks no cluster. Add --submit-to, or leave it out."
            )
        if self.image is not None and not IMAGE.fullmatch(self.image):
            raise InputError(f"--image {self.image} is no name of an image, such as rowsieve:0.1.0-cpu.")
        return self._with_absolute_mount()

    def _with_absolute_mount(self) -> Options:
        if not PurePosixPath(self.mount).is_absolute():
            raise InputError(f"--mount {self.mount} is not an absolute path. Give one, such as /data.")
        return self


def kubernetes_name(name: str) -> str:
    """Convert a recipe's name to one that KubeRay accepts: lower case letters, digits and '-'.

    Its first sign is a letter. A name that is too long is cut and ends with a digest, as another recipe's
    may begin like it.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "rowsieve"
    plain = f"r-{plain}" if plain[0].isdigit() else plain
    if len(plain) <= _MAX_NAME_LENGTH:
        return plain
    end = digest(name)[:6]
    return f"{plain[: _MAX_NAME_LENGTH - len(end) - 1].rstrip('-')}-{end}"


def place_in_volume(recipe: Recipe, mount: str) -> tuple[Recipe, bool]:
    """Return the recipe with paths below the volume at ``mount``, and whether any path lies there.

    Relative paths become relative to the volume; URIs stay, and so do absolute folders of networks, which an
    image may hold. Raises InputError for another absolute path elsewhere, and for one of a home folder.
    """
    local: list[str] = []

    def place(key: str, path: str) -> str:
        if "://" in path or (key.startswith("train.") and _is_elsewhere(path, mount)):
            return path
        local.append(_place(key, path, mount))
        return local[-1]

    return replace_paths(recipe, place), bool(local)


def _is_elsewhere(path: str, mount: str) -> bool:
    return PurePosixPath(path).is_absolute() and not PurePosixPath(path).is_relative_to(mount)


def _place(key: str, path: str, mount: str) -> str:
    if path.startswith("~"):
        raise InputError(
            f"{key}: {path!r} lies in a home folder, which the pods do not have. Set a path that is relative "
            f"to the volume, which the pods see at {mount}, or a URI."
        )
    whole = PurePosixPath(mount) / path  # an absolute path stays as it is
    if ".." in whole.parts or not whole.is_relative_to(mount):
        raise InputError(
            f"{key}: {path!r} lies outside of the volume, which the pods see at {mount}. Set another path, "
            f"or --mount to the folder that the volume stands for."
        )
    return str(whole)
