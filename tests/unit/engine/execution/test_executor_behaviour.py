"""The contract of executors, checked in this process and on Ray."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from engine.core.errors import InputError
from engine.execution.cluster import executor as open_executor
from engine.execution.job import Failure, Job, ShardExecutor
from engine.execution.worker import ShardWorker
from engine.plan.planner import make_plan
from engine.recipe.recipe import RunSection
from engine.storage.lease import Lease
from engine.storage.reader import StoreReader
from engine.storage.run_store import Commit
from operators.base import ROW_ID, Apply, Context, Operator, OperatorError, OperatorParams
from operators.ingest.adaptor import Ingest
from tests.data import small_recipe


@pytest.fixture(scope="module", params=["local", pytest.param("ray", marks=pytest.mark.cluster)])
def executor(request: pytest.FixtureRequest) -> Iterator[ShardExecutor]:
    with open_executor(RunSection(executor=request.param)) as opened:
        yield opened


def double(item: int) -> int:
    return 2 * item


def refuse(item: int) -> int:
    if item == 2:
        raise OperatorError("the value 2 cannot be used")
    return item


class Refusing(Ingest):
    """An operator that cannot be opened."""

    def open(self, context: Context) -> Apply:
        raise OperatorError("the model has no layer of this name")


class RefusingOnActors(Refusing):
    """The same where long-lived actors would open it."""

    keeps_open = True


@dataclass(frozen=True)
class NoCheck(Lease):
    """A lease that nobody takes over."""

    def check(self) -> None:
        """Accept the writer."""


def job_of(tmp_path: Path, kind: type[Ingest]) -> Job:
    plan = make_plan(small_recipe(tmp_path, shards=4))
    planned = plan.operators[0]
    operator = kind(cast(Any, planned.operator.params))
    context = Context(plan.reader(planned), tmp_path / "state")
    return Job(operator, context, plan.reader(planned), planned.fingerprint, NoCheck(tmp_path, 1))


def test_results_come_in_the_order_of_the_items(executor: ShardExecutor) -> None:
    assert list(executor.map(double, list(range(20)))) == [2 * item for item in range(20)]
    assert list(executor.map(double, [])) == []


class Listing:
    """A function that counts how often it is pickled."""

    pickled = 0

    def __call__(self, item: int) -> int:
        return 2 * item

    def __reduce__(self) -> tuple[type, tuple[()]]:
        Listing.pickled += 1
        return Listing, ()


def test_what_the_tasks_share_is_sent_once(executor: ShardExecutor) -> None:
    """A function may hold the whole listing: 26 GB were pickled for a pass over 10,000 shards."""
    Listing.pickled = 0
    assert list(executor.map(Listing(), list(range(20)))) == [2 * item for item in range(20)]
    assert Listing.pickled <= 1


def test_an_operator_error_of_a_task_is_raised_with_its_message(executor: ShardExecutor) -> None:
    with pytest.raises((OperatorError, InputError), match="the value 2 cannot be used"):
        list(executor.map(refuse, [1, 2, 3]))


class Counting(Operator[OperatorParams]):
    """An operator that counts how often it is opened."""

    name = "counting"
    version = 1
    Params = OperatorParams
    requires = ()
    source_columns = ("a",)
    adds = (pa.field("one", pa.int64()),)
    opened = 0

    def open(self, context: Context) -> Apply:
        Counting.opened += 1
        return lambda table: pa.table({"one": pa.repeat(pa.scalar(1), table.num_rows)})


def test_a_shard_that_comes_again_is_not_computed_again(tmp_path: Path) -> None:
    """As Ray does where a node is lost with the result of a shard that was committed."""
    job = replace(job_of(tmp_path, Ingest), operator=Counting(OperatorParams()))
    commit = ShardWorker(job, repeats=True)(0)
    assert isinstance(commit, Commit)
    assert Counting.opened == 1
    assert ShardWorker(job, repeats=True)(0) == commit
    assert Counting.opened == 1
    assert isinstance(ShardWorker(job, repeats=True)(1), Commit)
    assert Counting.opened == 2


@pytest.mark.parametrize("kind", [Refusing, RefusingOnActors])
def test_an_operator_that_cannot_be_opened_is_bad_input(
    kind: type[Ingest], executor: ShardExecutor, tmp_path: Path
) -> None:
    results = list(executor.apply(job_of(tmp_path, kind), [0, 1]))
    assert len(results) == 2
    for result in results:
        assert isinstance(result, Failure)
        assert (result.kind, result.message) == ("input", "the model has no layer of this name")
        assert isinstance(result.raised(), InputError)


@dataclass(frozen=True)
class MarkingReader(StoreReader):
    """A reader that leaves a mark for every shard that it has read; one shard cannot be read."""

    marks: Path = Path()
    missing: int = -1

    def read_source(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Read, and leave the mark."""
        if shard == self.missing:
            raise InputError("the file is gone")
        table = super().read_source(shard, columns)
        (self.marks / f"read-{shard}").touch()
        return table


class WaitingForTheNext(Counting):
    """An operator on actors that computes a shard only once the next one has been read."""

    name = "waiting"
    keeps_open = True

    def open(self, context: Context) -> Apply:
        reader = cast(MarkingReader, context.shards)
        firsts = [shard.first_row for shard in reader.shards]

        def apply(table: pa.Table) -> pa.Table:
            next_one = firsts.index(table.column(ROW_ID)[0].as_py()) + 1
            deadline = time.monotonic() + 120
            while next_one < len(firsts) and not (reader.marks / f"read-{next_one}").exists():
                if time.monotonic() > deadline:
                    raise OperatorError(
                        f"shard {next_one} was not read while shard {next_one - 1} was computed"
                    )
                time.sleep(0.02)
            return pa.table({"one": pa.repeat(pa.scalar(1), table.num_rows)})

        return apply


def marking_job(tmp_path: Path, operator: Operator[Any], missing: int = -1) -> Job:
    """Return the job of an operator whose reader leaves marks."""
    job = job_of(tmp_path, Ingest)
    values = {field.name: getattr(job.reader, field.name) for field in fields(job.reader)}
    reader = MarkingReader(**values, marks=tmp_path, missing=missing)
    return replace(job, operator=operator, reader=reader, context=replace(job.context, shards=reader))


@pytest.mark.cluster
def test_actors_compute_while_the_next_shard_is_read(tmp_path: Path) -> None:
    job = marking_job(tmp_path, WaitingForTheNext(OperatorParams()))
    n_shards = len(job.reader.shards)
    assert n_shards >= 2
    with open_executor(RunSection(executor="ray", shards_in_flight=1)) as executor:
        found = list(executor.apply(job, range(n_shards)))
    assert {commit.shard for commit in found if isinstance(commit, Commit)} == set(range(n_shards))


@pytest.mark.cluster
@pytest.mark.slow
def test_a_shard_that_cannot_be_read_ahead_is_a_failure_beside_the_others(tmp_path: Path) -> None:
    class OnActors(Counting):
        keeps_open = True

    job = marking_job(tmp_path, OnActors(OperatorParams()), missing=1)
    with open_executor(RunSection(executor="ray")) as executor:
        by_kind = {type(found): found for found in executor.apply(job, [0, 1])}
        again = list(executor.apply(job, [0]))
    failure, commit = by_kind[Failure], by_kind[Commit]
    assert isinstance(failure, Failure)
    assert (failure.shard, failure.kind, failure.message) == (1, "input", "the file is gone")
    assert again == [commit], "a shard that was committed is not computed again"
