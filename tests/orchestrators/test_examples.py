"""Every example of ``deploy/ORCHESTRATORS.md`` runs as it stands, with the orchestrator's own package.

Each orchestrator has an environment of its own, made by pip at the first call; where it cannot be made, its
tests are skipped. The examples for a Ray cluster are in ``tests/cluster/test_orchestrators_ray.py``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from engine.cli.json_records import RECORDS
from engine.core.errors import Exit
from engine.storage.manifest import read_manifest
from tests.data import recipe_for, spurious_table, write_shards
from tests.orchestrators.environments import PACKAGES, PAGE, PATIENCE, examples, program

pytestmark = pytest.mark.timeout(3 * PATIENCE)
"""An installation, then a program: each has its own limit."""
SECTIONS = {"dagster": "Dagster", "airflow": "Airflow", "prefect": "Prefect", "argo": "Argo Workflows"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the recipe of the page and its data."""
    (tmp_path / "recipes").mkdir()
    write_shards(tmp_path / "data", spurious_table(), 2)
    recipe = recipe_for(Path("data"), Path("out"), incremental={"base": "current"})
    (tmp_path / "recipes" / "churn.yaml").write_text(yaml.safe_dump(recipe))
    return tmp_path


def break_recipe(place: Path) -> None:
    file = place / "recipes" / "churn.yaml"
    file.write_text(file.read_text().replace("label: label", "label: lable"))


def add_drifted_rows(place: Path) -> None:
    table = spurious_table(120, seed=1)
    column = table.column_names.index("a")
    moved = table.set_column(column, "a", pa.array(np.asarray(table["a"]) + 9.0))
    write_shards(place / "more", moved, 1)
    (place / "more" / "s0.parquet").rename(place / "data" / "s9.parquet")


def check_record(found: dict[str, Any], place: Path) -> None:
    """A record as `rowsieve run --json` prints it, of the version that is there."""
    RECORDS["run"].validate_python(found, strict=True)
    assert read_manifest(place / found["path"])["rows"] == found["rows"] == 240


@pytest.mark.slow
def test_dagster(place: Path) -> None:
    (place / "definitions.py").write_text("\n".join(examples("Dagster")))
    first = program("dagster", place, "definitions.py", "churn")
    assert first["success"]
    assert first["checks"] == {"drift": {"passed": True, "severity": "WARN", "metadata": ["reason"]}}
    add_drifted_rows(place)
    found = program("dagster", place, "definitions.py", "churn")
    values = found["metadata"]
    manifest = read_manifest(place / "out" / "versions" / values["version"])
    assert found["success"]  # a check that warns does not stop the assets behind it
    assert found["data_version"] == values["version"] != first["data_version"]
    assert values["dagster/row_count"] == manifest["rows"] == 360
    groups = {name: rows for name, rows in manifest["summary"]["groups"].items() if name != "-1"}
    assert (values["rows_by_group"], values["groups"]) == (groups, len(groups))
    assert values["decision"].startswith(manifest["incremental"]["outcome"])
    drift = found["checks"]["drift"]
    assert (drift["passed"], drift["severity"]) == (False, "WARN")
    assert sorted(drift["metadata"]) == sorted(one["name"] for one in manifest["incremental"]["drift"])


@pytest.mark.slow
def test_dagster_sees_a_run_that_fails(place: Path) -> None:
    break_recipe(place)
    example = "\n".join(examples("Dagster")).replace("max_retries=2, delay=60", "max_retries=1, delay=0")
    (place / "definitions.py").write_text(example)
    found = program("dagster", place, "definitions.py", "churn")
    assert (found["success"], found["retries"], "metadata" in found) == (False, 1, False)
    assert "churn" in found["errors"][0]


@pytest.mark.slow
def test_prefect(place: Path) -> None:
    (place / "churn.py").write_text("\n".join(examples("Prefect")))
    settings = {
        "PREFECT_HOME": str(place / "home"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": str(PATIENCE),
    }
    check_record(program("prefect", place, "churn.py", **settings)["result"], place)
    break_recipe(place)
    assert program("prefect", place, "churn.py", **settings) == {"exit_code": Exit.BAD_INPUT, "tries": 1}


@pytest.mark.slow
def test_airflow(place: Path) -> None:
    settings = airflow_settings(place)
    (place / "dags" / "churn.py").write_text(examples("Airflow")[0])
    found = program("airflow", place, "dags/churn.py", **settings)
    assert {name: one["state"] for name, one in found.items()} == dict.fromkeys(
        ("curate", "announce"), "success"
    )
    check_record(found["curate"]["returned"], place)
    break_recipe(place)
    found = program("airflow", place, "dags/churn.py", **settings)
    assert (found["curate"]["state"], found["curate"]["tries"]) == ("failed", 1)  # not up_for_retry
    assert found["announce"]["state"] == "upstream_failed"


def airflow_settings(place: Path) -> dict[str, str]:
    """Variables of an Airflow whose files all lie in a folder."""
    (place / "dags").mkdir()
    core = {"LOAD_EXAMPLES": "False", "DAGS_FOLDER": str(place / "dags")}
    return {"AIRFLOW_HOME": str(place / "airflow")} | {
        f"AIRFLOW__CORE__{key}": one for key, one in core.items()
    }


@pytest.mark.slow
def test_argo_knows_every_key(place: Path) -> None:
    (manifest,) = examples("Argo Workflows", "yaml")
    (place / "churn.yaml").write_text(manifest)
    assert program("argo", place, "churn.yaml") == yaml.safe_load(manifest)


@pytest.mark.slow
def test_the_container_of_argo_writes_its_parameter(place: Path) -> None:
    (manifest,) = examples("Argo Workflows", "yaml")
    text = manifest.replace("/data/", "").replace("/tmp/", f"{place}/")
    (template,) = yaml.safe_load(text)["spec"]["workflowSpec"]["templates"]
    words = [*template["container"]["command"], *template["container"]["args"]]
    binaries = Path(sys.executable).parent
    done = subprocess.run(words, cwd=place, env={"PATH": f"{binaries}:/usr/bin:/bin"}, check=False)
    assert done.returncode == 0
    (parameter,) = template["outputs"]["parameters"]
    check_record(json.loads(Path(parameter["valueFrom"]["path"]).read_text()), place)


@pytest.mark.parametrize("name", PACKAGES)
def test_examples_are_programs(name: str) -> None:
    """The examples can be parsed where the orchestrator's package is not installed."""
    for language in ("python", "yaml"):
        for block in examples(SECTIONS[name], language):
            compile(block, name, "exec") if language == "python" else yaml.safe_load(block)
            assert "recipes/churn.yaml" in block


def test_every_section_is_run() -> None:
    titles = [line[3:] for line in PAGE.read_text("utf-8").splitlines() if line.startswith("## ")]
    assert titles == [*SECTIONS.values(), "Lineage"]
