"""Pins the base images of the Dockerfiles and manifests by digest: ``make digests``.

    python -m tests.release.images [--check] [FILE ...]

A tag can be moved, a digest cannot. Docker is asked for the digest of each tag (``docker buildx imagetools
inspect``), which needs a network; it is written behind the tag (``python:3.11@sha256:...``), where Docker
and Kubernetes take it. ``--check`` asks nobody and fails for an image without a digest: a release runs it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "deploy/Dockerfile",
    "deploy/mlflow/Dockerfile",
    "deploy/mlflow/compose.yaml",
    "deploy/mlflow/kubernetes.yaml",
)
IMAGE = re.compile(r"^(\s*(?:FROM|-? ?image:)\s+)([\w./-]+:[\w.-]+)(@sha256:[0-9a-f]{64})?", re.MULTILINE)
OURS = "rowsieve"
"""Images that are built here have no digest before they are pushed."""
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def images(text: str) -> dict[str, str]:
    """Return the digest of each base image of a file by its name, empty where it has none."""
    found = {name: (digest or "").removeprefix("@") for _, name, digest in IMAGE.findall(text)}
    return {name: digest for name, digest in found.items() if not name.startswith(OURS)}


def pinned(text: str, digests: dict[str, str]) -> str:
    """Return the text with the digests written behind the names."""

    def write(found: re.Match[str]) -> str:
        digest = digests.get(found[2])
        return found[1] + found[2] + (f"@{digest}" if digest else found[3] or "")

    return IMAGE.sub(write, text)


def bare(text: str) -> str:
    """Return the text with every image named by its tag alone."""
    return IMAGE.sub(r"\1\2", text)


def digest_of(image: str) -> str:
    """Ask Docker for the digest of a tag. Raises ValueError where it has no answer, or one that is none."""
    command = ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{.Manifest.Digest}}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing"])[0][:200]
        raise ValueError(
            f"{image}: docker knows no digest, it says: {said}. This needs docker with buildx and a "
            f"network that reaches the image's registry; run `make digests` there. No file was changed."
        )
    text = done.stdout.strip()
    if not DIGEST.fullmatch(text):
        raise ValueError(f"{image}: docker answers {text[:80]!r}, which is no digest")
    return text


def without_digest(files: Iterable[Path]) -> list[str]:
    """Return ``FILE: IMAGE`` for each base image that is named by its tag alone."""
    return [
        f"{path.name}: {name}"
        for path in files
        for name, found in images(path.read_text()).items()
        if not found
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="fail for an image without a digest; ask nobody")
    parser.add_argument("files", nargs="*", type=Path, default=[ROOT / name for name in FILES])
    given = parser.parse_args(arguments)
    if given.check:
        bare = without_digest(given.files)
        print(
            "\n".join([*bare, f"{len(bare)} images without a digest: make digests"]) if bare else "all pinned"
        )
        return bool(bare)
    if shutil.which("docker") is None:
        print("docker is not installed: digests can only be had from a registry. Run this where docker is.")
        return 1
    names = sorted({name for path in given.files for name in images(path.read_text())})
    try:
        digests = {name: digest_of(name) for name in names}
    except ValueError as error:
        print(error)
        return 1
    for path in given.files:
        path.write_text(pinned(path.read_text(), digests))
    print("\n".join(f"{name}@{digest}" for name, digest in digests.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
