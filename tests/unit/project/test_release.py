"""The tools of a release: hashes that pip enforces, digests, licences, and an honest audit."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.release import build_images, images, ready
from tests.release.advisories import read_advisories
from tests.release.audit import audit, audit_offline
from tests.release.hashes import CONSTRAINTS, IMAGES, OTHERWISE, closure, hashed, pins
from tests.release.licences import LICENCES

DIGEST = "sha256:" + "ab" * 32


def wheel(folder: Path) -> Path:
    """The smallest wheel that pip takes."""
    path = folder / "tiny_thing-1.0-py3-none-any.whl"
    meta = "tiny_thing-1.0.dist-info"
    files = {
        "tiny_thing.py": "",
        f"{meta}/METADATA": "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n",
        f"{meta}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
            sha = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
            lines.append(f"{name},sha256={sha},{len(text)}")
        archive.writestr(f"{meta}/RECORD", "\n".join([*lines, f"{meta}/RECORD,,"]) + "\n")
    return path


def test_pip_refuses_a_file_with_another_hash(tmp_path: Path) -> None:
    """As the images install: --no-deps --require-hashes."""
    good = hashlib.sha256(wheel(tmp_path).read_bytes()).hexdigest()
    options = ["--dry-run", "--no-index", "--find-links", str(tmp_path), "--ignore-installed"]
    command = [sys.executable, "-m", "pip", "install", *options, "--no-deps", "--require-hashes", "-r"]
    for digest, code in ((good, 0), ("0" * 64, 1)):
        (tmp_path / "hashes.txt").write_text(f"tiny-thing==1.0 --hash=sha256:{digest}\n")
        done = subprocess.run(
            [*command, str(tmp_path / "hashes.txt")], capture_output=True, text=True, check=False
        )
        if "No module named pip" in done.stderr:
            pytest.skip("this environment has no pip")
        assert done.returncode == code, done.stderr


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.parent.name)
def test_what_an_image_installs_has_its_hash(path: Path) -> None:
    """If this fails, run `make hashes`."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    found = dict(
        re.fullmatch(r"([a-z0-9-]+)==(\S+) --hash=sha256:[0-9a-f]{64}", line).groups() for line in lines
    )  # type: ignore[union-attr]
    wanted = {name for name in closure(IMAGES[path]) if not OTHERWISE.fullmatch(name)}
    assert found == {name: pins()[name] for name in wanted}


@pytest.mark.parametrize("path", ["deploy/Dockerfile", "deploy/mlflow/Dockerfile"])
def test_an_image_checks_hashes(path: str) -> None:
    """It installs files of pins with hashes alone, before any package that finds its dependencies itself."""
    text = (CONSTRAINTS.parents[1] / path).read_text().replace("\\\n", " ")
    commands = re.findall(r"pip install [^;&\n]*", text)
    pinned = [command for command in commands if " -r " in command]
    assert pinned
    assert all("--require-hashes" in command and "--no-deps" in command for command in pinned)
    open_ones = [command for command in commands if "--no-deps" not in command]
    assert all(text.index(pinned[0]) < text.index(command) for command in open_ones)


def test_a_report_of_other_versions_is_refused() -> None:
    entry = {"metadata": {"name": "numpy", "version": "0.1"}, "download_info": {}}
    with pytest.raises(ValueError, match="numpy: pip resolves 0"):
        hashed({"install": [entry]}, ["numpy"])
    with pytest.raises(ValueError, match="no file for"):
        hashed({"install": []}, ["numpy"])


def test_every_pin_has_its_licence() -> None:
    """If this fails, run `make licences`."""
    rows = re.findall(r"^\| ([a-z0-9-]+) \| (\d\S*) \| (.+) \|$", LICENCES.read_text(), re.MULTILINE)
    assert {name: version for name, version, _ in rows} == pins()
    assert sum(licence != "-" for _, _, licence in rows) > 150


def test_digests_are_written_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "docker").write_text(f'#!/bin/sh\n[ "$3" = inspect ] && echo {DIGEST}\n')
    (bin_ / "docker").chmod(0o755)
    dockerfile, manifest = tmp_path / "Dockerfile", tmp_path / "k.yaml"
    dockerfile.write_text("# FROM none:1\nFROM python:3.11-slim AS build\nFROM python:3.11-slim\nRUN x\n")
    manifest.write_text("spec:\n  - image: postgres:17.6\n    image: rowsieve:0.1\n")
    files = [str(dockerfile), str(manifest)]
    assert images.main(["--check", *files]) == 1
    assert "2 images without a digest" in capsys.readouterr().out
    monkeypatch.setenv("PATH", "/nowhere")
    assert images.main(files) == 1
    monkeypatch.setenv("PATH", f"{bin_}:/usr/bin:/bin")
    assert images.main(files) == 0
    assert dockerfile.read_text().count(f"FROM python:3.11-slim@{DIGEST}") == 2
    assert f"image: postgres:17.6@{DIGEST}\n    image: rowsieve:0.1\n" in manifest.read_text()
    assert images.main(["--check", *files]) == 0
    assert images.main(files) == 0  # again: the digest is replaced, not repeated
    assert dockerfile.read_text().count("@") == 2


