"""Manifests: what is rendered is valid, never root, asks for tokens; what is checked in is what comes out."""

import copy
import shlex
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.errors import InputError
from engine.jobs.kubernetes.kinds import RAY_VERSION, render, to_yaml
from engine.jobs.kubernetes.options import Options, kubernetes_name
from engine.jobs.kubernetes.pods import RECIPE
from engine.jobs.kubernetes.sizes import COPIES, PROCESS, memory_of, sizes_of
from engine.recipe.recipe import Recipe
from tests.data import recipe_for, spurious_table, write_shards
from tests.unit.kuberay import check, pods_in

ROOT = Path(__file__).resolve().parents[5]
DEMO = ROOT / "deploy" / "recipes" / "demo.yaml"
NIGHTLY = ("--schedule", "0 2 * * *")
CHECKED_IN = {"rayjob": (), "raycluster": (), "raycronjob": NIGHTLY, "cronjob": NIGHTLY}
BY_HAND = [ROOT / "deploy/mlflow/kubernetes.yaml", ROOT / "deploy/monitoring/podmonitor.yaml"]


def demo(*overrides: str) -> Recipe:
    return Recipe.load(DEMO, overrides)


def rendered(kind: str, recipe: Recipe | None = None, **options: Any) -> dict[str, dict[str, Any]]:
    schedule = "0 2 * * *" if "cron" in kind else None
    made = render(recipe or demo(), Options.model_validate({"kind": kind, "schedule": schedule, **options}))
    for manifest in made:
        check(manifest)
    return {manifest["kind"]: manifest for manifest in made}


@pytest.mark.parametrize("kind", CHECKED_IN)
def test_what_is_checked_in_is_what_is_rendered(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    arguments = ["deploy", "render", "deploy/recipes/demo.yaml", "--kind", kind, *CHECKED_IN[kind]]
    result = CliRunner().invoke(app, [*arguments, "--to", str(tmp_path)])
    assert result.exit_code == 0, result.output
    text = (ROOT / "deploy" / "kubernetes" / f"{kind}.yaml").read_text()
    assert (tmp_path / f"{kind}.yaml").read_text() == text, f"make it anew: rowsieve {' '.join(arguments)}"
    assert CliRunner().invoke(app, arguments).stdout == text
    for manifest in yaml.safe_load_all(text):
        check(manifest)


@pytest.mark.parametrize("path", BY_HAND, ids=lambda path: path.name)
def test_what_is_written_by_hand_is_valid(path: Path) -> None:
    for manifest in yaml.safe_load_all(path.read_text()):
        check(manifest)


@pytest.mark.parametrize(
    "place",
    [
        ("spec", "rayClusterSpec"),
        ("spec", "rayClusterSpec", "authOptions", "mode"),
        ("spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "securityContext", "runAsNonRoot"),
        ("spec", "submitterPodTemplate", "spec", "containers"),
        ("spec", "shutdownAfterJobFinishes"),
    ],
)
def test_the_schema_catches_a_typo(place: tuple[str, ...]) -> None:
    wrong = copy.deepcopy(rendered("rayjob")["RayJob"])
    inner = wrong
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1] + "c"] = inner.pop(place[-1])
    with pytest.raises((ValidationError, jsonschema.ValidationError)):
        check(wrong)


def test_a_template_has_no_spec_of_its_own() -> None:
    wrong = rendered("raycronjob")["RayCronJob"]
    wrong["spec"]["jobTemplate"] = {"spec": wrong["spec"]["jobTemplate"]}
    with pytest.raises(ValidationError):
        check(wrong)


def everything() -> list[dict[str, Any]]:
    made = [manifest for kind in CHECKED_IN for manifest in rendered(kind, gpu=True).values()]
    address = {"address": "http://demo-head-svc:8265", "token_secret": "demo"}
    made += rendered("cronjob", **address).values()
    return made + [manifest for path in BY_HAND for manifest in yaml.safe_load_all(path.read_text())]


def test_no_pod_is_root_and_every_one_has_limits() -> None:
    pods = pods_in(everything())
    assert len(pods) >= 12
    for pod in pods:
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        for container in spec["containers"]:
            inner = container["securityContext"]
            assert (inner["allowPrivilegeEscalation"], inner["capabilities"]) == (False, {"drop": ["ALL"]})
            assert container["resources"]["limits"]["memory"]
            assert ":" in container["image"]
            assert not container["image"].endswith(":latest")


