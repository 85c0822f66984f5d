"""Submission of a recipe to a Ray cluster as a job. Repeated submissions of the same run give one job."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.core.errors import InputError, RowsieveError
from engine.core.policy import VARIABLES, current_policy
from engine.core.redaction import redact
from engine.jobs.bootstrap import ENTRYPOINT, SCRIPT, SCRIPT_NAME
from engine.jobs.connection import clear_errors, connect
from engine.jobs.handle import JobHandle, JobInfo, list_jobs
from engine.jobs.key import Attempt, choose_attempt, given_key, planned_key
from engine.jobs.package import RECIPE, SOURCE, Contents, collect
from engine.jobs.paths import paths_for_cluster, replace_paths
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe


@dataclass(frozen=True)
class Submission:
    """A job, whether this call created it (``new``), and a description of the shipped files."""

    handle: JobHandle
    new: bool
    info: JobInfo
    output: str
    shipped: tuple[str, ...]


def submit(
    recipe: Recipe,
    address: str,
    *,
    key: str | None = None,
    code: str | Path = SOURCE,
    working_dir: Path | None = None,
    excludes: Sequence[str] = (),
    shared_files: bool = False,
    env: Mapping[str, str] | None = None,
    again: bool = False,
) -> Submission:
    """Run a recipe as a job of the cluster at ``address``, unless the cluster has that run already.

    The job's id is made of the recipe's name, the version that it will publish and the output's path; it is
    the same for the same run, so a second call returns the job of the first. See
    ``engine.jobs.key.choose_attempt`` for the attempts after a failed job.

    Parameters
    ----------
    recipe
        The recipe to run. Its ``run.address`` is left out: a job uses the cluster it is on.
    address
        Dashboard of the head node, such as ``http://head:8265``. The token comes from ``RAY_AUTH_TOKEN`` or
        ``RAY_AUTH_TOKEN_PATH``.
    key
        Name of a run whose source cannot be listed from here, such as a date. No plan is made then.
    code, working_dir, excludes
        The files to ship; see ``engine.jobs.package.collect``.
    shared_files
        The cluster sees this machine's files under the same paths: relative paths are made absolute.
    env
        Environment variables of the job. Everyone who may list the cluster's jobs can read them.
    again
        Repeat a run that has succeeded.

    Raises
    ------
    InputError
        The recipe cannot run on the cluster, or a token is missing or wrong.
    InfeasibleError
        No cluster answers at the address.

    """
    check_strictly(recipe)
    contents = collect(b"", code=code, working_dir=working_dir, excludes=excludes)
    sent = paths_for_cluster(
        recipe, shared_files=shared_files, working_dir=working_dir, shipped=contents.files
    )
    contents.files[SCRIPT_NAME] = SCRIPT.encode()
    contents.files[RECIPE] = sent.to_yaml().encode()
    if key is None:
        version = _version(recipe, sent)
        name = planned_key(sent.name, version, sent.output.path)
    else:
        version, name = "", given_key(sent.name, key, sent.to_yaml(sort_keys=True))
    metadata = {"recipe": sent.name, "version": version, "key": key or "", "output": redact(sent.output.path)}
    client = connect(address)
    return _Submitter(client, contents).submit(name, metadata, dict(env or {}), again=again)


def check_strictly(recipe: Recipe) -> None:
    """Raise InputError if the recipe needs more than the strict defaults and this machine's policy allow.

    They hold for every submission, unless ``ROWSIEVE_STRICT`` or the policy file says otherwise.
    """
    policy = current_policy(strict=True)
    for key, path in recipe.paths():
        policy.check_path(f"{recipe.place}: {key}", path)


def _version(recipe: Recipe, sent: Recipe) -> str:
    """Return the name of the version that the job will publish, planned with this machine's own paths."""
    sent_paths = {"output.path": sent.output.path}
    try:
        return make_plan(replace_paths(recipe, lambda key, path: sent_paths.get(key, path))).version
    except (InputError, OSError) as error:
        raise InputError(
            f"{str(error).rstrip('.')}. A run is known by what its source holds. If only "
            f"the cluster can list it, name the run with --key, for example --key 2026-11-21: "
            f"the same recipe and key are one run."
        ) from None


class _Submitter:
    """Looks for the job of a key on the cluster and creates it if necessary."""

    def __init__(self, client: Any, contents: Contents) -> None:
        self._client, self._contents = client, contents
        self._address: str = client.get_address()

    def submit(
        self, key: str, metadata: Mapping[str, str], env: Mapping[str, str], *, again: bool
    ) -> Submission:
        """Return the job of ``key``, created by this call if the cluster does not have it."""
        attempt = self._choose(key, again)
        if attempt.new:
            attempt = self._create(attempt, metadata, env)
        handle = JobHandle(self._address, attempt.id, self._client)
        shipped = self._contents.descriptions if attempt.new else ()
        info = handle.status()
        return Submission(handle, attempt.new, info, info.metadata.get("output", ""), shipped)

    def _choose(self, key: str, again: bool) -> Attempt:
        known = {name: info.state for name, info in list_jobs(self._address, self._client).items()}
        return choose_attempt(key, known, again=again)

    def _create(self, attempt: Attempt, metadata: Mapping[str, str], env: Mapping[str, str]) -> Attempt:
        """Create the job. Ray accepts an id once, so one of two concurrent calls finds the other's job."""
        with tempfile.TemporaryDirectory() as folder, clear_errors(self._address):
            package = Path(folder) / "rowsieve.zip"
            self._contents.write(package)
            # The strict defaults only add limits to the policy that the cluster's administrator has set.
            variables = {VARIABLES["strict"]: "1", **env} if current_policy(strict=True).strict else dict(env)
            environment: dict[str, Any] = {"working_dir": str(package), "env_vars": variables}
            try:
                self._client.submit_job(
                    entrypoint=ENTRYPOINT,
                    submission_id=attempt.id,
                    runtime_env=environment,
                    metadata=dict(metadata),
                )
            except RuntimeError as error:
                if isinstance(error, RowsieveError) or f"{attempt.id} already exists" not in str(error):
                    raise
                return Attempt(attempt.id, new=False)
        return attempt
