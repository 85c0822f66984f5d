"""``rowsieve deploy render``: writes the Kubernetes manifests that run a recipe."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from engine.cli.common import Overrides, RecipeFile, Verbose, load, print_errors
from engine.cli.safe_output import echo
from engine.core.errors import InputError
from engine.core.redaction import redact

if TYPE_CHECKING:
    from engine.jobs.kubernetes.options import Options

deploy = typer.Typer(help="Manifests for Kubernetes.", no_args_is_help=True)


@deploy.callback()
def _group() -> None:
    """Group the commands that make manifests for Kubernetes."""


@deploy.command()
def render(
    recipe: RecipeFile,
    kind: Annotated[str, typer.Option(help="rayjob, raycronjob, cronjob or raycluster")],
    schedule: Annotated[str | None, typer.Option(help='Cron time of the two cron kinds, "0 2 * * *"')] = None,
    timezone: Annotated[
        str, typer.Option(help="Timezone of the schedule, such as Europe/Berlin")
    ] = "Etc/UTC",
    image: Annotated[
        str | None, typer.Option(help="Image with Rowsieve, as built by deploy/Dockerfile")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker pods [default: 2]")] = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="A GPU for each worker pod")] = False,
    mount: Annotated[str, typer.Option(help="Mount path of the volume with the recipe's paths")] = "/data",
    claim: Annotated[
        str | None, typer.Option(help="Existing volume claim [default: one is rendered]")
    ] = None,
    submit_to: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="cronjob: submit to this cluster, such as http://head:8265"),
    ] = None,
    token_secret: Annotated[
        str | None, typer.Option(help="Secret with the cluster's token [default: KubeRay makes one]")
    ] = None,
    mlflow: Annotated[str | None, typer.Option(help="Tracking server, such as http://mlflow:5000")] = None,
    credentials: Annotated[
        str, typer.Option(help="Secret whose keys become environment variables; may be absent")
    ] = "rowsieve-credentials",
    to: Annotated[Path | None, typer.Option("-o", "--to", metavar="DIR", help="Write DIR/KIND.yaml")] = None,
    overrides: Overrides = None,
    verbose: Verbose = False,
) -> None:
    """Print or write the manifests that run a recipe. Sizes come from the recipe's resources."""
    with print_errors(verbose):
        from engine.jobs.kubernetes.kinds import render as make
        from engine.jobs.kubernetes.kinds import to_yaml
        from engine.jobs.kubernetes.options import Options

        _check_kind(kind)
        options = Options.model_validate(
            {
                "kind": kind,
                "schedule": schedule,
                "timezone": timezone,
                "image": image,
                "workers": workers,
                "gpu": gpu,
                "mount": mount,
                "claim": claim,
                "address": submit_to,
                "token_secret": token_secret,
                "mlflow": mlflow,
                "credentials": credentials,
            }
        )
        made_by = f"Made by: rowsieve deploy render {_words(recipe, overrides or [], options)}"
        text = to_yaml(make(load(recipe, overrides), options), redact(made_by))
        _print_or_write(text, to, kind)


def _words(recipe: Path, overrides: Sequence[str], options: Options) -> str:
    """Return the words of the command that makes these manifests, as a shell takes them."""
    words = [str(recipe)]
    for key, value in options.model_dump(exclude_defaults=True).items():
        name = "--submit-to" if key == "address" else f"--{key.replace('_', '-')}"
        words += [name] if value is True else [name, str(value)]
    return shlex.join([*words, *(word for change in overrides for word in ("--set", change))])


def _check_kind(kind: str) -> None:
    """Raise InputError for an unknown kind, with the nearest known one."""
    from connectors.foundation.messages import nearest
    from engine.jobs.kubernetes.options import Kind

    known = get_args(Kind)
    if kind not in known:
        raise InputError(f"--kind {kind}: choose one of {', '.join(known)}.{nearest(kind, known)}")


def _print_or_write(text: str, folder: Path | None, kind: str) -> None:
    """Print the manifests, or write them into a folder."""
    if folder is None:
        echo(text, nl=False)
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind}.yaml"
    path.write_text(text, "utf-8")
    echo(f"{path}: kubectl apply -f {path}")