@pytest.mark.parametrize("kind", ["rayjob", "raycronjob", "raycluster"])
def test_clusters_ask_for_tokens(kind: str) -> None:
    text = yaml.safe_dump_all(rendered(kind).values())
    assert text.count("authOptions:\n") == 1
    assert "mode: token" in text
    assert "mode: disabled" not in text
    assert "secretName: mine" in yaml.safe_dump_all(rendered(kind, token_secret="mine").values())


def test_no_secret_is_written_down() -> None:
    for manifest in everything():
        assert manifest["kind"] != "Secret"
    containers = [one for pod in pods_in(everything()) for one in pod["spec"]["containers"]]
    for entry in (entry for container in containers for entry in container.get("env", ())):
        secret = any(word in entry["name"] for word in ("TOKEN", "PASSWORD", "KEY"))
        assert ("valueFrom" in entry) == secret, entry["name"]


def test_nights_do_not_overlap() -> None:
    assert rendered("cronjob")["CronJob"]["spec"]["concurrencyPolicy"] == "Forbid"


def test_a_cron_job_that_submits() -> None:
    made = rendered("cronjob", address="http://demo-head-svc:8265", token_secret="demo")["CronJob"]
    (pod,) = pods_in(made)
    (container,) = pod["spec"]["containers"]
    assert container["command"][:3] == ["rowsieve", "submit", "/etc/rowsieve/recipe.yaml"]
    help_text = CliRunner().invoke(app, ["submit", "--help"], env={"COLUMNS": "200"}).output
    assert all(word in help_text for word in container["command"] if word.startswith("--"))
    env = {entry["name"]: entry for entry in container["env"]}
    assert env["RAY_AUTH_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "demo", "key": "auth_token"}}
    assert env["RAY_AUTH_MODE"]["value"] == "token"


def test_paths_move_to_the_volume() -> None:
    made = rendered("rayjob", demo("output.path=s3://bucket/out"), mount="/mnt/lake")
    recipe = Recipe.parse(yaml.safe_load(made["ConfigMap"]["data"]["recipe.yaml"]))
    assert (recipe.source.path, recipe.output.path) == ("/mnt/lake/demo/data/*.parquet", "s3://bucket/out")
    assert recipe.operators == demo().operators
    assert "PersistentVolumeClaim" in made
    assert "PersistentVolumeClaim" not in rendered("rayjob", claim="lake")
    both = demo("output.path=s3://bucket/out", "source.path=s3://bucket/in/*.parquet")
    made = rendered("rayjob", both)
    assert set(made) == {"ConfigMap", "NetworkPolicy", "RayJob"}
    assert "persistentVolumeClaim" not in yaml.safe_dump(made["RayJob"])
    for path in ("/elsewhere/out", "../out", "/data/../out"):
        with pytest.raises(InputError, match=r"output\.path"):
            rendered("rayjob", demo(f"output.path={path}"))


def test_networks_lie_in_the_volume_or_the_image() -> None:
    for model, found in (("hf:nets/bert", "hf:/data/nets/bert"), ("hf:/opt/bert", "hf:/opt/bert")):
        train = f"train={{params: {{model: '{model}', model_params: {{column: text}}}}}}"
        text = rendered("rayjob", demo(train))["ConfigMap"]["data"]["recipe.yaml"]
        assert yaml.safe_load(text)["train"]["params"]["model"] == found


def test_a_home_folder_is_none_of_a_pod() -> None:
    with pytest.raises(InputError, match=r"output\.path: '~/out' lies in a home folder"):
        rendered("rayjob", demo("output.path=~/out"))


def test_the_recipe_keeps_the_types_of_its_values() -> None:
    recipe = demo("source.label_map={true: 'yes', 2: 1}", 'source.filter=[[x, "<", .inf]]')
    text = rendered("rayjob", recipe)["ConfigMap"]["data"]["recipe.yaml"]
    found = Recipe.parse(yaml.safe_load(text)).source
    assert (found.label_map, found.filter) == (recipe.source.label_map, recipe.source.filter)


def test_sizes_follow_the_recipe() -> None:
    small = sizes_of(demo("source.shard_bytes=1048576", "run.shards_in_flight=8"))
    assert (small.workers, small.cpus, small.gpus) == (2, 4, 0)
    assert sizes_of(demo("run.shards_in_flight=40"), workers=5).cpus == 8
    assert sizes_of(demo("run.cpus=6")).cpus == 3
    wide = sizes_of(demo("operators.groups.resources.cpus=3", "run.shards_in_flight=4"))
    assert wide.cpus == 6
    tall = sizes_of(demo("operators.groups.resources={cpus: 16, actors: 1}", "run.shards_in_flight=2"))
    assert tall.cpus == 16  # one actor fits on one node
    assert sizes_of(demo("operators.gradients.resources.gpus=0.5")).gpus == 1
    assert sizes_of(demo(), gpu=True).gpus == 1
    assert memory_of(demo("source.shard_bytes=1073741824"), 4) > memory_of(demo(), 4)
    assert memory_of(demo(), 4) * 2**30 * 0.7 >= 4 * (PROCESS + COPIES * demo().source.shard_bytes)


@pytest.mark.slow
def test_the_command_of_a_pod_runs(tmp_path: Path) -> None:
    """As the pod has it: the recipe from the config map, files below the volume."""
    write_shards(tmp_path / "data", spurious_table())
    made = rendered("cronjob", Recipe.parse(recipe_for(Path("data"), Path("out"))), mount=str(tmp_path))
    (tmp_path / "recipe.yaml").write_text(made["ConfigMap"]["data"]["recipe.yaml"])
    (pod,) = pods_in(made["CronJob"])
    (container,) = pod["spec"]["containers"]
    assert " ".join(container["command"]).startswith(rendered("rayjob")["RayJob"]["spec"]["entrypoint"])
    words = [str(tmp_path / "recipe.yaml") if word == RECIPE else word for word in container["command"]]
    result = CliRunner().invoke(app, words[1:])
    assert (words[0], result.exit_code) == ("rowsieve", 0), result.output
    assert (tmp_path / "out" / "CURRENT").exists()


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"kind": "cronjob"}, "needs --schedule"),
        ({"kind": "rayjob", "schedule": "0 2 * * *"}, "has no schedule; --schedule is"),
        ({"kind": "rayjob", "timezone": "Europe/Berlin"}, "has no schedule; --timezone is"),
        ({"kind": "cronjob", "schedule": "0 2 * * *", "token_secret": "demo"}, "Add --submit-to"),
        ({"kind": "rayjob", "image": "x y;rm"}, "--image x y;rm is no name of an image"),
        ({"kind": "cronjob", "schedule": "0 2 30 2 *"}, "is never due: no such month has a day 30"),
        ({"kind": "cronjob", "schedule": "0 2 31 apr,Jun *"}, "is never due"),
        ({"kind": "cronjob", "schedule": "0 2 31 4-4 */1"}, "is never due"),
        ({"kind": "cronjob", "schedule": "0 2 31 4-Jun/2 *"}, "is never due"),
        ({"kind": "cronjob", "schedule": "0 2 31 feb,4/5 ?"}, "is never due"),
        ({"kind": "cronjob", "schedule": "tonight"}, "five fields"),
        ({"kind": "cronjob", "schedule": "0 */999 * * *"}, "step 999 of the hour"),
        ({"kind": "cronjob", "schedule": "0 2 * * ;ls"}, "five fields"),
        ({"kind": "rayjob", "address": "http://a"}, "--submit-to is for"),
        ({"kind": "cronjob", "schedule": "0 2 * * *", "address": "http://a"}, "needs --token-secret"),
        ({"kind": "rayjob", "mount": "data"}, "absolute"),
        ({"kind": "cronjob", "schedule": "99 2 * * *"}, "take the minute '99'. Write numbers from 0 to 59,"),
        ({"kind": "cronjob", "schedule": "0 2 * * 1#2"}, "take the weekday '1#2'.* or sun to sat"),
        ({"kind": "cronjob", "schedule": "0 2 * * 7"}, "take the weekday '7'"),
        ({"kind": "cronjob", "schedule": "0 2 * * fri-sun"}, "take the weekday 'fri-sun'"),
        ({"kind": "cronjob", "schedule": "0 2 L * *"}, "take the day 'L'"),
        ({"kind": "cronjob", "schedule": "0 2 0 * *"}, "take the day '0'"),
        ({"kind": "cronjob", "schedule": "a b c d e"}, "take the minute 'a'"),
        ({"kind": "cronjob", "schedule": "0 2 * * *", "timezone": "Mars/Base"}, "no such timezone"),
        ({"kind": "rayjob", "mount": "/tmp/"}, "--mount /tmp/: the pods have another volume"),
        ({"kind": "rayjob", "mount": "/"}, "--mount /: "),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, str], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        render(demo(), Options.model_validate(options))


