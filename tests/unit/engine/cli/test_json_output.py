"""Commands print with ``--json`` the record that ``rowsieve schema`` describes, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
import typer
import yaml
from typer.testing import CliRunner

from engine.cli.app import app
from engine.cli.json_records import RECORDS
from engine.cli.schema import COMMANDS, PAGE, page, schema_of
from engine.core.errors import Exit
from engine.jobs import handle as job_handle
from engine.jobs import schedule, submission
from tests.data import recipe_for, spurious_table, write_shards

PRINT_NO_RECORD = {"logs", "deploy", "schedule", "schema"}
"""They print the output of a job, YAML, a line for each event, and JSON schemas."""
QUICK = {
    "init": "init data/s0.parquet --label label -o drafted.yaml",
    "validate": "validate r.yaml",
    "plan": "plan r.yaml",
    "run": "run r.yaml",
    "status": "status r.yaml",
    "versions": "versions out",
    "versions prune": "versions out prune --keep 1 --dry-run",
    "versions remove": "versions out remove {before} --dry-run",
    "diff": "diff {before} {after} --output out --rows changed.parquet",
    "groups": "groups out",
    "explain": "explain out 3",
    "lineage": "lineage out",
    "retract": "retract out@{after} --why wrong --dry-run",
    "export": "export out --to parquet:table --executor local",
    "quarantine": "quarantine r.yaml",
    "quarantine export": "quarantine r.yaml export --to faulty.jsonl",
    "operators": "operators",
    "sources": "sources",
    "policy": "policy",
}
SLOW = {
    "cues": "cues full",
    "compare": "compare r.yaml --methods kmeans",
    "retrain": "retrain --dataset full --register m --executor local",
    "predict": "predict models:/m/1 data/s0.parquet predicted --tracking full --executor local",
    "quarantine replay": "quarantine r.yaml replay",
}
ON_A_CLUSTER = {"submit": "submit r.yaml", "status job": "status JOB", "cancel": "cancel JOB"}
AS_EVENTS = {"run events", "schedule events"}


def printed(command: str) -> str:
    """Standard output of a command that succeeds."""
    done = CliRunner().invoke(app, [word.replace("_*", " *").replace("_2", " 2") for word in command.split()])
    assert done.exit_code == 0, done.output
    return done.stdout


def check(name: str, text: str) -> Any:
    """Read the text as the record ``name``. Raises where it is none, lacks a key or has another one."""
    value = json.loads(text)
    jsonschema.validate(value, schema_of(RECORDS[name]))
    RECORDS[name].validate_python(value, strict=True)
    return value


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A folder with two versions, of which the second one has a quarantined row."""
    folder = tmp_path_factory.mktemp("json")
    write_shards(folder / "data", spurious_table(), 2)
    sections = {
        "source": {"on_error": "quarantine", "max_error_rate": 0.5},
        "incremental": {"base": "current"},
    }
    recipe = recipe_for(Path("data"), Path("out"), **sections)
    (folder / "r.yaml").write_text(yaml.safe_dump(recipe))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        before = check("run", printed("run r.yaml --json"))["version"]
        more = spurious_table(40, seed=1)
        place = more.column_names.index("a")
        faulty = pa.chunked_array([pa.array([float("inf"), *more["a"].to_pylist()[1:]])])
        write_shards(folder / "more", more.set_column(place, "a", faulty), 1)
        (folder / "more" / "s0.parquet").rename(folder / "data" / "s9.parquet")
        after = check("run", printed("run r.yaml --json"))["version"]
        yield {"before": before, "after": after}


@pytest.mark.parametrize("name", QUICK)
def test_a_command_prints_its_record(name: str, workplace: dict[str, str]) -> None:
    value = check(name, printed(QUICK[name].format(**workplace) + " --json"))
    assert value not in ([], {})


def test_each_line_of_a_run_is_a_record(workplace: dict[str, str]) -> None:
    lines = printed("run r.yaml --log-format json").splitlines()
    values = [check("run events", line) for line in lines]
    assert [value.get("event") for value in values] == [None] * (len(values) - 1) + ["published"]
    assert values[-1] == check("run", lines[-1])


@pytest.mark.slow
def test_commands_that_take_longer_print_their_records(workplace: dict[str, str]) -> None:
    operators: dict[str, Any] = {
        "cues": {},
        "groups": {"method": "cues"},
        "weights": {},
        "split": {"validation": 0.2},
    }
    recipe = recipe_for(Path("data"), Path("full"), source={"on_error": "quarantine", "max_error_rate": 0.5})
    recipe |= {
        "operators": operators,
        "report": {"enabled": True},
        "train": {"trainer": "erm", "when": "always"},
    }
    recipe["output"]["export"] = [{"format": "parquet", "path": "exported"}]
    Path("full.yaml").write_text(yaml.safe_dump(recipe))
    found = check("run", printed("run full.yaml --json"))
    assert found["training"]
    assert found["exports"]
    for name, command in SLOW.items():
        check(name, printed(command + " --json"))


