import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.cluster import DBSCAN

from operators.embed.params import EmbedParams
from tests.benchmarks import harness
from tests.benchmarks.dbscan import tables
from tests.benchmarks.dbscan.__main__ import main
from tests.benchmarks.dbscan.bars import bars
from tests.benchmarks.dbscan.bench import STORE, Bench
from tests.benchmarks.dbscan.cases import Case, Regime, expected_memory, expected_seconds
from tests.benchmarks.dbscan.peers import PEERS, Setting
from tests.benchmarks.dbscan.tables import README
from tests.benchmarks.dbscan.worker import ROOT, Limits, Worker
from tests.benchmarks.gpu import networks
from tests.benchmarks.harness import Spent, Timing, measure
from tests.benchmarks.scale import Cost, projection, verdict


def test_callables_take_turns_and_slow_ones_fewer():
    order: list[str] = []
    measure({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, {"a": 3, "b": 2})
    assert order == ["a", "b", "a", "b", "a"]


def test_a_timing_holds_the_median_the_extremes_and_the_last_result():
    ticks = iter([0.0, 3.0, 10.0, 11.0, 20.0, 27.0])
    results = count()
    found = measure({"a": lambda: next(results)}, 3, clock=lambda: next(ticks))
    assert found["a"] == Timing(3.0, 1.0, 7.0)
    assert found["a"].result == 2


def test_a_callable_that_took_long_is_not_repeated():
    runs = {"slow": lambda: Spent(7.0), "quick": lambda: Spent(1.0)}
    calls = dict.fromkeys(runs, 0)

    def counted(name: str) -> Spent:
        calls[name] += 1
        return runs[name]()

    measure({name: lambda name=name: counted(name) for name in runs}, 5, patience={"slow": 10.0})
    assert calls == {"slow": 2, "quick": 5}


def test_a_run_elsewhere_is_taken_at_its_word():
    found = measure({"there": lambda: Spent(2.5, "labels")}, 2)["there"]
    assert (found.median, found.result) == (2.5, "labels")


def test_cpu_counts_the_process_not_the_wall():
    before = harness.cpu()
    sum(range(300_000))
    assert harness.cpu() > before


def test_a_table_has_all_columns_and_dashes():
    assert harness.table([{"n": 1, "ours": "0.1"}, {"n": 2, "peer": "3"}]) == (
        "| n | ours | peer |\n| --- | --- | --- |\n| 1 | 0.1 | - |\n| 2 | - | 3 |"
    )


def test_a_section_is_replaced_and_the_rest_kept(tmp_path: Path):
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- begin rows -->\nold\n<!-- end rows -->\nafter\n")
    for _ in range(2):
        harness.write_section(readme, "rows", "new\n")
        assert readme.read_text() == "before\n<!-- begin rows -->\nnew\n<!-- end rows -->\nafter\n"


@pytest.mark.parametrize("page", ["", "<!-- begin rows -->", "<!-- end rows --><!-- begin rows -->"])
def test_a_page_without_the_markers_is_refused(tmp_path: Path, page: str):
    readme = tmp_path / "README.md"
    readme.write_text(page)
    with pytest.raises(ValueError, match="begin rows"):
        harness.write_section(readme, "rows", "new")
    assert readme.read_text() == page


def test_figures_have_three_digits_and_ratios_two():
    assert [harness.figure(x) for x in (0.01234, 1.0, 12.34, 1234.5)] == ["0.0123", "1.00", "12.3", "1,234"]
    assert [harness.ratio(x) for x in (0.954, 8.77, 110.2)] == ["0.95x", "8.8x", "110x"]


@pytest.mark.slow
def test_the_table_is_run_with_ours_and_what_is_installed(tmp_path: Path):
    python = tmp_path / "python"
    python.write_text(f"""#!/bin/sh
[ "$1" = -c ] && echo '{{"scikit-learn": "1"}}' || exec {sys.executable} "$@"
""")
    python.chmod(0o755)
    bench = Bench(python, store=tmp_path / "measured.json")
    case = Case(300, 4, "tight")
    row = bench.row(case)
    ran = {name for name, entry in row["peers"].items() if "median" in entry}
    assert {name for name, peer in PEERS.items() if peer.module in (None, "sklearn")} == ran
    assert all(row["peers"][name]["ari"] == 1.0 for name in ran if PEERS[name].exact)
    assert row["peers"]["scikit-learn"]["differ"] == 0
    bench.note("rows", case.key, row)
    assert Bench(python, store=tmp_path / "measured.json").measured["rows"][case.key]["n"] == 300


def test_peers_that_are_not_there_are_left_out_with_a_line_that_says_how_to_get_them(tmp_path: Path, capsys):
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\necho '{}'\n")
    bare.chmod(0o755)
    store = tmp_path / "measured.json"
    assert main(["--only", "nothing", "--peers", str(bare), "--store", str(store)]) == 0
    said = capsys.readouterr().out
    assert "scikit-learn-intelex" in said
    assert "make bench" in said


def test_peers_are_not_run_beyond_memory_or_time():
    case = Case(100_000, 64, "tight")
    before = {Case(20_000, 64, "tight").key: {"peers": {"scikit-learn": {"median": 8.0}}}}
    assert expected_memory("scikit-learn", case, near=0.5) > 50 * 2**30
    assert expected_seconds("scikit-learn", case, before) == pytest.approx(200)
    assert expected_seconds("FAISS flat", case, before) is None
    ours = {
        Case(20_000, 64, regime).key: {"peers": {"ours": {"median": 1.0}}} for regime in ("tight", "noise")
    }
    assert expected_seconds("ours", Case(100_000, 64, "noise"), ours) == pytest.approx(25)
    assert expected_seconds("ours", case, ours) < 10


def test_a_run_that_lacks_memory_or_time_says_so(tmp_path: Path):
    np.save(tmp_path / "rows.npy", np.ones((10_000, 2), np.float32))
    workers = {
        "memory": Worker("sklearn_precomputed", tmp_path, Setting(0.5), Limits(60, 2**29)),
        "time": Worker("sklearn_euclid", tmp_path, Setting(0.5), Limits(0, 2**34)),
    }
    for name, worker in workers.items():
        worker.wait()
        assert name in worker.run().result.failure
        worker.close()


def test_the_readme_tables_are_what_the_program_writes():
    measured = json.loads(STORE.read_text())
    page = README.read_text()
    written = tables.sections(measured)
    assert len(written) > 1
    for marker, text in written.items():
        assert f"<!-- begin {marker} -->\n{text}\n<!-- end {marker} -->" in page


def test_a_row_that_a_peer_wins_says_so_and_bars_are_judged():
    def entry(seconds: float) -> dict[str, float]:
        return {
            "median": seconds,
            "low": seconds,
            "high": seconds,
            "ari": 1.0,
            "differ": 0,
            "peak": 3 * 2**30,
        }

    entries = {"ours": entry(2.0), "scikit-learn": entry(100.0), "scikit-learn-intelex": entry(1.0)}
    row = {"n": 20_000, "d": 64, "regime": "tight", "near": 0.5, "noise": 0.01, "peers": entries}
    measured = {"rows": {"20000x64-tight": {**row, "machine": "here"}}}
    found = tables.sections(measured)
    assert "**scikit-learn-intelex 2x**" in found["dbscan"]
    judged = {str(bar["bar"]): bar["met"] for bar in bars(measured)}
    assert judged["20000x64-tight against scikit-learn"] == "**no**"
    assert judged["100000x64-tight against two-pass product"] == "-"


@pytest.mark.parametrize("regime", ["tight", "raw", "noise", "noise30"])
def test_rows_are_what_their_regime_says(regime: Regime):
    X, setting = Case(3_000, 16, regime).build()
    assert X.dtype == np.float32
    labels = DBSCAN(eps=setting.eps, min_samples=setting.min_samples).fit_predict(X)
    noise = {"tight": (0.0, 0.1), "raw": (0.0, 0.3), "noise": (1.0, 1.0), "noise30": (0.25, 0.35)}[regime]
    assert noise[0] <= np.mean(labels < 0) <= noise[1]
    assert np.allclose(np.linalg.norm(X, axis=1), 1, atol=1e-5) == (regime != "raw")


@pytest.mark.slow
def test_the_gpu_check_runs_where_there_is_only_torch_and_scikit_learn():
    program = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("ray", "faiss", "pyarrow", "pydantic", "mlflow"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from tests.benchmarks.gpu.__main__ import main
sys.exit(main(["--device", "cpu", "--rows", "256"]))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "softmax regression" in ran.stdout
    assert ran.stdout.count("equal") == 4  # DBSCAN at three sizes, and a sum over slots
    assert "FAISS graphs: not checked, as faiss is not installed" in ran.stdout
    assert "DIFFER" not in ran.stdout


@pytest.mark.slow
def test_the_checks_for_a_gpu_run_on_the_cpu():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "gpu",
        "-p",
        "no:cacheprovider",
        "tests/gpu/test_fits.py",
    ]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ROWSIEVE_TEST_DEVICE": "cpu"},
    )
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cpu"])
def test_networks_are_timed_on_the_device_that_was_asked_for(device: str, monkeypatch: pytest.MonkeyPatch):
    """`--device cuda:0` timed the CPU, as if it were a GPU."""
    places: list[str] = []
    prepared: list[float] = []

    def make(params: object, place: object) -> SimpleNamespace:
        places.append(str(place))
        return SimpleNamespace(prepare_all=lambda values: values)

    def asked(gpus: float) -> str:
        prepared.append(gpus)
        return "cpu"

    ones = np.ones((1, 4)) / 2
    monkeypatch.setattr(networks, "device_for", asked)
    monkeypatch.setattr(networks, "embed_rows", lambda network, values, batch_size: (ones, None))
    params = EmbedParams(model="minilm", column="text", precision="float32", batch_size=1)
    assert networks._network("texts", make, params, ["a"], device)
    assert places == ["cpu", device]
    assert prepared == [0, float(device != "cpu")]


def test_a_projection_names_what_few_workers_do_first() -> None:
    def costs(name: str, seconds: tuple[float, float]) -> list[Cost]:
        return [Cost(name, rows, cpu, 0, 0) for rows, cpu in zip((10**5, 10**6), seconds, strict=True)]

    found = projection([*costs("gradients", (1.0, 100.0)), *costs("probe", (30.0, 36.0))])
    assert [row["operator"] for row in found] == ["gradients", "probe"]
    assert found[0]["growth"] == "2.00"
    assert found[0]["core hours"] == f"{100 * 1000**2 / 3600:,.0f}"
    assert found[1]["growth"] == "1.00"  # never less than linear
    assert found[1]["hours"] == "1.25"  # on the eight workers that it may have
    assert verdict(found).startswith("First bottleneck: gradients, ")
