"""Build the parts that every manifest has: pods without root rights, their volumes and their environment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from engine.core.errors import InputError
from engine.jobs.kubernetes.options import Options
from engine.jobs.kubernetes.sizes import Sizes

USER = 1000
RECIPE_FOLDER = "/etc/rowsieve"
RECIPE = f"{RECIPE_FOLDER}/recipe.yaml"
RUN = ["rowsieve", "run", RECIPE, "--log-format", "plain"]
TOKEN_KEY = "auth_token"
PORTS = {"gcs-server": 6379, "dashboard": 8265, "client": 10001, "metrics": 8080}
"""Ports of the head pod; workers have the port of the metrics only."""
WRITABLE = {"tmp": "/tmp", "home": "/home/rowsieve"}
"""Writable folders of a pod in addition to the volume: Ray's sessions and caches. The image is read-only."""
SHARED_MEMORY = "/dev/shm"
Manifest = dict[str, Any]


def check_mount(mount: str) -> None:
    """Raise InputError if the volume would take the place of another one of the pods, or of the image."""
    taken = ("/", RECIPE_FOLDER, SHARED_MEMORY, *WRITABLE.values())
    if str(PurePosixPath(mount)) in taken:
        raise InputError(
            f"--mount {mount}: the pods have another volume there, or their image. Give a folder of its own, "
            f"such as /data; these are taken: {', '.join(taken)}."
        )


def pod(
    options: Options, name: str, claim: str | None, container: Manifest, *, shared_memory: str | None = None
) -> Manifest:
    """Return a pod spec around one container: not root, with the recipe and, if there is one, the volume."""
    volumes: list[Manifest] = [{"name": "recipe", "configMap": {"name": f"{name}-recipe"}}]
    mounts: list[Manifest] = [{"name": "recipe", "mountPath": RECIPE_FOLDER, "readOnly": True}]
    for volume, path in WRITABLE.items():
        volumes.append({"name": volume, "emptyDir": {}})
        mounts.append({"name": volume, "mountPath": path})
    if claim:
        volumes.append({"name": "data", "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": "data", "mountPath": options.mount})
    if shared_memory:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory}})
        mounts.append({"name": "shm", "mountPath": SHARED_MEMORY})
    return {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container | {"volumeMounts": mounts}],
        "volumes": volumes,
    }


def container(
    options: Options,
    name: str,
    *,
    cpus: int,
    memory: int,
    gpus: int = 0,
    command: Sequence[str] = (),
    env: Sequence[Manifest] = (),
) -> Manifest:
    """Return a container without capabilities. ``memory`` is in GiB; limits equal requests: no eviction."""
    amounts: Manifest = {"cpu": str(cpus), "memory": f"{memory}Gi"}
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
    found: Manifest = {"name": name, "image": options.image_name}
    if command:
        found["command"] = list(command)
    return found | {
        "env": [*_environment(options), *env],
        "envFrom": [{"secretRef": {"name": options.credentials, "optional": True}}],
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }


def _environment(options: Options) -> list[Manifest]:
    found = [{"name": "RAY_USAGE_STATS_ENABLED", "value": "0"}]
    if options.mlflow:
        found.append({"name": "MLFLOW_TRACKING_URI", "value": options.mlflow})
    return found


def token_of(secret: str) -> list[Manifest]:
    """Return the environment variables of a client of a cluster with token authentication."""
    reference = {"secretKeyRef": {"name": secret, "key": TOKEN_KEY}}
    return [
        {"name": "RAY_AUTH_MODE", "value": "token"},
        {"name": "RAY_AUTH_TOKEN", "valueFrom": reference},
    ]


def ray_pod(options: Options, name: str, claim: str | None, role: str, sizes: Sizes) -> Manifest:
    """Return the template of a pod; KubeRay adds Ray's command, probes, token and shared memory to it."""
    inner = container(options, f"ray-{role}", cpus=sizes.cpus, memory=sizes.memory, gpus=sizes.gpus)
    ports = PORTS if role == "head" else {"metrics": PORTS["metrics"]}
    inner["ports"] = [{"name": key, "containerPort": port} for key, port in ports.items()]
    labels = {"app.kubernetes.io/name": "rowsieve", "app.kubernetes.io/instance": name}
    return {"metadata": {"labels": labels}, "spec": pod(options, name, claim, inner)}
