"""Checkpoints of a training, and the store of its finished base models.

Small tensors are written once, row-sized ones by slot, so that another number of workers can continue.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy
import safetensors.torch
import torch
from pydantic import BaseModel, NonNegativeInt
from safetensors import SafetensorError
from torch import Tensor

from connectors.base import ConnectorError
from connectors.storage import ObjectPath, Place, Tag, read_whole, remove_tree, write_whole
from engine.core.errors import RowsieveError, one_line
from engine.core.json_files import read_json, write_json, write_text
from engine.storage.state_files import check_state
from operators.base import OperatorError
from operators.communicator import Slots

_log = logging.getLogger("rowsieve")
LATEST = "LATEST"
COMMON = "common.safetensors"
STATE = "state.json"
NAME = re.compile(r"[0-9]{5,9}-[0-9]{5,9}")
"""Name of a checkpoint's folder: phase and epoch."""
MAX_NAME_BYTES = 100
"""Bytes of the file that names the last checkpoint; others may have put a larger one there."""
Array = npt.NDArray[Any]


class _Record(BaseModel):
    fingerprint: str
    phase: NonNegativeInt
    epoch: NonNegativeInt
    notes: dict[str, Any]


@dataclass
class Progress:
    """State from which a training continues, in addition to its parameters and rows."""

    phase: int = 0
    epoch: int = 0
    """Epochs of the phase that are done."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    """Equal on every worker."""
    by_slot: dict[str, dict[int, Array]] = field(default_factory=dict)
    """One value for each row of this worker's slots."""
    notes: dict[str, Any] = field(default_factory=dict)
    """JSON-able; equal on every worker."""


class Checkpoints:
    """Checkpoints of one training in a folder that all workers see; only the last one is kept.

    Any number of workers may continue from the checkpoint of another number, since files are by slot.

    Workers of hosts that share no disk write to ``remote``, and ``folder`` is what each has downloaded of it
    before. A worker that was believed lost may still write there: its files have the same bytes as those of
    its successor, and ``LATEST`` is replaced only by who has seen the last one.
    """

    def __init__(
        self,
        folder: Path | None,
        slots: Slots,
        fingerprint: str,
        root: Path | None = None,
        remote: ObjectPath | None = None,
    ) -> None:
        """Keep checkpoints in ``folder``; None keeps nothing.

        Parameters
        ----------
        fingerprint
            Digest of rows and parameters; a checkpoint with another one is ignored.
        root
            A folder above, beneath which no link is followed; default: ``folder``.
        remote
            A prefix to write to instead, which other processes have copied into their ``folder``.

        """
        self._folder, self._slots, self._fingerprint = folder, slots, fingerprint
        self._root, self._remote = root or folder, remote
        self._latest: tuple[str, Tag] | None = None
        """Name in ``LATEST`` of the prefix, and the tag of that object; None before the first access."""

    def save(self, progress: Progress) -> None:
        """Write a checkpoint; every worker calls this. It counts once ``LATEST`` names it."""
        if self._folder is None or self._root is None:
            return
        name = f"{progress.phase:05d}-{progress.epoch:05d}"
        base: Place = self._folder if self._remote is None else self._remote
        folder = base / name
        for slot in self._slots.mine:
            arrays = {key: np.ascontiguousarray(values[slot]) for key, values in progress.by_slot.items()}
            content = safetensors.numpy.save(arrays)
            write_whole(folder / f"slot-{slot}.safetensors", content, durable=False, root=self._root)
        if self._slots.communicator.rank == 0:
            common = {key: value.contiguous() for key, value in progress.tensors.items()}
            write_whole(folder / COMMON, safetensors.torch.save(common), durable=False, root=self._root)
            record = {"fingerprint": self._fingerprint, "phase": progress.phase, "epoch": progress.epoch}
            write_json(folder / STATE, record | {"notes": progress.notes}, root=self._root)
        self._slots.each(lambda slot: torch.zeros(1))  # wait until everyone has written
        if self._slots.communicator.rank:
            return
        if self._remote is not None:
            self._point(self._remote, name)
            return
        write_text(self._folder / LATEST, name, root=self._root)
        for other in self._folder.iterdir():
            if other.is_dir() and other.name != name:
                remove_tree(other, root=self._root)

    def _point(self, remote: ObjectPath, name: str) -> None:
        """Replace ``LATEST`` if it is as this worker knows it. Raises FileExistsError otherwise."""
        if self._latest is None:
            (remote / LATEST).create(name.encode())
        elif self._latest[0] != name:
            (remote / LATEST).replace_if(name.encode(), self._latest[1])
            (remote / self._latest[0]).remove_below()
        self._latest = name, (remote / LATEST).read_tagged(MAX_NAME_BYTES)[1]

    def _see(self, remote: ObjectPath, name: str) -> None:
        """Remember ``LATEST`` of the prefix; it must still have the name that was downloaded."""
        content, tag = (remote / LATEST).read_tagged(MAX_NAME_BYTES)
        if content != name.encode():
            raise OSError(f"{remote / LATEST} has changed meanwhile: another worker continues this training.")
        self._latest = name, tag

    def load(self) -> Progress | None:
        """Return the last checkpoint of this training with this worker's slots, or None.

        Raises OperatorError, which names the folder, for one that is damaged or forged.
        """
        if self._folder is None or not (self._folder / LATEST).exists():
            return None
        try:
            found = self._load(self._folder)
        except (OSError, ValueError, RowsieveError, ConnectorError, SafetensorError) as error:
            why = one_line(error)
            raise OperatorError(
                f"{self._folder} holds no checkpoint of a training: {why}. It is damaged or forged. Remove "
                f"the folder, and train again."
            ) from None
        if self._remote is not None:
            self._see(self._remote, (self._folder / LATEST).read_text())
        return found

    def _load(self, place: Path) -> Progress | None:
        """Return the checkpoint below ``place``, whose files others may have changed."""
        name = read_whole(place / LATEST, root=self._root or place, max_bytes=MAX_NAME_BYTES).decode()
        if not NAME.fullmatch(name):
            raise ValueError(f"{LATEST} holds {name!r}, which names none.")
        folder = place / name
        check_state(folder, "train again")
        record = _Record.model_validate(read_json(folder / STATE, root=self._root))
        if record.fingerprint != self._fingerprint:
            _log.warning(
                "%s is a checkpoint of other rows or parameters or, with reproducible: statistical, of "
                "another number of workers; the training begins anew",
                folder,
            )
            return None
        by_slot: dict[str, dict[int, Array]] = {}
        for slot in self._slots.mine:
            for key, values in safetensors.numpy.load_file(folder / f"slot-{slot}.safetensors").items():
                by_slot.setdefault(key, {})[slot] = values
        tensors = safetensors.torch.load_file(folder / COMMON)
        return Progress(record.phase, record.epoch, tensors, by_slot, record.notes)

    def clear(self) -> None:
        """Remove all checkpoints, as the training has finished."""
        if self._folder is not None and self._slots.communicator.rank == 0:
            remove_tree(self._folder, root=self._root)
            if self._remote is not None:
                self._remote.remove_below()


