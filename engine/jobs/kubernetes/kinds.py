"""Build the manifests of the four kinds as plain values: KubeRay 1.7 (ray.io/v1) and batch/v1."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from engine.jobs.kubernetes.options import Kind, Options, kubernetes_name, place_in_volume
from engine.jobs.kubernetes.pods import (
    PORTS,
    RECIPE,
    RUN,
    Manifest,
    check_mount,
    container,
    pod,
    ray_pod,
    token_of,
)
from engine.jobs.kubernetes.secrets import check_no_secrets
from engine.jobs.kubernetes.sizes import Sizes, memory_of, sizes_of
from engine.recipe.recipe import Recipe
from operators.yaml_text import ValueDumper

RAY_VERSION = "2.60.0"
"""Version of Ray in deploy/constraints.txt. KubeRay chooses its commands by this version."""
HEAD = Sizes(1, 2, 0, 4)
"""The head holds the driver, which has nothing row-sized, and the dashboard; no work is placed on it."""
STORAGE = "100Gi"
"""Size of the volume that is rendered where no claim is named; meant to be edited."""
KEPT_SECONDS = 600
"""Time that a finished job stays visible."""


@dataclass(frozen=True)
class Rendering:
    """One recipe in one place."""

    recipe: Recipe
    """The recipe with the paths that the pods see."""
    options: Options
    name: str
    claim: str | None
    """Claim of the volume; None if every path is a URI."""
    sizes: Sizes

    def metadata(self, name: str | None = None) -> Manifest:
        """Return the name and labels."""
        labels = {"app.kubernetes.io/name": "rowsieve", "app.kubernetes.io/instance": self.name}
        return {"name": name or self.name, "labels": labels}


def render(recipe: Recipe, options: Options) -> list[Manifest]:
    """Return the manifests of a recipe, in the order in which they are applied.

    Raises
    ------
    InputError
        The options contradict each other, a path lies outside of the volume, or a value is a secret.

    """
    options = options.checked()
    check_mount(options.mount)
    check_no_secrets(recipe, options)
    recipe, local = place_in_volume(recipe, options.mount)
    name = kubernetes_name(recipe.name)
    claim = (options.claim or f"{name}-data") if local else None
    sizes = sizes_of(recipe, workers=options.workers, gpu=options.gpu)
    made = Rendering(recipe, options, name, claim, sizes)
    found = [_recipe(made)]
    if claim and not options.claim:
        found.append(_claim(made))
    return [*found, _network(made), _KINDS[options.kind](made)]


def to_yaml(manifests: Sequence[Manifest], about: str) -> str:
    """Return the manifests as one text with a comment on top, without YAML's anchors: people read it.

    Line ends and control characters in ``about`` become blanks, as they would end the comment.
    """
    about = "".join(sign if sign.isprintable() else " " for sign in about)
    body = yaml.dump_all(manifests, Dumper=_Manifests, sort_keys=False, allow_unicode=True, width=110)
    return f"# {about}\n{body}"


class _Manifests(ValueDumper):
    """Writes texts of several lines as blocks, and as texts what YAML 1.2 takes for numbers."""


_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|0[ox][0-9a-fA-F_]+")
"""Texts that YAML 1.2, which Kubernetes reads, takes for numbers; PyYAML writes 1.1."""


def _text(dumper: ValueDumper, value: str) -> yaml.Node:
    if "\n" in value and value.replace("\n", "").isprintable():
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|")
    if _NUMBER.fullmatch(value):
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="'")
    return dumper.represent_str(value)


_Manifests.add_representer(str, _text)


def _recipe(made: Rendering) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": made.metadata(f"{made.name}-recipe"),
        "data": {"recipe.yaml": made.recipe.to_yaml()},
    }


def _claim(made: Rendering) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": made.metadata(made.claim),
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": STORAGE}}},
    }


def _network(made: Rendering) -> Manifest:
    """Return the NetworkPolicy of the pods.

    Pods of the cluster reach each other. Submitters and KubeRay also reach the dashboard, and every pod
    reaches the metrics. Ray's ports are protected by a token, too.
    """
    labels = made.metadata()["labels"]
    submitters = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "rowsieve"}}}
    operator = {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}},
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": made.metadata(),
        "spec": {
            "podSelector": {"matchLabels": labels},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": {"matchLabels": labels}}]},
                {"from": [submitters, operator], "ports": [{"port": PORTS["dashboard"]}]},
                {"from": [{"namespaceSelector": {}}], "ports": [{"port": PORTS["metrics"]}]},
            ],
        },
    }


def _cluster_spec(made: Rendering) -> Manifest:
    head = ray_pod(made.options, made.name, made.claim, "head", HEAD)
    worker = ray_pod(made.options, made.name, made.claim, "worker", made.sizes)
    return {
        "rayVersion": RAY_VERSION,
        "authOptions": {"mode": "token"}
        | ({"secretName": made.options.token_secret} if made.options.token_secret else {}),
        "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": head},
        "workerGroupSpecs": [
            {
                "groupName": "workers",
                "replicas": made.sizes.workers,
                "minReplicas": made.sizes.workers,
                "maxReplicas": made.sizes.workers,
                "rayStartParams": {},
                "template": worker,
            }
        ],
    }


def _cluster(made: Rendering) -> Manifest:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": made.metadata(),
        "spec": _cluster_spec(made),
    }


def _job_spec(made: Rendering) -> Manifest:
    """Return the job, whose cluster is removed after it; a second attempt continues the first one."""
    submitter = container(made.options, "ray-job-submitter", cpus=1, memory=1)
    return {
        "entrypoint": " ".join(RUN),
        "metadata": {"recipe": made.recipe.name, "output": made.recipe.output.path},
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "backoffLimit": 1,
        "submissionMode": "K8sJobMode",
        "submitterPodTemplate": {
            "metadata": {"labels": made.metadata()["labels"]},
            "spec": {"restartPolicy": "Never"} | pod(made.options, made.name, made.claim, submitter),
        },
        "rayClusterSpec": _cluster_spec(made),
    }


def _job(made: Rendering) -> Manifest:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": made.metadata(),
        "spec": _job_spec(made),
    }


def _ray_cron_job(made: Rendering) -> Manifest:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCronJob",
        "metadata": made.metadata(),
        "spec": {
            "schedule": made.options.schedule,
            "timeZone": made.options.timezone,
            "jobTemplate": _job_spec(made),
        },
    }


def _cron_job(made: Rendering) -> Manifest:
    """Return a pod for each scheduled time: it runs the recipe, or submits it to a cluster that exists."""
    work = _submitting(made) if made.options.address else _running(made)
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": made.metadata(),
        "spec": {
            "schedule": made.options.schedule,
            "timeZone": made.options.timezone,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 3600,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {
                "spec": {
                    "backoffLimit": 1,
                    "template": {
                        "metadata": {"labels": made.metadata()["labels"]},
                        "spec": {"restartPolicy": "Never"} | work,
                    },
                }
            },
        },
    }


def _running(made: Rendering) -> Manifest:
    cpus = made.sizes.cpus * made.sizes.workers
    inner = container(
        made.options,
        "rowsieve",
        cpus=cpus,
        memory=memory_of(made.recipe, cpus),
        gpus=made.sizes.gpus,
        command=[*RUN, "--set", f"run.cpus={max(cpus, made.recipe.run.cpus or 0)}"],
    )
    shared = f"{made.recipe.run.object_store_mb}Mi"
    return pod(made.options, made.name, made.claim, inner, shared_memory=shared)


def _submitting(made: Rendering) -> Manifest:
    command = ["rowsieve", "submit", RECIPE, "--address", str(made.options.address), "--installed", "--wait"]
    env = token_of(str(made.options.token_secret))
    inner = container(made.options, "rowsieve", cpus=1, memory=2, command=command, env=env)
    return pod(made.options, made.name, made.claim, inner)


_KINDS: dict[Kind, Callable[[Rendering], dict[str, Any]]] = {
    "rayjob": _job,
    "raycronjob": _ray_cron_job,
    "cronjob": _cron_job,
    "raycluster": _cluster,
}