class Client:
    """The Jobs API of a cluster that carries out a job at once."""

    def __init__(self) -> None:
        self.jobs: dict[str, SimpleNamespace] = {}

    def get_address(self) -> str:
        return "http://head:8265"

    def list_jobs(self) -> list[SimpleNamespace]:
        return [*self.jobs.values()]

    def submit_job(self, *, submission_id: str, metadata: dict[str, str], **_: Any) -> None:
        times = {"start_time": 1_790_000_000_000, "end_time": None, "driver_exit_code": None}
        state = SimpleNamespace(value="RUNNING")
        given = {"submission_id": submission_id, "metadata": metadata, "status": state, "message": ""}
        self.jobs[submission_id] = SimpleNamespace(**given, **times)

    def get_job_info(self, job: str) -> SimpleNamespace:
        return self.jobs[job]

    def stop_job(self, job: str) -> None:
        self._end(job, "STOPPED", None)

    async def tail_job_logs(self, job: str) -> Any:
        yield "the output of the job\n"
        self._end(job, "FAILED", int(Exit.BUDGET))

    def _end(self, job: str, state: str, code: int | None) -> None:
        self.jobs[job].status.value = state
        self.jobs[job].driver_exit_code = code
        self.jobs[job].end_time = 1_790_000_060_000


@pytest.fixture
def job(workplace: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a running job on a cluster that the environment names."""
    client = Client()
    for module in (job_handle, submission):
        monkeypatch.setattr(module, "connect", lambda address: client)
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", client.get_address())
    found = check("submit", printed("submit r.yaml --shared-files --json"))
    assert (found["state"], found["new"], found["exit_code"]) == ("RUNNING", True, None)
    return str(found["id"])


def test_a_job_is_a_record(job: str) -> None:
    assert check("status job", printed(f"status {job} --json"))["id"] == job
    assert [
        one["id"] for one in check("status job", printed("status r.yaml --address http://head:8265 --json"))
    ] == [job]
    assert check("cancel", printed(f"cancel {job} --json"))["stopped"]
    ended = check("cancel", printed(f"cancel {job} --json"))
    assert (ended["stopped"], ended["state"], ended["exit_code"]) == (False, "STOPPED", int(Exit.CRASH))


def test_a_job_that_is_waited_for_is_one_record_with_its_end(job: str) -> None:
    """A program reads one value; people read the output of the job beside it."""
    done = CliRunner().invoke(app, ["submit", "r.yaml", "--shared-files", "--wait", "--json"])
    ended = check("submit", done.stdout)
    assert done.exit_code == ended["exit_code"] == int(Exit.BUDGET)
    assert (ended["id"], ended["state"], ended["new"]) == (job, "FAILED", False)
    assert "the output of the job" in done.stderr


def test_delivered_records_are_told_beside_the_json(workplace: dict[str, str]) -> None:
    check("lineage", printed("lineage out --sync --json"))


def test_the_lines_of_a_schedule_are_records(
    workplace: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "rowsieve_run", lambda words: lambda: 0)
    monkeypatch.setattr(schedule.SystemClock, "wait", lambda self, seconds: self.stop())
    lines = printed("schedule r.yaml --cron=0_2_*_*_* --log-format json").splitlines()
    events = [check("schedule events", line)["schedule"]["event"] for line in lines]
    assert events == ["waiting", "stopped"]


def commands() -> Iterator[tuple[str, typer.core.TyperCommand]]:
    found: Any = typer.main.get_command(app)
    yield from found.commands.items()


def test_every_command_prints_json_and_is_checked() -> None:
    with_json = {name for name, one in commands() if any("--json" in option.opts for option in one.params)}
    assert with_json == {name for name, _ in commands()} - PRINT_NO_RECORD
    assert {name.split()[0] for name in RECORDS} - {"schedule"} == with_json
    assert RECORDS.keys() == QUICK.keys() | SLOW.keys() | ON_A_CLUSTER.keys() | AS_EVENTS
    assert COMMANDS.keys() <= RECORDS.keys()


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == page(), "engine/JSON.md is stale: run `python -m engine.cli.schema`"


@pytest.mark.parametrize("words", [["run"], ["versions", "prune"], []])
def test_schemas_are_printed(words: Sequence[str]) -> None:
    found = json.loads(printed(" ".join(["schema", *words])))
    for one in [found] if words else found.values():
        jsonschema.Draft202012Validator.check_schema(one)


def test_an_unknown_name_is_an_error_that_lists_the_known() -> None:
    done = CliRunner().invoke(app, ["schema", "rum"])
    assert done.exit_code == Exit.BAD_INPUT
    assert "Did you mean 'run'?" in done.stderr