class ModelStore:
    """Finished base models, in files of a folder, or in memory where there is none."""

    def __init__(
        self,
        folder: Path | None,
        slots: Slots,
        root: Path | None = None,
        remote: ObjectPath | None = None,
    ) -> None:
        """Keep models in ``folder``. No link is followed beneath ``root``, by default the folder itself.

        With ``remote`` every worker has a folder of its own, and rank 0 puts each model there too.
        """
        self._folder, self._slots, self._root, self._remote = folder, slots, root or folder, remote
        self._held: dict[int, dict[str, Tensor]] = {}

    def put(self, index: int, state: Mapping[str, Tensor]) -> None:
        """Store a model's state. Every worker calls this."""
        if self._folder is None:
            self._held[index] = {name: value.clone() for name, value in state.items()}
            return
        first = self._slots.communicator.rank == 0
        if not first and self._remote is None:
            return
        content = safetensors.torch.save({name: v.contiguous() for name, v in state.items()})
        path = model_path(self._folder, index)
        write_whole(path, content, root=self._root)
        if first and self._remote is not None:
            (self._remote / path.name).write_bytes(content)

    def get(self, index: int) -> dict[str, Tensor]:
        """Return a model's state.

        With a shared folder, only rank 0 may call this before the next step that all workers share.
        """
        if self._folder is None:
            return self._held[index]
        found: dict[str, Tensor] = safetensors.torch.load_file(model_path(self._folder, index))
        return found


MODELS = "models"
"""Folder of a training's base models."""


def model_path(folder: Path, index: int) -> Path:
    """Return the path of one base model's file."""
    return folder / f"{index:03d}.safetensors"
