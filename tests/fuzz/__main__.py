"""Fuzz each target for minutes of CPU time, from the kept inputs; findings go to ``build/fuzz/NAME``.

    python -m tests.fuzz [--minutes 10] [--only recipe,sql] [--keep]

With ``--keep``, inputs that reach new code are merged into the corpus beside this file. A finding ends its
target; the others go on, and the exit code is 1. It is 2 where atheris is
missing. Repeat a finding with: python -m tests.fuzz.one NAME FILE.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.targets import SECONDS, TARGETS

CORPUS = Path(__file__).parent / "corpus"
WORK = Path("build/fuzz")
MEMORY_MB = 4096
LONGEST = 2**16
MAX_KEPT_INPUTS = 40
"""Inputs that the corpus keeps for a target, the smallest first."""


def fuzz(name: str, seconds: int) -> bool:
    """Run one target. Return whether nothing was found."""
    found = WORK / name
    (found / "corpus").mkdir(parents=True, exist_ok=True)
    options = [
        f"-cpu_seconds={seconds}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-timeout={int(40 * SECONDS)}",  # wall time; the target itself measures CPU time
        f"-max_len={LONGEST}",
        f"-artifact_prefix={found}/",
        "-print_final_stats=1",
    ]
    command = [
        sys.executable,
        "-m",
        "tests.fuzz.one",
        name,
        str(found / "corpus"),
        str(CORPUS / name),
        *options,
    ]
    with (found / "log").open("w") as log:
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    text = (found / "log").read_text(errors="replace")
    runs = re.search(r"number_of_executed_units:\s*(\d+)", text)
    covered = re.findall(r"cov: (\d+)", text)
    print(
        f"{name:9} {runs[1] if runs else '?':>9} inputs, {covered[-1] if covered else '?':>5} edges: "
        f"{outcome(code, text)}, see {found}/log",
        flush=True,
    )
    return code == 0


def outcome(code: int, log: str) -> str:
    """Return what a target's exit code and log say. One that read no input has found nothing."""
    if code == 0:
        return "no finding"
    if "libFuzzer: run interrupted" in log:
        return "INTERRUPTED, no finding so far"
    return "FOUND" if "INFO: Seed:" in log else "DID NOT START"


def keep(name: str) -> None:
    """Keep the smallest inputs that a merge leaves."""
    merged = WORK / name / "merged"
    merged.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.one", name, "-merge=1", f"-rss_limit_mb={MEMORY_MB}"]
    folders = [str(merged), str(CORPUS / name), str(WORK / name / "corpus")]
    done = subprocess.run([*command, *folders], capture_output=True, text=True, check=False)
    if not any(merged.iterdir()):
        print(f"{name:9} nothing was merged: {done.stderr.strip()[-300:]}", flush=True)
    known = {path.read_bytes() for path in (CORPUS / name).iterdir()}
    for path in sorted(merged.iterdir(), key=lambda file: file.stat().st_size)[:MAX_KEPT_INPUTS]:
        if len(known) < MAX_KEPT_INPUTS and path.read_bytes() not in known and path.stat().st_size < 4096:
            (CORPUS / name / path.name[:16]).write_bytes(path.read_bytes())
            known.add(path.read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10, help="CPU minutes for each target")
    parser.add_argument("--only", default="", help="targets, with commas between")
    parser.add_argument("--keep", action="store_true", help="merge new inputs into the corpus")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"--only: there is no target {unknown[0]!r}; there are: {', '.join(TARGETS)}")
    if find_spec("atheris") is None:
        parser.error("atheris is not installed, so nothing can be fuzzed. Run make fuzz, which installs it.")
    clean = [fuzz(name, int(60 * given.minutes)) for name in names]
    for name in names if given.keep else ():
        keep(name)
    sys.exit(not all(clean))


if __name__ == "__main__":
    main()
