"""Base classes of the schemas, and pages of a list."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Query
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from tunefarm_db.ids import Prefix, is_id
from tunefarm_tuning.core.errors import InvalidInputError

T = TypeVar("T")

OWNER = "API key that created it, and whose limits count; null for the farm itself and for what an older release made."


class Output(BaseModel):
    """Read from a frozen value of the database by attribute names."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class Input(BaseModel):
    """Base of request bodies. An unknown member is an error, since it is usually misspelt."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Tags = Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=100)]
Note = Annotated[str, Field(max_length=100_000)]
"""As they are sent; the use case checks them."""


def says_what_it_takes(words: str) -> WrapValidator:
    """Return a validator that refuses a value by one sentence. Pydantic has a sentence for each type of a union.

    Args:
        words: How the sentence ends: what the value must be.
    """

    def check(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError:
            raise PydanticCustomError("union", "Input should be {words}", {"words": words}) from None

    return WrapValidator(check)


class Page(Output, Generic[T]):
    """A part of a list."""

    items: list[T] = Field(description="Items of this part, in order.")
    next_cursor: str | None = Field(
        description="Value of `cursor` for the next part; null for the last part."
    )


Limit = Annotated[int, Query(ge=1, le=500, description="Maximum number of items.")]
Cursor = Annotated[
    str | None,
    Query(max_length=100, description="`next_cursor` of the previous part; omit it for the first."),
]
"""As it was sent; the list checks it."""


def cursor_of(prefix: Prefix) -> Any:
    """Return the dependency for the cursor of a list whose cursors are ids of this kind."""

    async def read(cursor: Cursor = None) -> str | None:
        if cursor is not None and not is_id(cursor, prefix):
            raise InvalidInputError("the cursor is not from this list", code="invalid-cursor")
        return cursor

    return Depends(read)
