"""Builds the Dockerfiles as they stand and runs what they make, without Docker: ``make image``.

    python -m tests.release.build_images [--torch-wheel FILE] [--place FOLDER]

It needs root and two packages of Debian, buildah and debootstrap, and takes about ten minutes and 20 GB. The
base image, ``python:3.11-slim-bookworm``, is not pulled: Debian bookworm's own Python 3.11 stands for it, so
the Dockerfiles are built without the digests of their bases.
``--torch-wheel`` stands for the index of torch's builds without CUDA where that cannot be reached. Steps run
in a chroot with this machine's network.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from tests.release.images import bare

ROOT = Path(__file__).resolve().parents[2]
BASE = "docker.io/library/python:3.11-slim-bookworm"
MIRROR = "http://deb.debian.org/debian"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
DOCKERFILES = {"rowsieve": "deploy/Dockerfile", "rowsieve-mlflow": "deploy/mlflow/Dockerfile"}
CHECKS = {
    "rowsieve": (
        'test "$(id -u):$(id -g)" = 1000:1000 && test "$HOME" = /home/rowsieve',
        "rowsieve --help",
        "pip check",
        "python -m connectors.digits data --rows 300",
        "rowsieve run /opt/demo.yaml --set source.path=data/*.parquet --set run.executor=local --json",
        "sh -lc 'ray --version && rowsieve versions demo/out'",  # KubeRay starts Ray in a login shell
        "wget --version && rsync --version",
    ),
    "rowsieve-mlflow": (
        'test "$(id -u):$(id -g)" = 1000:1000',
        "pip check",
        "mlflow server --help",
        'python -c "import boto3, psycopg"',
    ),
}
"""Commands that succeed in each image, run by its user in its working directory, one after the other."""


class Builder:
    """Calls buildah with storage of its own below a folder."""

    def __init__(self, place: Path) -> None:
        self._place = place
        folders = ("--root", str(place / "images"), "--runroot", str(place / "run"))
        self._command = ("buildah", *folders, "--storage-driver", "vfs")

    def call(self, *words: str) -> str:
        """Return the standard output of a buildah command. Raises CalledProcessError."""
        command = [*self._command, *words]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def make_base(self) -> None:
        """Make the base image: Debian with its Python, into which pip may install."""
        if BASE.removeprefix("docker.io/library/") in self.call("images", "--format", "{{.Name}}:{{.Tag}}"):
            return
        folder = self._place / "base"
        shutil.rmtree(folder, ignore_errors=True)
        packages = "--include=python3,python3-pip,ca-certificates"
        subprocess.run(
            ["debootstrap", "--variant=minbase", packages, "bookworm", folder, MIRROR],
            check=True,
            stdout=sys.stderr,
        )
        (folder / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink(missing_ok=True)
        (folder / "usr/bin/python").symlink_to("python3")
        shutil.copy(AUTHORITIES, folder / str(AUTHORITIES).lstrip("/"))
        container = self.call("from", "scratch")
        self.call("add", container, str(folder), "/")
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        self.call("config", "--env", path, container)
        self.call("commit", "--rm", container, BASE)

    def build(self, image: str, torch_wheel: Path | None) -> None:
        """Carry out every step of a Dockerfile."""
        file = DOCKERFILES[image]
        dockerfile = self._place / f"Dockerfile.{image}"
        dockerfile.write_text(bare((ROOT / file).read_text()))
        words = ["bud", "--isolation", "chroot", "--network", "host", "--pull-never", "--layers=false"]
        words += ["--file", str(dockerfile), "--ignorefile", f"{file}.dockerignore", "--tag", image]
        if torch_wheel is not None and image == "rowsieve":
            words += ["--volume", f"{self._index_of(torch_wheel)}:/torch-index:ro"]
            words += ["--build-arg", "TORCH_INDEX=file:///torch-index"]
        subprocess.run([*self._command, *words, str(ROOT)], check=True, stdout=sys.stderr)

    def check(self, image: str) -> list[str]:
        """Run the commands of an image in one container; return those that fail."""
        container = self.call("from", "--pull-never", f"localhost/{image}")
        self.call("copy", container, str(ROOT / "deploy/recipes/demo.yaml"), "/opt/demo.yaml")
        failed = []
        for command in CHECKS[image]:
            words = ["run", "--isolation", "chroot", container, "--", "sh", "-c", command]
            done = subprocess.run([*self._command, *words], stdout=sys.stderr, check=False)
            print(f"{image}: {verdict(done.returncode)}: {command}", flush=True)
            failed += [command] if done.returncode else []
        if image == "rowsieve":
            failed += self._check_on_hosts(container)
        self.call("rm", container)
        return failed

    def _check_on_hosts(self, container: str) -> list[str]:
        """Run the image on hosts of their own, with a root that is read-only; return what failed."""
        tests = "tests/hosts/test_image.py"
        environment = os.environ | {"ROWSIEVE_IMAGE_ROOT": self.call("mount", container)}
        words = [sys.executable, "-m", "pytest", "-m", "hosts", tests]
        done = subprocess.run(words, cwd=ROOT, env=environment, stdout=sys.stderr, check=False)
        self.call("umount", container)
        print(f"rowsieve: {verdict(done.returncode)}: {tests}", flush=True)
        return [tests] if done.returncode else []

    def _index_of(self, wheel: Path) -> Path:
        """Return a folder that pip takes as an index, with one wheel of torch."""
        folder = self._place / "torch-index"
        (folder / "torch").mkdir(parents=True, exist_ok=True)
        shutil.copy(wheel, folder / "torch" / wheel.name)
        (folder / "torch" / "index.html").write_text(f'<a href="{quote(wheel.name)}">{wheel.name}</a>')
        return folder


def verdict(code: int) -> str:
    """Return a word for an exit code."""
    return "FAILED" if code else "ok"


def missing() -> str:
    """Return what this machine lacks; empty if it lacks nothing."""
    tools = [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]
    if tools:
        return f"{' and '.join(tools)} not found: apt-get install --no-install-recommends buildah debootstrap"
    return "" if os.geteuid() == 0 else "this needs root, for chroot"


def main() -> int:
    """Build and check both images; return 1 if a check fails, and 2 where nothing can be built."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--torch-wheel", type=Path, help="wheel of torch to install, in place of the index")
    parser.add_argument("--place", type=Path, default=ROOT / "build" / "image", help="folder for the images")
    parser.add_argument("images", nargs="*", default=[*DOCKERFILES])
    given = parser.parse_args()
    if lacking := missing():
        print(f"No image is built: {lacking}.")
        return 2
    given.place.mkdir(parents=True, exist_ok=True)
    builder = Builder(given.place.resolve())
    builder.make_base()
    failed = []
    for image in given.images:
        builder.build(image, given.torch_wheel)
        failed += builder.check(image)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
