"""Base class of an operator's parameters, and the resources that its actors ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, Field
from pydantic_core import to_jsonable_python

from operators.attribute_docs import DescribedModel
from operators.immutable_model import ImmutableModel

MOST_CPUS = 100_000
"""CPU cores or GPUs that one actor may ask for; no computer has more."""


class OperatorParams(DescribedModel, ImmutableModel):
    """Base class of an operator's parameters. Unknown keys are errors; a field's docstring describes it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    execution_only: ClassVar[frozenset[str]] = frozenset({"resources"})
    """Parameters that control where and how fast an operator runs and never change a value. They are left out
of the fingerprint."""

    @classmethod
    def recorded(cls, params: Mapping[str, Any]) -> Self:
        """Validate parameters as a manifest records them, where those at their defaults are named too.

        Parameters at their defaults count as not given, since some parameters exclude each other whatever
        their value.

        Parameters
        ----------
        params : the parameters by name, as JSON values.

        Raises
        ------
        pydantic.ValidationError
            A parameter is unknown or has a wrong value.
        """
        fields = cls.model_fields
        optional = {name: field for name, field in fields.items() if not field.is_required()}
        usual = {
            name: to_jsonable_python(field.get_default(call_default_factory=True))
            for name, field in optional.items()
        }
        given = {name: value for name, value in params.items() if name not in usual or value != usual[name]}
        return cls.model_validate(given)


class Resources(OperatorParams):
    """The resources that one actor of an operator asks of the cluster."""

    actors: int | None = Field(default=None, ge=1)
    """Actors in the pool. Default: as many as fit on the cluster, at most one per shard."""
    cpus: float = Field(default=1.0, ge=0, le=MOST_CPUS)
    """CPU cores as Ray counts them. Torch and FAISS use as many threads."""
    gpus: float = Field(default=0.0, ge=0, le=MOST_CPUS)
    """GPUs, or a fraction of one. Default: one if the operator prefers a GPU and the cluster has one."""

    def on(self, available_gpus: float, *, prefers_gpu: bool) -> Resources:
        """Return these resources, with one GPU if it is preferred and available and the recipe sets none."""
        if prefers_gpu and available_gpus and "gpus" not in self.model_fields_set:
            return self.model_copy(update={"gpus": 1.0})
        return self
