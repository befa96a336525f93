"""Bases of the schemas, and pages."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")


class Output(BaseModel):
    """Read from a frozen value of the database by attribute names."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class Input(BaseModel):
    """Sent by a client; an unknown member is an error, since it is most often a misspelt one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Page(Output, Generic[T]):
    """Part of a list."""

    items: list[T] = Field(description="This part's items, in order.")
    next_cursor: str | None = Field(
        description="Send it as `cursor` to get the next part; null where this is the last."
    )


Limit = Annotated[int, Query(ge=1, le=500, description="Most items to return.")]
Cursor = Annotated[
    str | None,
    Query(max_length=100, description="`next_cursor` of the part before; leave it out for the first."),
]
