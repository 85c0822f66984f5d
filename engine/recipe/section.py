"""The base class of every section of a recipe."""

from __future__ import annotations

from pydantic import ConfigDict

from operators.immutable_model import ImmutableModel


class Section(ImmutableModel):
    """Base class of every section. An unknown key is an error, and no value can be changed, at any depth."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
