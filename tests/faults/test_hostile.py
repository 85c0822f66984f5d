"""Input made to harm: recipes, manifests, factories, links. Refused in one paragraph, never with a trace."""

import json
import re
import sys
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.errors import InputError
from engine.core.redaction import redact, redact_all
from engine.plan.planner import make_plan
from engine.recipe.incremental import TrainSection
from engine.recipe.recipe import Recipe
from engine.recipe.yaml_text import parse_yaml, read_yaml
from engine.runs.runner import run
from engine.storage.manifest import parse_manifest, read_manifest
from engine.storage.withdrawals import current_version
from engine.training.data.version import open_version
from operators.base import OperatorError
from operators.factories import VARIABLE, check_allowed
from tests.data import recipe_for, small_recipe, spurious_table, write_shards
from tests.faults.fuzzing import HOW_MANY, judged, mutated, often

LAUGHS = "a0: &a0 [lol, lol]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 64))


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['touch owned']",
        "name: !!python/name:os.system",
        LAUGHS,
        "a: &a [*a]",
        "[" * 5000,
        "a: " + "9" * 5000,
        "when: 2020-13-45",
        "a: !!binary '@'",
        "? [a]: b",
        "\x00",
        "a: *nowhere",
        "a: !!timestamp x",
        "!!set {a, b}",
    ],
)
def test_yaml_that_makes_objects_or_trouble(text: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert not Path("owned").exists()


def test_a_recipe_of_megabytes(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("# " + "x" * 2**21)
    with pytest.raises(InputError, match="1 MiB"):
        read_yaml(tmp_path / "r.yaml")


@HOW_MANY
def test_any_text_as_a_recipe(examples: int) -> None:
    @often(examples)
    @given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
    def check(text: str) -> None:
        judged(lambda: Recipe.parse(parse_yaml(text, "recipe")), "recipe")

    check()


@HOW_MANY
def test_changed_recipes(examples: int) -> None:
    """A good recipe with something changed, written as YAML: planned, or refused."""
    good = json.loads(json.dumps(recipe_for(Path("nowhere"), Path("out"))))

    @often(examples)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        text = yaml.safe_dump(mutated(mutated(good, data), data))
        recipe = judged(lambda: Recipe.parse(parse_yaml(text, "recipe")), "recipe")
        if recipe is not None:
            judged(lambda: make_plan(recipe))

    check()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a published version."""
    return run(small_recipe(tmp_path_factory.mktemp("published"))).path


@HOW_MANY
def test_changed_manifests(published: Path, examples: int) -> None:
    good = json.loads((published / "manifest.json").read_text())

    @often(examples)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        text = json.dumps(mutated(mutated(good, data), data))
        found = judged(lambda: parse_manifest(text, "manifest.json"), "manifest.json")
        for part in found["parts"] if found else []:
            assert (published / part["path"]).resolve().parent == (published / "data").resolve()

    check()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 10**5, '{"version": "../../etc"}', "\ud800"])
def test_what_is_no_manifest(text: str) -> None:
    with pytest.raises(InputError, match="place"):
        parse_manifest(text, "place")


def test_paths_that_lead_out_of_the_store(published: Path, tmp_path: Path) -> None:
    text = (published / "manifest.json").read_text()
    for path in ("../../../etc/passwd", "/etc/passwd", "data/../../x.parquet", "data/part-00000.parquet/.."):
        with pytest.raises(InputError, match="path"):
            parse_manifest(text.replace("data/part-00001.parquet", path), "manifest")
    version = tmp_path / "versions" / "v1"
    (version / "data").mkdir(parents=True)
    (version / "manifest.json").write_text(text.replace(published.name, "v1"))
    secret = tmp_path / "secret.parquet"
    secret.touch()
    (version / "data" / "part-00001.parquet").symlink_to(secret)
    with pytest.raises(InputError, match=r"leads out of its version.*secret"):
        read_manifest(version)
    for name in ("../../elsewhere", "a/b", "", ".hidden", "v1\nv2"):
        (tmp_path / "CURRENT").write_text(name)
        with pytest.raises(InputError, match="names no version"):
            current_version(tmp_path)
        with pytest.raises(InputError):
            open_version(f"{tmp_path}@../versions/v1")


def test_factories_need_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    for allowed in ("", "evi", "evil.sub", "tests"):
        monkeypatch.setenv(VARIABLE, allowed)
        recipe = small_recipe(tmp_path)
        probe = {**recipe.operators["probe"], "model": "evil:net"}
        with pytest.raises(InputError, match=r"operators\.probe\.model 'evil:net'.*ROWSIEVE_FACTORIES="):
            make_plan(recipe.model_copy(update={"operators": {**recipe.operators, "probe": probe}}))
        train = TrainSection(params={"model": "evil:net"})
        with pytest.raises(InputError, match=r"train\.params\.model 'evil:net'.*ROWSIEVE_FACTORIES="):
            make_plan(recipe.model_copy(update={"train": train}))
        with pytest.raises(OperatorError):
            check_allowed("evil:net")
    assert "evil" not in sys.modules
    assert not (tmp_path / "owned").exists()
    monkeypatch.setenv(VARIABLE, "tests, evil")
    check_allowed("evil:net")
    check_allowed("evil.sub:net")


def test_a_line_that_is_no_yaml_is_not_repeated() -> None:
    """It may hold a password, of which no sign is left where the line is cut."""
    with pytest.raises(InputError, match=r"^r is not valid YAML: .*line 2, column \d+$") as caught:
        parse_yaml('name: x\nsource: {path: "s3://KEY:hunter2@b/x", label: y', "r")
    assert "hunter2" not in str(caught.value)


SECRETS = {
    "s3://AKIA:hunter2hunter2@bucket/key?region=eu": ("hunter2", "bucket/key?region=eu"),
    "https://me:hunter2@host/x": ("hunter2", "host/x"),
    "abfs://c@acct.dfs/x?sig=hunter2%3D&se=2026": ("hunter2", "se=2026"),
    "gs://b/o?access_token=hunter2": ("hunter2", "gs://b/o"),
    "postgresql://u:hunter2@db/mlflow failed": ("hunter2", "db/mlflow failed"),
}


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_are_taken_out(text: str) -> None:
    hidden, kept = SECRETS[text]
    for found in (redact(text), json.dumps(redact_all({"a": [text], text: 1}))):
        assert hidden not in found
        assert kept in found


def test_secrets_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "correct horse")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0123456789abcdef")
    monkeypatch.setenv("SHORT_TOKEN", "yes")
    text = "yes: no server takes 'correct horse', nor 0123456789abcdef"
    assert redact(text) == "yes: no server takes '***', nor ***"


def test_no_secret_in_anything_a_run_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source's URI has a password: it is in no file, and in nothing that is printed."""
    monkeypatch.setenv("STORE_SECRET", "hunter2hunter2")
    write_shards(tmp_path / "data", spurious_table())
    (tmp_path / "data").rename(tmp_path / "hunter2hunter2")
    recipe = recipe_for(tmp_path / "hunter2hunter2", tmp_path / "out")
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    for words in (["plan"], ["run"], ["status"], ["run", "--set", "source.label=nothing"]):
        output = CliRunner().invoke(app, [words[0], str(path), *words[1:]]).output
        assert "hunter2" not in "".join(output.split())
    kept = [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert [str(f) for f in kept if b"hunter2" in f.read_bytes() and f.name != "identities.json"] == []


@pytest.mark.parametrize("name", ["SHOP_KEY", "SHOP_PASSWORD", "SHOP_CREDENTIALS", "STRIPE_API_KEY"])
@pytest.mark.parametrize(
    "secret", ["S3cr&t<1>'\"Zz", "b\\ack\tslash", "pässwörd", "a=b&token=cdefg", "s://u:p@h/x"]
)
def test_secrets_are_found_as_they_are_quoted(
    name: str, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages escape what they show, JSON and Python quote it."""
    monkeypatch.setenv(name, secret)
    page = Environment(autoescape=True).from_string("<p>{{ x }}</p>").render(x=secret)
    assert redact(page) == "<p>***</p>"
    for text in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        assert redact(f"is {text} .") == "is *** ."
    assert secret not in redact(repr({"x": secret}))
    assert redact_all({"x": [secret]}) == {"x": ["***"]}
    for form in (quote(secret), quote(secret, safe=""), quote_plus(secret)):
        assert redact(f"is {form} .") == "is *** ."
        lower = re.sub("%..", lambda found: found.group().lower(), form)
        assert redact(f"is {lower} .") == "is *** ."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"s3.secret-access-key": "ge\\"heim123", "a": 1}', '{"s3.secret-access-key": ***, "a": 1}'),
        (r"{'password': 'a\\\'b c', 'x': 1}", "{'password': ***, 'x': 1}"),
        ("PGPASSWORD=geheim123 psql", "PGPASSWORD=*** psql"),
        ('"password": "no end', '"password": ***'),
    ],
)
def test_secrets_with_escaped_quotes_are_redacted_whole(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize("text", ['a_token="b"c d', "password='a')", '?sig="x"y&a', "x_token=\"y\n'z' u'@"])
def test_what_is_redacted_stays_as_it_is(text: str) -> None:
    """Texts are redacted where they are made, and again where they are shown."""
    once = redact(text)
    assert "***" in once
    assert redact(once) == once