def test_no_answer_of_docker_is_one_line_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    docker, dockerfile = tmp_path / "docker", tmp_path / "Dockerfile"
    docker.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\necho more >&2\nexit 125\n")
    docker.chmod(0o755)
    dockerfile.write_text("FROM python:3.11-slim\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert images.main([str(dockerfile)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("python:3.11-slim: docker knows no digest, it says: Cannot connect to the Docker")
    assert said.count("\n") == 1
    assert dockerfile.read_text() == "FROM python:3.11-slim\n"


def test_a_release_says_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dockerfile, tool, build = tmp_path / "Dockerfile", tmp_path / "pip-audit", tmp_path / "build"
    dockerfile.write_text("FROM python:3.11-slim\n")
    tool.write_text(f"#!/bin/sh\necho '{answer_of(PIN | {'skip_reason': 'not found'})}'\n")
    tool.chmod(0o755)
    left = ready.missing(build, [dockerfile], lambda: audit(str(tool), CONSTRAINTS))
    commands = ("make release", "make sbom", "make licences", "make digests", "make release")
    assert len(left) == 5
    for text, command in zip(left, commands, strict=True):
        assert command in text
    assert "Dockerfile: python:3.11-slim" in left[3]
    (build / "dist").mkdir(parents=True)
    for name in ("dist/rowsieve-0.1.0-py3-none-any.whl", "rowsieve.cdx.json", "LICENCES.md"):
        (build / name).touch()
    dockerfile.write_text(f"FROM python:3.11-slim@{DIGEST}\n")
    tool.write_text(f"#!/bin/sh\necho '{answer_of(PIN | {'vulns': []})}'\n")
    assert ready.missing(build, [dockerfile], lambda: audit(str(tool), CONSTRAINTS)) == []
    assert "1 of 1 pins looked up, 0 advisories found" in capsys.readouterr().out


def test_a_digest_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\necho 'latest; rm -rf'\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(ValueError, match="which is no digest"):
        images.digest_of("python:3.11")


def answer_of(*pins: dict[str, Any]) -> str:
    """Return what pip-audit prints for these pins with --format json."""
    return json.dumps({"dependencies": [*pins], "fixes": []})


PIN = {"name": "tiny", "version": "1.0"}
FOUND = {"id": "PYSEC-1", "fix_versions": ["1.1"]}


@pytest.mark.parametrize(
    ("answer", "code", "expected", "words"),
    [
        (answer_of(PIN | {"vulns": []}), 0, 0, "1 of 1 pins looked up, 0 advisories"),
        (answer_of(PIN | {"vulns": [FOUND]}), 1, 1, "tiny 1.0: PYSEC-1 (fixed in 1.1)"),
        # As it answers without PyPI's API, and with exit code 0 and "No known vulnerabilities found".
        (answer_of(PIN | {"skip_reason": "not found"}), 0, 1, "NOT CHECKED: tiny: not found"),
        (answer_of(PIN | {"skip_reason": "not found"}), 0, 1, "0 of 1 pins looked up"),
        (answer_of(), 0, 1, "0 of 0 pins"),
        ("ServiceError: Max retries exceeded", 1, 1, "NOT CHECKED"),
        ("something else", 2, 2, "something else"),
    ],
)
def test_the_audit_says_what_it_checked(
    answer: str,
    code: int,
    expected: int,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tool = tmp_path / "pip-audit"
    tool.write_text(f"#!/bin/sh\necho '{answer}'\nexit {code}\n")
    tool.chmod(0o755)
    assert audit(str(tool), CONSTRAINTS, no_page) == expected
    assert words in capsys.readouterr().out


FILES: dict[str, list[dict[str, Any]]] = {
    "1.0": [{"yanked": False}],
    "1.1": [{"yanked": False}],
    "not a version": [],
}
TAKEN_BACK = {"1.0": [{"yanked": True, "yanked_reason": "stolen"}], "1.1": [{"yanked": False}]}


def page_of(newest: str, *advisories: dict[str, Any], releases: Any = FILES) -> dict[str, Any]:
    """What PyPI answers for https://pypi.org/pypi/tiny/json."""
    return {"info": {"version": newest}, "releases": releases, "vulnerabilities": [*advisories]}


@pytest.mark.parametrize(
    ("content", "expected", "words"),
    [
        (page_of("1.0"), 0, "1 of 1 pins looked up, 0 advisories"),
        (page_of("1.0.0"), 0, "1 of 1 pins looked up, 0 advisories"),
        (page_of("1.0", {"id": "PYSEC-1", "fixed_in": ["1.1"]}), 1, "tiny 1.0: PYSEC-1 (fixed in 1.1)"),
        (page_of("1.0", {"id": "PYSEC-1", "withdrawn": "2026-11-01T00:00:00Z"}), 0, "0 advisories"),
        (page_of("1.1", {"id": "PYSEC-1", "fixed_in": []}), 1, "0 of 1 pins looked up, 0 advisories"),
        (page_of("1.1"), 1, "NOT CHECKED: tiny: the page of a package names advisories for its newest"),
        (page_of("1.1", releases=TAKEN_BACK), 1, "tiny 1.0: yanked by its maintainers (stolen)"),
        (page_of("1.1", releases={"1.1": [{}]}), 1, "tiny 1.0: no longer on PyPI"),
        ({"info": {}}, 1, "NOT CHECKED: tiny: not found"),
        ([], 1, "NOT CHECKED: tiny: not found"),
    ],
)
def test_a_pin_that_pip_audit_skips_is_looked_up_on_its_package_s_page(
    content: Any, expected: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool, wanted = tmp_path / "pip-audit", tmp_path / "pins.txt"
    tool.write_text(f"#!/bin/sh\necho '{answer_of({'name': 'tiny', 'skip_reason': 'not found'})}'\n")
    tool.chmod(0o755)
    wanted.write_text("Tiny==1.0\n")
    assert audit(str(tool), wanted, lambda name: content) == expected
    assert words in capsys.readouterr().out


def no_page(name: str) -> Any:
    raise OSError("no network")


def test_an_audit_without_its_tool_checks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("/nowhere/pip-audit", CONSTRAINTS) == 1
    assert "NOT CHECKED" in capsys.readouterr().out


NOW = datetime(2026, 11, 24, tzinfo=UTC)
RANGE = [
    {
        "type": "ECOSYSTEM",
        "events": [{"fixed": "1.5"}, {"introduced": "1.2"}, {"introduced": "0"}, {"fixed": "1.0"}],
    }
]


def osv(affected: dict[str, Any], modified: str = "2026-11-01T00:00:00Z", **more: Any) -> dict[str, Any]:
    """A record of OSV for the package "Tiny.Thing"."""
    package = {"ecosystem": "PyPI", "name": "Tiny.Thing"}
    return {"id": "PYSEC-1", "modified": modified, "affected": [{"package": package} | affected]} | more


@pytest.mark.parametrize(
    ("version", "content", "affected"),
    [
        ("0.9", osv({"ranges": RANGE}), True),
        ("1.0", osv({"ranges": RANGE}), False),
        ("1.2", osv({"ranges": RANGE}), True),
        ("1.5", osv({"ranges": RANGE}), False),
        ("1.5rc1", osv({"ranges": RANGE}), True),
        ("1.5", osv({"versions": ["1.5"]}), True),
        (
            "1.5",
            osv({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}], "versions": ["1.4"]}),
            False,
        ),
        ("1.5", osv({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]}), True),
        (
            "1.5",
            osv(
                {"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"last_affected": "1.5"}]}]}
            ),
            True,
        ),
        ("1.5", osv({"versions": ["1.5"], "package": {"ecosystem": "npm", "name": "tiny-thing"}}), False),
        ("1.5", osv({"versions": ["1.5"]}, withdrawn="2026-11-02T00:00:00Z"), False),
        (
            "1.5",
            {"tiny_thing": [{"id": "A", "v": "<1.0"}, {"id": "B", "v": ">=1.4,<2", "fixed_in": "2"}]},
            True,
        ),
        ("1.5", {"tiny-thing": [{"id": "A", "specs": ["<1.0", ">=1.6"]}]}, False),
        ("1.5", {"tiny-thing": [{"id": "A", "v": "<r5238"}]}, True),  # not readable: look yourself
    ],
)
def test_a_planted_advisory_is_found(
    version: str, content: dict[str, Any], affected: bool, tmp_path: Path
) -> None:
    """Beside one for another package, in a folder and in a zip."""
    other = osv({"versions": ["3"], "package": {"ecosystem": "PyPI", "name": "other"}})
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "other.json").write_text(json.dumps(other))
    (tmp_path / "one.json").write_text(json.dumps(content))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("one.json", json.dumps(content))
        archive.writestr("other.json", json.dumps(other))
    for place in (tmp_path, tmp_path / "all.zip"):
        found = read_advisories(place).found({"tiny-thing": version, "other": "4"})
        assert [name for name, _ in found] == ["tiny-thing"] * affected


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (osv({"ranges": RANGE}), 1, "tiny-thing 1.2: PYSEC-1 (fixed in 1.5, 1.0)"),
        (
            osv({"versions": ["1.1"]}),
            0,
            "2 pins looked up in advisories.json, 1 advisories for 1 packages, of which 1 are",
        ),
        (
            osv({"versions": ["1.1"]}, modified="2026-10-01T00:00:00Z"),
            1,
            "NOT CHECKED for advisories after 01 October 2026",
        ),
        ({"tiny-thing": [{"id": "A", "v": "<1"}]}, 1, "these files state no date"),
        (
            {"tiny-thing": [{"id": "A", "v": "<1"}], "$meta": {"timestamp": NOW.timestamp()}},
            0,
            "0 advisories found",
        ),
        ({"tiny-thing": "all"}, 1, "advisories.json: neither a record of OSV nor a table"),
        ({}, 1, "holds no advisory"),
        ([1], 1, "neither a record"),
    ],
)
def test_an_audit_of_files_says_how_old_they_are(
    content: Any, code: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    advisories, wanted = tmp_path / "advisories.json", tmp_path / "pins.txt"
    advisories.write_text(json.dumps(content))
    wanted.write_text("# pins\ntiny_thing==1.2\nelse==1 ; python_version > '3'\n")
    assert audit_offline(advisories, wanted, NOW) == code
    assert words in capsys.readouterr().out


def test_an_audit_of_no_files_checks_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (tmp_path, tmp_path / "none.json"):
        assert audit_offline(place, CONSTRAINTS, NOW) == 1
        assert capsys.readouterr().out.startswith("NOT CHECKED: ")


def images_in(path: Path) -> list[str]:
    """Return what a file under deploy/ names as an image, or builds on."""
    text = path.read_text()
    if path.name == "Dockerfile":
        stages = re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE)
        named = re.findall(r"^FROM (\S+)|--from=([^\s,]+)|from=([^\s,]+)", text, re.MULTILINE)
        return [name for names in named for name in names if name and name not in stages]
    if path.suffix == ".md":
        return re.findall(r"^\s*(?:- )?image: *([^\s{#]+)", text, re.MULTILINE)
    waiting, found = [*yaml.safe_load_all(text)], []
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            found += [one for key, one in value.items() if key == "image" and isinstance(one, str)]
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return found