@pytest.mark.parametrize(
    "schedule",
    [
        "*/15 0-6,18-23/2 1,15 JAN-mar mon-FRI",
        "5/10 ? * * 0,6",
        "0 2 29 2 *",
        "0 2 31 2/1 *",
        "0 2 31 */4 *",
        "0 2 30 2 mon",
        "0 2 31 2 */2",  # every second weekday of February
    ],
)
def test_schedules_that_kubernetes_takes(schedule: str) -> None:
    made = rendered("cronjob", schedule=schedule, timezone="Europe/Berlin")["CronJob"]["spec"]
    assert (made["schedule"], made["timeZone"]) == (schedule, "Europe/Berlin")


@pytest.mark.parametrize("image", ["rowsieve", "a.b:5000/c/d:1.0-cpu", "x@sha256:" + "0a" * 32])
def test_images_that_are_accepted(image: str) -> None:
    assert Options(kind="rayjob", image=image).checked().image_name == image


def test_the_first_line_makes_the_same_manifests() -> None:
    """It left out all options but the kind, so that the command failed or made others."""
    words = ["deploy", "render", str(DEMO), "--kind", "cronjob", *NIGHTLY, "--submit-to", "http://head:8265"]
    words += ["--token-secret", "demo", "--gpu", "--set", "seed=4"]
    made = CliRunner().invoke(app, words).stdout
    first = made.splitlines()[0].removeprefix("# Made by: rowsieve ")
    again = CliRunner().invoke(app, shlex.split(first))
    assert again.exit_code == 0, again.output
    assert again.stdout == made
    assert "0 2 * * *" in shlex.split(first)


