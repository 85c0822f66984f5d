"""Manifests hold no secrets: recipes with passwords are refused and point to the Secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.errors import InputError
from engine.jobs.kubernetes.secrets import holds_secret
from engine.jobs.package import collect
from tests.unit.kuberay import pods_in

RECIPE: dict[str, Any] = {
    "name": "small",
    "source": {"path": "s3://bucket/in", "label": "y"},
    "output": {"path": "s3://bucket/out"},
}
KEY = "s3://KEY:hunter2@bucket/x"


def render(folder: Path, change: dict[str, Any], *words: str) -> Any:
    path = folder / "r.yaml"
    path.write_text(yaml.safe_dump(RECIPE | change))
    kind = [] if "--kind" in words else ["--kind", "rayjob"]
    return CliRunner().invoke(
        app, ["deploy", "render", str(path), *kind, *words, "--to", str(folder / "made")]
    )


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"source": {"path": KEY, "label": "y"}}, "source.path"),
        ({"output": {"path": KEY}}, "output.path"),
        ({"source": {"path": "postgresql://u:hun/t@er2@db/x", "label": "y"}}, "source.path"),
        ({"source": {"path": "https://hunter2@host/x.csv", "label": "y"}}, "source.path"),
        ({"source": {"path": "https://host/x.csv?sig=hunter2", "label": "y"}}, "source.path"),
        ({"output": {"path": "o", "export": [{"format": "delta", "path": KEY}]}}, "output.export.0.path"),
        (
            {
                "source": {
                    "path": "a.b",
                    "label": "y",
                    "format": "iceberg",
                    "options": {"catalog": {"uri": "https://h/", "token": "hunter2"}},
                }
            },
            "source.options.catalog.token",
        ),
    ],
)
def test_a_secret_in_the_recipe_is_refused(change: dict[str, Any], key: str, tmp_path: Path) -> None:
    done = render(tmp_path, change)
    assert done.exit_code == 2, done.output
    assert f"error: {key}: this value holds a password or a key" in done.output
    assert "rowsieve-credentials" in done.output
    assert "hunter2" not in done.output
    assert len(done.output.strip().splitlines()) == 1
    assert not (tmp_path / "made").exists()


def test_options_of_the_command_are_checked_too(tmp_path: Path) -> None:
    done = render(tmp_path, {}, "--mlflow", "http://u:hunter2@mlflow:5000")
    assert done.exit_code == 2
    assert "--mlflow" in done.output
    assert "hunter2" not in done.output


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/x?region=eu",
        "abfs://container@acct.dfs.core.windows.net/x",
        "gs://anonymous@bucket/x",
        "postgresql://${USER}:${PASSWORD}@db/x",
        "postgresql://reader@db/x",
        "text: a@b.c",
    ],
)
def test_what_is_no_secret(text: str) -> None:
    assert not holds_secret(text)


def test_variables_may_stand_for_secrets(tmp_path: Path) -> None:
    done = render(tmp_path, {})
    assert done.exit_code == 0, done.output
    assert "s3://bucket/out" in (tmp_path / "made" / "rayjob.yaml").read_text()


def test_ports_are_reached_by_the_cluster_alone(tmp_path: Path) -> None:
    assert render(tmp_path, {}).exit_code == 0
    manifests = list(yaml.safe_load_all((tmp_path / "made" / "rayjob.yaml").read_text()))
    (policy,) = [manifest for manifest in manifests if manifest["kind"] == "NetworkPolicy"]
    labels = {"app.kubernetes.io/name": "rowsieve", "app.kubernetes.io/instance": "small"}
    assert policy["spec"]["podSelector"] == {"matchLabels": labels}
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    everyone = [rule for rule in policy["spec"]["ingress"] if {"namespaceSelector": {}} in rule["from"]]
    assert [rule["ports"] for rule in everyone] == [[{"port": 8080}]]
    for pod in pods_in(manifests):
        assert pod["metadata"]["labels"] == labels
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            writable = {
                mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")
            }
            assert {"/tmp", "/home/rowsieve"} <= writable


ROOT = Path(__file__).parents[5]
MANIFESTS = sorted(
    [*(ROOT / "deploy" / "kubernetes").glob("*.yaml"), ROOT / "deploy" / "mlflow" / "kubernetes.yaml"]
)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_pod_is_shut_off(path: Path) -> None:
    """Also those that are written by hand: a policy for each, a read-only root, no token, no capability."""
    manifests = list(yaml.safe_load_all(path.read_text()))
    guarded = [
        manifest["spec"]["podSelector"]["matchLabels"]
        for manifest in manifests
        if manifest["kind"] == "NetworkPolicy" and "Ingress" in manifest["spec"]["policyTypes"]
    ]
    pods = list(pods_in(manifests))
    assert pods
    for pod in pods:
        assert any(labels.items() <= pod["metadata"]["labels"].items() for labels in guarded)
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        for container in pod["spec"]["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            mounts = {mount["name"] for mount in container["volumeMounts"]}
            claims = {volume["name"] for volume in pod["spec"].get("volumes", ())}
            assert mounts - {"data"} <= claims
            assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_a_working_directory_ships_no_targets_of_links(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (tmp_path / "secret").write_text("hunter2")
    (folder / "inside.txt").write_text("x")
    (folder / "alias.txt").symlink_to(folder / "inside.txt")
    assert {"inside.txt", "alias.txt"} <= collect(b"", code="installed", working_dir=folder).files.keys()
    (folder / "link.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match=r"--working-dir .*link\.txt is a link to .*secret"):
        collect(b"", code="installed", working_dir=folder)
    assert "link.txt" not in collect(b"", code="installed", working_dir=folder, excludes=["link.txt"]).files
