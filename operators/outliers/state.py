"""Storage of the verdict's state: arrays as ``.npz`` and scalars as JSON. Reading it runs no code."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from operators.bounded_json import read_json
from operators.outliers.evidence import Mahalanobis, Sources
from operators.outliers.linear import CrossFitted, Scaler
from operators.outliers.marking import Estimates
from operators.outliers.mixture import Ratios
from operators.outliers.neighbours import NeighbourTable
from operators.outliers.screen import Screen
from operators.outliers.shortcut_free import Eraser
from operators.outliers.trees import CrossFittedTrees
from operators.outliers.verdict import VerdictState

ARRAYS = "evidence.npz"
RECORD = "evidence.json"
TABLES = ("raw", "cue_free")
TABLE_ARRAYS = ("basis", "points", "labels", "ids")
SCALARS = ("threshold", "min_flip_ratio", "n_folds", "seed")
SHORTCUT_FREE = "shortcut_free"
"""Folder of the verdict without known shortcuts, inside that of the other."""


def save_state(state: VerdictState, folder: Path) -> None:
    """Write ``evidence.npz`` and ``evidence.json`` into a folder, of both verdicts where there are two."""
    if state.shortcut_free is not None:
        (folder / SHORTCUT_FREE).mkdir(exist_ok=True)
        save_state(state.shortcut_free, folder / SHORTCUT_FREE)
    sources = state.sources
    parts: dict[str, Any] = {
        "scaler": state.scaler,
        "models": sources.models,
        "mahalanobis": sources.mahalanobis,
        "ratios": state.ratios,
        "flips": state.flips,
    }
    if sources.trees is not None:
        parts["trees"] = sources.trees
    if state.screen is not None:
        parts["screen"] = state.screen
    if state.eraser is not None:
        parts["eraser"] = state.eraser
    arrays: dict[str, Any] = {
        f"{name}.{field.name}": np.asarray(getattr(part, field.name))
        for name, part in parts.items()
        for field in fields(part)
    }
    for name in TABLES:
        arrays |= {f"{name}.{key}": getattr(getattr(sources, name), key) for key in TABLE_ARRAYS}
    arrays |= {
        "priors": sources.priors,
        "prevalence": state.prevalence,
        "classes": state.classes,
        "checkable": state.checkable,
        "sample_ids": state.sample_ids,
    }
    np.savez(folder / ARRAYS, allow_pickle=False, **arrays)
    scalars: dict[str, Any] = {name: getattr(state, name) for name in SCALARS}
    scalars |= {"n_classes": sources.raw.n_classes, "k": sources.raw.k}
    estimates: dict[str, Any] = {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in asdict(state.estimates).items()
    }
    without = state.shortcut_free is not None
    _write(folder, {"reason": "", **scalars, SHORTCUT_FREE: without, "estimates": estimates})


def save_reason(reason: str, folder: Path) -> None:
    """Record that there is no evidence, and why."""
    _write(folder, {"reason": reason})


def unchecked_classes(folder: Path) -> list[int]:
    """Return the indices of the classes in which wrong labels are not looked for, from :func:`save_state`."""
    with np.load(folder / ARRAYS, allow_pickle=False) as file:
        found: list[int] = file["classes"][~file["checkable"]].tolist()
    return found


def load_state(folder: Path) -> VerdictState | None:
    """Read what :func:`save_state` wrote; None where :func:`save_reason` did."""
    record = read_json(folder / RECORD)
    if record["reason"]:
        return None
    with np.load(folder / ARRAYS, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}

    def part(name: str) -> dict[str, Any]:
        return {
            key.removeprefix(f"{name}."): value for key, value in arrays.items() if key.startswith(f"{name}.")
        }

    def table(name: str) -> NeighbourTable:
        return NeighbourTable(**part(name), n_classes=record["n_classes"], k=record["k"])

    mahalanobis, screen, eraser = part("mahalanobis"), part("screen"), part("eraser")
    sources = Sources(
        CrossFitted(**part("models")),
        CrossFittedTrees(**part("trees")) if part("trees") else None,
        table("raw"),
        table("cue_free"),
        Mahalanobis(**{**mahalanobis, "residual": float(mahalanobis["residual"])}),
        arrays["priors"],
    )
    estimates: dict[str, Any] = {
        name: math.nan if value is None else value for name, value in record["estimates"].items()
    }
    return VerdictState(
        scaler=Scaler(**part("scaler")),
        sources=sources,
        ratios=Ratios(**part("ratios")),
        flips=Ratios(**part("flips")),
        prevalence=arrays["prevalence"],
        screen=Screen(**screen | {name: float(screen[name]) for name in ("cut", "needed")})
        if screen
        else None,
        classes=arrays["classes"],
        checkable=arrays["checkable"],
        sample_ids=arrays["sample_ids"],
        estimates=Estimates(**estimates),
        eraser=Eraser(**eraser) if eraser else None,
        shortcut_free=load_state(folder / SHORTCUT_FREE) if record[SHORTCUT_FREE] else None,
        **{name: record[name] for name in SCALARS},
    )


def forget_row_ids(folder: Path) -> None:
    """Replace the row ids of the sample by -1, so that every row is assessed as one that was not in it."""
    if not (folder / ARRAYS).exists():
        return
    forget_row_ids(folder / SHORTCUT_FREE)
    with np.load(folder / ARRAYS, allow_pickle=False) as file:
        arrays: dict[str, Any] = {name: file[name] for name in file.files}
    for name in ("sample_ids", *(f"{table}.ids" for table in TABLES)):
        arrays[name] = np.full_like(arrays[name], -1)
    # A copied state may be a link to the old one, which must stay as it is.
    (folder / ARRAYS).unlink()
    np.savez(folder / ARRAYS, allow_pickle=False, **arrays)


def _write(folder: Path, record: dict[str, Any]) -> None:
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