def test_every_image_is_pinned_or_the_users_own() -> None:
    """In all of deploy/, whether `make digests` writes there or not; if it should, `FILES` names the file."""
    found = {
        str(path.relative_to(images.ROOT)): images_in(path)
        for pattern in ("Dockerfile", "*.yaml", "*.md")
        for path in (images.ROOT / "deploy").rglob(pattern)
    }
    strangers = {
        (name, image)
        for name, named in found.items()
        for image in named
        if not image.split(":")[0].split("/")[-1].startswith(images.OURS)
    }
    assert {image.split("@")[0] for _, image in strangers} == {
        "python:3.11-slim-bookworm", "postgres:17.6-bookworm", "chrislusf/seaweedfs:3.97",
    }  # fmt: skip
    assert [image for _, image in strangers if not re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", image)] == []
    assert {name for name, _ in strangers} == set(images.FILES)
    assert len({image for _, image in strangers}) == 3  # one tag, one digest
    assert sum(map(len, found.values())) > 15


def test_an_image_without_a_digest_is_seen(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        "FROM a:1 AS b\nCOPY --from=c:2 /x /x\nRUN --mount=type=bind,from=b,source=/x x\n"
    )
    (tmp_path / "x.yaml").write_text("spec: {containers: [{image: 'd:3'}]}\n---\nimage: e:4\n")
    assert images_in(tmp_path / "Dockerfile") == ["a:1", "c:2"]
    assert sorted(images_in(tmp_path / "x.yaml")) == ["d:3", "e:4"]


def test_every_image_is_built_on_the_base_that_is_made() -> None:
    """`make image` builds them where it can; here only what it would build is compared."""
    files = {
        str(path.relative_to(build_images.ROOT)) for path in build_images.ROOT.glob("deploy/**/Dockerfile")
    }
    assert {*build_images.DOCKERFILES.values()} == files
    for file in files:
        text = images.bare((build_images.ROOT / file).read_text())
        bases = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE))
        assert bases == {build_images.BASE.removeprefix("docker.io/library/")}
    assert build_images.CHECKS.keys() == build_images.DOCKERFILES.keys()


def test_what_no_image_can_be_built_without_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["build_images", "--place", str(tmp_path / "place")])
    assert build_images.main() == 2
    assert "apt-get install --no-install-recommends buildah debootstrap" in capsys.readouterr().out
    assert not (tmp_path / "place").exists()
