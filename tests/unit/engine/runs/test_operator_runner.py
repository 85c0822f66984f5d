"""Single operators of a plan: the error budget, errors of ``open``, and rows that are tried again twice."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.core.errors import BudgetError, InputError
from engine.core.events import silent
from engine.plan.model import Plan
from engine.recipe.recipe import RunSection
from engine.runs.operator_runner import OperatorRunner
from engine.runs.replay import replay
from engine.runs.runner import run
from engine.storage.lease import Lease
from engine.storage.run_store import Commit
from operators.base import Apply, Context, OperatorError
from operators.gradients.adaptor import Gradients
from tests.data import small_recipe


class CommittedStore:
    """A run store in which every operator has committed one shard of 100 rows with 2 of them quarantined."""

    def committed(self, fingerprint: str) -> dict[int, Commit]:
        return {0: Commit(0, 100, 1, "sha", 1.0, quarantined=2)}

    def fitted(self, fingerprint: str) -> dict[str, Any]:
        return {"metrics": {}}

    def folder(self, fingerprint: str) -> Path:
        return Path(fingerprint)


def plan_of(**fingerprints: str) -> Plan:
    """A plan that allows 3 of 100 faulty rows; operators by name."""
    operators = [
        SimpleNamespace(name=name, fingerprint=value, kept="") for name, value in fingerprints.items()
    ]
    source = SimpleNamespace(max_error_rate=0.03)
    found = SimpleNamespace(
        operators=operators,
        increment=None,
        store=CommittedStore(),
        shards=[SimpleNamespace(index=0)],
        n_rows=100,
        recipe=SimpleNamespace(source=source),
        fingerprint_of=fingerprints.__getitem__,
    )
    return cast(Plan, found)


def test_the_budget_counts_an_operator_that_is_fitted_again_once() -> None:
    with ExitStack() as stack:
        runner = OperatorRunner(RunSection(), silent, stack, Lease(Path("out"), 1), verbose=False)
        for plan in (plan_of(ingest="f0", probe="g0"), plan_of(ingest="f1", probe="g1")):
            runner.run(plan, plan.operators[0])
        with pytest.raises(BudgetError, match="4 of 100 rows"):
            runner.run(plan, plan.operators[1])


def test_an_error_of_open_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(self: Any, context: Context) -> Apply:
        raise OperatorError("operators.gradients.parameters: no layer is called nothing.*")

    monkeypatch.setattr(Gradients, "open", refuses)
    with pytest.raises(InputError, match="no layer is called"):
        run(small_recipe(tmp_path))


def raising_on(*rows: int) -> Callable[..., Apply]:
    original = Gradients.open

    def opened(self: Any, context: Context) -> Apply:
        apply = original(self, context)

        def wrapped(table: Any) -> Any:
            if set(rows).intersection(table["row_id"].to_pylist()):
                raise ZeroDivisionError
            return apply(table)

        return wrapped

    return opened


def test_a_second_replay_computes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small_recipe(tmp_path, source={"on_error": "quarantine", "max_error_rate": 0.02})
    versions, outcomes = [], []
    for step, rows in enumerate([(70, 130), (130,), ()]):
        with monkeypatch.context() as patched:
            patched.setattr(Gradients, "open", raising_on(*rows))
            if step == 0:
                versions.append(run(recipe).version)
            else:
                found = replay(recipe)
                versions.append(found.result.version)
                outcomes.append((found.rows, found.recovered, found.new))
    assert outcomes == [(2, 1, 0), (1, 1, 0)]
    assert len(set(versions)) == 3
