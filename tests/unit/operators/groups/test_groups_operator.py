"""The groups operator's methods over shards: labels of the kernels, states, plugins, refusals."""

import json
import pickle
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from engine.core.errors import InputError
from engine.core.events import silent
from engine.plan.model import Plan
from engine.plan.operator_setup import build_operator
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.compare.comparison import needed, variants
from engine.runs.operator_runner import OperatorRunner
from engine.storage.lease import hold_lease
from operators.arrays import Labels
from operators.base import FEATURES, GRADIENT, LABEL, LOSS, PREDICTION, OperatorError, OperatorParams
from operators.columns import vectors_to_numpy
from operators.groups import GroupMethod, GroupResult
from operators.groups import operator as methods
from operators.groups.eiil import environments, scale_derivatives
from operators.groups.george import fit_george
from operators.groups.kernel import Columns, State
from operators.groups.kmeans import fit_kmeans
from operators.groups.operator import method_class
from operators.groups.params import GeorgeParams
from operators.models import load
from operators.probe.scoring import logits
from tests.data import small_recipe
from tests.on_arrays import place_rows

# A weak probe, so that some rows are predicted wrong. Kernels and operators learn from all rows here.
WEAK = {"probe": {"l2": 1.0, "trainer": "in_process"}, "split": {"fit_on": "all"}}
METHODS = ("grasp", "feasp", "kmeans", "george", "eiil", "jtt", "cues", "none", "oracle")
PARAMS = (
    *(f"{name}.min_rows=0" for name in ("grasp", "feasp", "kmeans", "george", "eiil", "jtt")),
    "grasp.eps=[0.1,0.3]",
    "feasp.eps=[0.1,0.3]",
    "kmeans.k=[2,3]",
    "george.k=[2,3]",
    "george.overcluster=[1,2]",
    "jtt.epochs=3",
)


def carry_out(plan: Plan) -> None:
    from contextlib import ExitStack

    with hold_lease(plan.output, "test") as lease, ExitStack() as stack:
        runner = OperatorRunner(plan.recipe.run, silent, stack, lease, verbose=False)
        for planned in needed(plan):
            runner.run(plan, planned)


def plans_for(recipe: Recipe, names: tuple[str, ...] = METHODS) -> dict[str, Plan]:
    params = [p for p in PARAMS if p.partition(".")[0] in names]
    return {name: make_plan(variant) for name, variant in variants(recipe, names, params).items()}


def rows_of(plan: Plan, *columns: str) -> pa.Table:
    reader = plan.reader()
    return pa.concat_tables([reader.read(shard.index, list(columns)) for shard in plan.shards])


def array(plan: Plan, column: str) -> Any:
    found = rows_of(plan, column).column(column)
    return vectors_to_numpy(found) if pa.types.is_list(found.type) else found.to_numpy()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plan]:
    """Every method, run on four shards."""
    plans = plans_for(small_recipe(tmp_path_factory.mktemp("groups"), operators=WEAK))
    for plan in plans.values():
        carry_out(plan)
    return plans


def state_of(plan: Plan) -> Path:
    return plan.store.state(plan.fingerprint_of("groups"))


def by_class(y: Any, split: Any) -> npt.NDArray[np.int32]:
    found, offset = np.empty(len(y), np.int32), 0
    for value in np.unique(y):
        result: GroupResult = split(np.flatnonzero(y == value))
        found[y == value] = result.labels + offset
        offset += result.n_groups
    return found


def expected(name: str, plan: Plan, full: Plan) -> Any:
    """The kernel's labels of all rows at once; ``full`` has every column."""
    y, X, seed = array(full, LABEL), array(full, FEATURES), full.recipe.seed
    if name == "kmeans":
        gradients = array(full, GRADIENT)
        return by_class(y, lambda rows: fit_kmeans(gradients[rows], [2, 3], random_state=seed))
    if name == "george":
        loss, params = array(full, LOSS), GeorgeParams(k=[2, 3], overcluster=[1, 2], min_rows=0)
        return by_class(y, lambda rows: fit_george(X[rows], loss[rows], params, seed))
    if name == "eiil":
        probe = load(full.store.state(full.fingerprint_of("probe")))
        return 2 * y + environments(scale_derivatives(logits(probe, X), y))
    if name == "jtt":
        return 2 * y + (logits(load(state_of(plan)), X).argmax(axis=1) != y)
    return y


@pytest.mark.parametrize("name", ["kmeans", "george", "eiil", "jtt", "none"])
def test_groups_are_the_kernels(name: str, done: dict[str, Plan]) -> None:
    group = array(done[name], "group")
    np.testing.assert_array_equal(group, expected(name, done[name], done["grasp"]))
    assert len(np.unique(group)) == 2 if name == "none" else len(np.unique(group)) >= 3
    assert set(rows_of(done[name], "group_outlier").column("group_outlier").to_pylist()) == {""}


