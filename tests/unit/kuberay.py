"""KubeRay 1.7's resources as a closed schema, as far as manifests here use them, and Kubernetes' own kinds.

Written after the Go types of KubeRay (ray.io/v1); fields that nothing here uses are left out, so that each is
looked up before it is used.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

import kubernetes_validate
import kubernetes_validate.utils
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

KUBERNETES = "1.34"
kubernetes_validate.utils.schema_contents = lru_cache(kubernetes_validate.utils.schema_contents)


def _is_a_pod(template: dict[str, Any]) -> dict[str, Any]:
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    return template


Template = Annotated[dict[str, Any], AfterValidator(_is_a_pod)]


class Closed(BaseModel):
    """A misspelt field is an error, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Metadata(Closed):
    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,45}[a-z0-9])?$")
    labels: dict[str, str] = {}


class AuthOptions(Closed):
    mode: Literal["token"]
    secretName: str | None = None  # noqa: N815


class HeadGroup(Closed):
    rayStartParams: dict[str, str]  # noqa: N815
    template: Template


class WorkerGroup(HeadGroup):
    groupName: str  # noqa: N815
    replicas: int
    minReplicas: int  # noqa: N815
    maxReplicas: int  # noqa: N815

    @model_validator(mode="after")
    def _ordered(self) -> WorkerGroup:
        assert 0 <= self.minReplicas <= self.replicas <= self.maxReplicas
        return self


class ClusterSpec(Closed):
    rayVersion: str = Field(pattern=r"^2\.\d+\.\d+$")  # noqa: N815
    authOptions: AuthOptions  # noqa: N815
    headGroupSpec: HeadGroup  # noqa: N815
    workerGroupSpecs: list[WorkerGroup] = Field(min_length=1)  # noqa: N815


class JobSpec(Closed):
    entrypoint: str
    metadata: dict[str, str] = {}
    shutdownAfterJobFinishes: bool  # noqa: N815
    ttlSecondsAfterFinished: int  # noqa: N815
    backoffLimit: int  # noqa: N815
    submissionMode: Literal["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]  # noqa: N815
    submitterPodTemplate: Template  # noqa: N815
    rayClusterSpec: ClusterSpec  # noqa: N815


class CronJobSpec(Closed):
    """``jobTemplate`` is a RayJob's spec itself, without a ``spec`` around it."""

    schedule: str
    timeZone: str  # noqa: N815
    jobTemplate: JobSpec  # noqa: N815


class Resource(Closed):
    apiVersion: Literal["ray.io/v1"]  # noqa: N815
    metadata: Metadata


class RayCluster(Resource):
    kind: Literal["RayCluster"]
    spec: ClusterSpec


class RayJob(Resource):
    kind: Literal["RayJob"]
    spec: JobSpec


class RayCronJob(Resource):
    kind: Literal["RayCronJob"]
    spec: CronJobSpec


class PodMonitorEndpoint(Closed):
    port: str
    interval: str


class PodMonitorSpec(Closed):
    selector: dict[Literal["matchLabels"], dict[str, str]]
    podMetricsEndpoints: list[PodMonitorEndpoint]  # noqa: N815


class PodMonitor(Closed):
    """Of Prometheus's operator."""

    apiVersion: Literal["monitoring.coreos.com/v1"]  # noqa: N815
    kind: Literal["PodMonitor"]
    metadata: Metadata
    spec: PodMonitorSpec


CUSTOM: dict[str, type[BaseModel]] = {
    kind.__name__: kind for kind in (RayCluster, RayJob, RayCronJob, PodMonitor)
}


def check(manifest: dict[str, Any]) -> None:
    """Raises where a manifest has a field that its kind does not, lacks one, or has one of another type."""
    if manifest["kind"] in CUSTOM:
        CUSTOM[manifest["kind"]].model_validate(manifest)
    else:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def pods_in(value: Any) -> list[dict[str, Any]]:
    """Every pod template below a value."""
    if isinstance(value, list):
        return [pod for entry in value for pod in pods_in(entry)]
    if not isinstance(value, dict):
        return []
    if "containers" in value.get("spec", {}):
        return [value]
    return [pod for entry in value.values() for pod in pods_in(entry)]
