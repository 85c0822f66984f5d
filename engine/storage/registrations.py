"""Records of registered models, in the output whose version they were trained on.

``rowsieve versions prune`` keeps those versions also where MLflow is not reached under the same address as at
the time of the registration. The records are untrusted, as everything in a shared output.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from connectors.base import ConnectorError
from connectors.storage import Place, read_many
from engine.core.digests import digest
from engine.core.errors import InputError, one_line
from engine.core.json_files import json_value, write_json

FOLDER = "registered"
MAX_BYTES = 2**20


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    dataset_version: str = Field(max_length=200)
    model: str = Field(max_length=1000)
    number: str | None = Field(default=None, max_length=100)
    run_id: str = Field(max_length=200)


def record_registration(
    output: Place, dataset_version: str, model: str, run_id: str, *, number: str | None = None
) -> None:
    """Write the record of a model that is trained on a version of an output.

    It is written before the model is registered, without a ``number``, and again after it, so that no
    interruption leaves a model without a record.
    """
    path = output / FOLDER / f"{digest([dataset_version, model, run_id])}.json"
    record = {"dataset_version": dataset_version, "model": model, "number": number, "run_id": run_id}
    write_json(path, record, root=output)


def recorded_models(output: Place, *, strict: bool = False) -> dict[str, list[str]]:
    """Return the models that are recorded for each dataset version, as "NAME NUMBER".

    Parameters
    ----------
    output
        The output folder.
    strict
        Raise InputError for a record that cannot be read, instead of leaving it out.
    """
    entries: list[Place] = []
    try:
        entries += (output / FOLDER).iterdir()
    except FileNotFoundError:
        return {}
    places = sorted((entry for entry in entries if entry.suffix == ".json"), key=str)
    found: dict[str, list[str]] = {}
    try:
        contents = read_many(places)
    except ConnectorError as error:  # a link, a pipe, or gigabytes: somebody has put it there
        raise InputError(
            f"{output / FOLDER} holds a file that is not a record of a model: {error}. Remove it."
        ) from None
    for place, data in zip(places, contents, strict=True):
        try:
            if data is None or len(data) > MAX_BYTES:
                raise ValueError("it is missing or too large")
            record = _Record.model_validate(json_value(data, place))
        except (ValueError, RecursionError, ValidationError) as error:
            if strict:
                raise InputError(
                    f"{place}: this record of a registered model cannot be read, so that no version may be "
                    f"removed: {_reason(error)}. Repair or remove the file."
                ) from None
            continue
        number = record.number or "(registration was interrupted)"
        found.setdefault(record.dataset_version, []).append(f"{record.model} {number}")
    return found


def _reason(error: Exception) -> str:
    """Return why a record cannot be read in a few words."""
    if not isinstance(error, ValidationError):
        return one_line(error, 200)
    faults = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'it'}: {fault['msg']}" for fault in faults[:3])