def test_two_classes_eiil_sets_apart_what_the_probe_gets_wrong(done: dict[str, Plan]) -> None:
    y = array(done["eiil"], LABEL)
    np.testing.assert_array_equal(array(done["eiil"], "group") - 2 * y, array(done["eiil"], PREDICTION) != y)


def test_the_same_groups_from_other_shards(done: dict[str, Plan], tmp_path: Path) -> None:
    for name, plan in plans_for(small_recipe(tmp_path, shards=1, operators=WEAK)).items():
        carry_out(plan)
        np.testing.assert_array_equal(array(plan, "group"), array(done[name], "group"), err_msg=name)


def test_groups_with_few_rows_are_merged_by_every_method(done: dict[str, Plan], tmp_path: Path) -> None:
    names = ("grasp", "kmeans", "george", "eiil", "jtt")
    recipe = small_recipe(tmp_path, operators=WEAK)
    sizes = {"min_rows": 40, "min_share": 0.0}
    params = [f"{name}.{key}={value}" for name in names for key, value in sizes.items()]
    kept = [p for p in PARAMS if "min_rows" not in p and p.partition(".")[0] in names]
    found = {name: make_plan(v) for name, v in variants(recipe, names, [*kept, *params]).items()}
    for name, plan in found.items():
        carry_out(plan)
        y, group = array(plan, LABEL), array(plan, "group")
        few = 0
        for value in np.unique(y):
            rows = np.unique(group[(y == value) & (group >= 0)], return_counts=True)[1]
            assert len(rows) == 1 or rows.min() >= 40, name
            before = array(done[name], "group")[y == value]
            few += np.unique(before[before >= 0], return_counts=True)[1].min() < 40
        assert few or name == "jtt"  # else nothing was merged; the errors of JTT's model are many or none
        if name != "grasp":
            operator = next(planned.operator for planned in plan.operators if planned.name == "groups")
            again = place_rows(state_of(plan), rows_of(done["grasp"], *operator.requires))
            np.testing.assert_array_equal(again.column("group").to_numpy(), group)


@pytest.mark.parametrize("name", ["kmeans", "george", "eiil", "jtt", "none"])
def test_rows_of_fit_are_assigned_to_their_groups(name: str, done: dict[str, Plan]) -> None:
    plan = done[name]
    operator = next(planned.operator for planned in plan.operators if planned.name == "groups")
    found = place_rows(state_of(plan), rows_of(done["grasp"], *operator.requires))
    np.testing.assert_array_equal(found.column("group").to_numpy(), array(plan, "group"))


@pytest.mark.parametrize(("name", "space"), [("grasp", GRADIENT), ("feasp", FEATURES)])
def test_density_assigns_new_rows_as_its_kernel_predicts(
    name: str, space: str, done: dict[str, Plan]
) -> None:
    from operators.grasp import GroupInference

    y, X = array(done["grasp"], LABEL), array(done["grasp"], space)
    kernel = GroupInference(eps_grid=[0.1, 0.3], random_state=3, min_rows=0)
    kernel.set_params(min_samples_grid=[5, 10] if name == "grasp" else kernel.min_samples_grid).fit(X, y)
    moved = X + 0.1 * np.random.default_rng(0).normal(size=X.shape).astype(np.float32)
    table = pa.table({LABEL: y, space: pa.array(list(moved), pa.list_(pa.float32()))})
    found = place_rows(state_of(done[name]), table)
    np.testing.assert_array_equal(found.column("group").to_numpy(), kernel.predict(moved, y))
    noise = found.column("group").to_numpy() == -1
    assert found.column("group_outlier").to_pylist() == [f"{name}:noise" if n else "" for n in noise]


def test_oracle_alone_may_read_the_truth_it_names(done: dict[str, Plan]) -> None:
    plan = done["oracle"]
    truth = pa.concat_tables([plan.reader().read_with_truth(s.index, ["truth"]) for s in plan.shards])
    names = np.array(["major", "minor"])[array(plan, "group")]
    assert names.tolist() == truth.column("truth").to_pylist()
    for planned in plan.operators:
        reader = plan.reader(planned)
        if planned.name == "groups":
            assert reader.read_source(0, ["truth"]).num_rows
        else:
            with pytest.raises(OperatorError, match="kept for scoring only"):
                reader.read_source(0, ["truth"])
    with pytest.raises(OperatorError, match="`oracle` reads the truth of the rows it was given"):
        place_rows(state_of(plan), rows_of(plan, LABEL))