def test_a_misspelt_kind() -> None:
    result = CliRunner().invoke(app, ["deploy", "render", str(DEMO), "--kind", "rayjobb"])
    assert (result.exit_code, "Did you mean 'rayjob'?" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("demo", "demo"),
        ("My_Data.v2", "my-data-v2"),
        ("2024-churn", "r-2024-churn"),
        ("x" * 40, "x" * 40),
        ("x" * 41, "x" * 33 + "-4c204b"),
        ("a" * 32 + "." + "b" * 8, "a" * 32 + "-7c4b1b"),
    ],
)
def test_names(name: str, found: str) -> None:
    assert kubernetes_name(name) == found


def test_recipes_that_begin_alike_have_names_of_their_own() -> None:
    long = [kubernetes_name("x" * 60 + end) for end in "ab"]
    assert len(set(long)) == 2
    assert {len(name) for name in long} == {40}


def test_versions_agree() -> None:
    pins = dict(
        line.split("==") for line in (ROOT / "deploy/constraints.txt").read_text().split() if "==" in line
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert pins["ray"] == RAY_VERSION
    assert project["version"] == version("rowsieve")
    assert f"rowsieve:{project['version']}-cpu" in (ROOT / "deploy/Dockerfile").read_text()
    assert f"rowsieve-mlflow:{pins['mlflow']}" in (ROOT / "deploy/mlflow/Dockerfile").read_text()
    for path in ("deploy/mlflow/compose.yaml", "deploy/mlflow/kubernetes.yaml"):
        assert f"rowsieve-mlflow:{pins['mlflow']}" in (ROOT / path).read_text()


def test_the_name_of_a_recipes_file_adds_no_manifest(tmp_path: Path) -> None:
    """The command is a comment of the manifests; a name of a file may hold line ends."""
    file = tmp_path / "x\nkind: Secret\n---\u2028y.yaml"
    file.write_text(DEMO.read_text())
    result = CliRunner().invoke(app, ["deploy", "render", str(file), "--kind", "rayjob"])
    assert result.exit_code == 0, result.output
    plain = CliRunner().invoke(app, ["deploy", "render", str(DEMO), "--kind", "rayjob"])
    assert result.stdout.splitlines()[1:] == plain.stdout.splitlines()[1:]


@pytest.mark.parametrize("name", ["1e3", "12", "1_0", "0x1f", "0o7", "1.5"])
def test_a_name_that_looks_like_a_number_is_text(name: str) -> None:
    """Kubernetes reads numbers by other rules than PyYAML writes texts."""
    assert to_yaml([{"name": name}], "x") == f"# x\nname: '{name}'\n"
