"""Base class of models that cannot be changed at any depth: parameters, sections of a recipe, records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from connectors.foundation.immutable import freeze_fields


class ImmutableModel(BaseModel):
    """A model whose fields cannot be set, nor the dicts and lists in them be changed."""

    model_config = ConfigDict(frozen=True)

    def model_post_init(self, context: Any, /) -> None:
        """Make the dicts and lists among the values immutable."""
        freeze_fields(self.__dict__)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values, which are made immutable too."""
        found = super().model_copy(update=update, deep=deep)
        freeze_fields(found.__dict__)
        return found
