"""The record of each command that has ``--json``, as models; ``rowsieve schema`` prints their JSON schemas.

A record has the keys of its model and no other; keys with a default may be absent. Tests check the output of
each command against its model, and ``engine/JSON.md`` is written from them. Parts that copy a file of the
output, such as the record of a training, are plain objects here.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from engine.cli.recipe_records import (
    DraftRecord,
    FormatRecord,
    OperatorRecord,
    PlanRecord,
    PolicyRecord,
    ValidationRecord,
)
from engine.cli.run_records import (
    CancelledJob,
    EventRecord,
    JobRecord,
    RunRecord,
    ScheduleRecord,
    StatusRecord,
    SubmittedJob,
)
from engine.cli.training_records import ComparedMethod, PredictionRecord, TrainingRecord
from engine.cli.version_records import (
    CuesRecord,
    DiffRecord,
    ExportedRows,
    ExportedVersion,
    FaultyRow,
    GroupsRecord,
    LineageRecord,
    PruneRecord,
    ReplayRecord,
    RetractionRecord,
    RowRecord,
    VersionRecord,
)

RECORDS: dict[str, TypeAdapter[Any]] = {
    "run": TypeAdapter(RunRecord),
    "run events": TypeAdapter(EventRecord | RunRecord),
    "submit": TypeAdapter(SubmittedJob),
    "status": TypeAdapter(StatusRecord),
    "status job": TypeAdapter(JobRecord | list[JobRecord]),
    "cancel": TypeAdapter(CancelledJob),
    "schedule events": TypeAdapter(ScheduleRecord),
    "init": TypeAdapter(DraftRecord),
    "validate": TypeAdapter(ValidationRecord),
    "plan": TypeAdapter(PlanRecord),
    "versions": TypeAdapter(list[VersionRecord]),
    "versions prune": TypeAdapter(PruneRecord),
    "versions remove": TypeAdapter(PruneRecord),
    "diff": TypeAdapter(DiffRecord),
    "lineage": TypeAdapter(LineageRecord),
    "retract": TypeAdapter(RetractionRecord),
    "export": TypeAdapter(ExportedVersion),
    "groups": TypeAdapter(GroupsRecord),
    "explain": TypeAdapter(RowRecord),
    "cues": TypeAdapter(CuesRecord),
    "quarantine": TypeAdapter(list[FaultyRow]),
    "quarantine export": TypeAdapter(ExportedRows),
    "quarantine replay": TypeAdapter(ReplayRecord),
    "compare": TypeAdapter(list[ComparedMethod]),
    "retrain": TypeAdapter(TrainingRecord),
    "predict": TypeAdapter(PredictionRecord),
    "operators": TypeAdapter(list[OperatorRecord]),
    "sources": TypeAdapter(list[FormatRecord]),
    "policy": TypeAdapter(dict[str, PolicyRecord]),
}
"""The record of each command; of some commands, that of an action or option too."""