@pytest.mark.parametrize("name", ["kmeans", "grasp"])
def test_rows_of_a_class_without_rows_to_learn_from_are_in_no_group(name: str, done: dict[str, Plan]) -> None:
    """All rows of a class may be held out. That is no reason to take them for outliers."""
    strange = rows_of(done[name], LABEL, GRADIENT).slice(0, 3)
    strange = strange.set_column(1, LABEL, pa.array([7, 7, 7], pa.int32()))
    found = place_rows(state_of(done[name]), strange)
    assert found["group"].to_pylist() == [-1, -1, -1]
    assert found["group_outlier"].to_pylist() == ["", "", ""]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"method": "kmean"}, "there is no usable method 'kmean'. Did you mean 'kmeans'?"),
        (
            {"method": "kmeans", "eps": 0.3},
            "operators.groups.eps: unknown key. Known keys: method, space, k,",
        ),
        ({"method": "kmeans", "n_inits": 3}, "operators.groups.n_inits: unknown key. Did you mean 'n_init'?"),
        ({"epss": 0.3}, "operators.groups.epss: unknown key. Did you mean 'eps'?"),
        ({"method": "oracle"}, "operators.groups.column: is required."),
        ({"method": "jtt", "epochs": 0}, "operators.groups.epochs: Input should be greater"),
        ({"method": "george", "k": []}, "operators.groups.k"),
    ],
)
def test_parameters_are_those_of_the_method(params: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        build_operator(small_recipe(tmp_path), "groups", params)
    assert message in str(caught.value)


def test_default_is_grasp(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path)
    default, named = (build_operator(recipe, "groups", p) for p in ({}, {"method": "grasp"}))
    assert default.params == named.params
    assert type(default) is type(named) is method_class("grasp")


class ParityParams(OperatorParams):
    method: Literal["parity"] = "parity"


class Parity(GroupMethod[ParityParams]):
    """Rows by the sign of their first feature; 0 is noise."""

    Params: ClassVar[type[OperatorParams]] = ParityParams
    columns = (FEATURES,)

    def fit(self, columns: Columns, seed: int) -> GroupResult:
        return GroupResult(self.predict({}, columns), 2, {})

    def predict(self, state: State, columns: Columns) -> Labels:
        first = columns[FEATURES][:, 0]
        return np.where(first == 0, -1, first > 0).astype(np.int32)


def plugins(monkeypatch: pytest.MonkeyPatch, **targets: str) -> None:
    points = tuple(EntryPoint(name, value, methods.ENTRY_POINTS) for name, value in targets.items())
    monkeypatch.setattr(
        methods, "entry_points", lambda group: points if group == methods.ENTRY_POINTS else ()
    )


def test_a_third_party_adds_a_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins(monkeypatch, parity=f"{__name__}:Parity", kmeans="nowhere:Nothing")
    (plan,) = plans_for(small_recipe(tmp_path), ("parity",)).values()
    carry_out(plan)
    y, X = array(plan, LABEL), array(plan, FEATURES)
    np.testing.assert_array_equal(array(plan, "group"), 2 * y + (X[:, 0] > 0))
    found = place_rows(state_of(plan), rows_of(plan, FEATURES, LABEL))
    np.testing.assert_array_equal(found.column("group").to_numpy(), array(plan, "group"))
    assert method_class("kmeans").Params.__name__ == "KMeansParams"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("nowhere:Nothing", "does not load: ModuleNotFoundError"),
        ("pathlib:Path", "is neither an operators.groups.GroupMethod nor"),
        ("operators.splits.adaptor:Nothing", "does not load: AttributeError"),
        ("operators.groups.kernel:GroupMethod", "has no Params with a field 'method'"),
    ],
)
def test_a_broken_method_is_named_and_skipped(
    target: str, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plugins(monkeypatch, broken=target)
    assert set(methods.known_methods()) == set(METHODS)
    assert f"The group method broken ({target}) {why}" in caplog.text
    with pytest.raises(OperatorError, match=r"no usable method 'broken'\. Known: grasp"):
        method_class("broken")


def test_operators_made_from_methods_pickle() -> None:
    operator = method_class("kmeans")(method_class("kmeans").Params.model_validate({"k": 3}))
    again = pickle.loads(pickle.dumps(operator))
    assert type(again) is type(operator)
    assert again.params == operator.params


def test_the_schema_knows_every_method() -> None:
    from engine.recipe.schema import recipe_schema

    groups = recipe_schema()["properties"]["operators"]["properties"]["groups"]["anyOf"]
    named: list[Mapping[str, Any]] = [
        entry["properties"]["method"] for entry in groups if "properties" in entry
    ]
    values = [value for entry in named for value in entry.get("enum", [entry.get("const")])]
    assert sorted(values) == sorted(METHODS)


def test_planning_imports_no_heavy_library() -> None:
    code = (
        "import sys; from operators.groups.operator import known_methods; known_methods(); "
        "print([m for m in ('torch', 'sklearn', 'scipy', 'ray', 'faiss', 'mlflow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_records_leave_out_where_things_ran(done: dict[str, Plan]) -> None:
    record = json.loads((state_of(done["kmeans"]) / "groups.json").read_text())
    assert record["params"] == {
        "method": "kmeans", "space": "gradients", "k": [2, 3], "n_init": 10, "silhouette_rows": 10_000,
        "min_rows": 0,
        "min_share": 0.005,
    }  # fmt: skip
    assert [entry["offset"] for entry in record["classes"]] == [0, record["classes"][0]["n_groups"]]
