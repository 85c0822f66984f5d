"""The examples of ``deploy/ORCHESTRATORS.md`` that run a recipe as a job of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from engine.cli.json_records import RECORDS
from engine.storage.withdrawals import current_version
from tests.cluster.head import TOKEN, Head, running_head
from tests.data import recipe_for, spurious_table, write_shards
from tests.orchestrators.environments import examples, program
from tests.orchestrators.test_examples import airflow_settings

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with running_head() as found:
        yield found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "recipes").mkdir()
    write_shards(tmp_path / "data", spurious_table(), 2)
    recipe = recipe_for(Path("data"), Path("out"))
    (tmp_path / "recipes" / "churn.yaml").write_text(yaml.safe_dump(recipe))
    return tmp_path


def test_airflow_waits_for_a_job_without_a_worker(head: Head, place: Path) -> None:
    settings = airflow_settings(place) | {"AIRFLOW_VAR_RAY_ADDRESS": head.address}
    (place / "dags" / "churn.py").write_text(examples("Airflow")[1])
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    found = program("airflow", place, "dags/churn.py", **settings, **token)["curate"]
    record = found["returned"]
    RECORDS["status job"].validate_python(record, strict=True)
    assert (found["state"], record["state"]) == ("success", "SUCCEEDED")
    assert record["metadata"]["version"] == current_version(place / "out")
    file = place / "recipes" / "churn.yaml"
    file.write_text(file.read_text().replace("label: label", "label: lable"))
    failed = program("airflow", place, "dags/churn.py", **settings, **token)["curate"]
    assert (failed["state"], failed["tries"]) == ("failed", 1)


def test_a_job_reports_to_dagster_by_itself(head: Head, place: Path) -> None:
    (place / "definitions.py").write_text("\n".join(examples("Dagster")))
    (place / "shared").mkdir()
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "RAY_API_SERVER_ADDRESS": head.address}
    found = program("dagster", place, "definitions.py", "churn_on_ray", **variables)
    assert found["success"], found
    assert found["data_version"] == current_version(place / "out")
    assert found["metadata"]["dagster/row_count"] == 240
    assert found["checks"]["drift"]["passed"]
