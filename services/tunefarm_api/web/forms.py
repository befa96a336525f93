"""Read the forms that pages send."""

from __future__ import annotations

import math
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse

from tunefarm_api.errors.problems import status_of
from tunefarm_api.web.rendering import page
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean

Form = dict[str, str]

_MOST_FIELDS = 500
_MOST_DIGITS = 30  # of a whole number; the rules of jobs have lower limits, which they name
_SHOWN = 40  # characters of a wrong number


async def _read_form(request: Request) -> Form:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in ("", "application/x-www-form-urlencoded"):
        raise InvalidInputError("the form is not from this page", code="unsupported-media-type")
    try:
        text = (await request.body()).decode("utf-8")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise InvalidInputError("the form is not from this page", code="invalid-request") from None


FormDep = Annotated[Form, Depends(_read_form)]
"""The fields by name; the gate has limited the body's size."""


def number_of(form: Form, name: str) -> float:
    """Return the number in a field; 0 where it is empty.

    Raises:
        InvalidInputError: If it is none, or below zero.
    """
    text = form.get(name, "").strip()
    try:
        value = float(text.replace(",", ".") or 0)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise _not_a_number(name, text, "a number that is not below zero")
    return value


def whole_number_of(form: Form, name: str) -> int:
    """Return the whole number in a field; 0 where it is empty.

    Raises:
        InvalidInputError: If it is none, or below zero.
    """
    text = form.get(name, "").strip()
    if text and not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise _not_a_number(name, text, f"a whole number of at most {_MOST_DIGITS} digits, not below zero")
    return int(text or 0)


def _not_a_number(name: str, text: str, wanted: str) -> InvalidInputError:
    label = name.replace("_", " ")
    return InvalidInputError(
        f"{label} must be {wanted}, and is {clean(text, _SHOWN)!r}", code="invalid-number", field=name
    )


def labels_of(form: Form) -> tuple[list[str], str]:
    """Return the tags and the note of a form; tags have spaces or commas between them."""
    return form.get("tags", "").replace(",", " ").split(), form.get("note", "")


def refused_labels(
    request: Request, items: str, item_id: str, form: Form, error: InvalidInputError
) -> HTMLResponse:
    """Return the form of tags and a note again, as it was filled in, with what is wrong with it.

    Args:
        request: The request that sent it.
        items: Path of the list that the item is in.
        item_id: The job or model.
        form: What was sent.
        error: Why it was refused.
    """
    shown = page("refused_labels.html", request, list=items, item_id=item_id, given=form, refused=error)
    shown.status_code = status_of(error)
    return shown
