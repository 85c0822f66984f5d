"""The tools of a release: hashes that pip enforces, digests, licences, and an honest audit."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.release import build_images, images, ready
from tests.release.audit import audit
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
    """Whatever it installs from a file of pins, and before anything that finds its dependencies itself."""
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
    left = ready.missing(build, [dockerfile], str(tool))
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
    assert ready.missing(build, [dockerfile], str(tool)) == []
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
    assert audit(str(tool), CONSTRAINTS) == expected
    assert words in capsys.readouterr().out


def test_an_audit_without_its_tool_checks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("/nowhere/pip-audit", CONSTRAINTS) == 1
    assert "NOT CHECKED" in capsys.readouterr().out


def test_every_image_is_built_on_the_base_that_is_made() -> None:
    """`make image` builds them where it can; here only what it would build is compared."""
    files = {
        str(path.relative_to(build_images.ROOT)) for path in build_images.ROOT.glob("deploy/**/Dockerfile")
    }
    assert {*build_images.DOCKERFILES.values()} == files
    for file in files:
        bases = set(re.findall(r"^FROM (\S+)", (build_images.ROOT / file).read_text(), re.MULTILINE))
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
