"""Tags and notes of models and jobs: words and a text to find them by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import category

import structlog

from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import AuditAction, Model
from tunefarm_text.job_terms import plain_tag
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean, clean_lines

log = structlog.stdlib.get_logger(__name__)

MAX_TAGS = 20
MAX_NOTE = 4000
MAX_TAG = 40
_TAG = re.compile(r"[^\W_]([\w.:/+=-]*[\w+])?")
"""A tag without the marks that combine with its letters."""


def check_tags(tags: Sequence[str]) -> list[str]:
    """Return tags as they are stored: in small letters, composed (NFC), each once, in the order given.

    Raises:
        InvalidInputError: ``invalid-tag`` or ``too-many-tags``.
    """
    checked = list(dict.fromkeys(check_tag(tag) for tag in tags))
    if len(checked) > MAX_TAGS:
        raise InvalidInputError(
            f"{len(checked)} tags are too many: at most {MAX_TAGS} are possible",
            code="too-many-tags",
            max_tags=MAX_TAGS,
        )
    return checked


def check_tag(tag: str) -> str:
    """Return a tag as it is stored.

    Raises:
        InvalidInputError: ``invalid-tag``.
    """
    plain = plain_tag(tag)
    letters = "".join(letter for letter in plain if not category(letter).startswith("M"))
    if len(plain) > MAX_TAG or plain[:1] != letters[:1] or not _TAG.fullmatch(letters):
        raise InvalidInputError(
            f"{clean(tag, 60)!r} is not a tag: a tag has up to {MAX_TAG} letters, digits and any of . _ : / + = - between "
            "them, and no spaces",
            code="invalid-tag",
        )
    return plain


def check_note(note: str) -> str:
    """Return a note as it is stored: without what terminals and pages would take for commands.

    Raises:
        InvalidInputError: ``note-too-long``.
    """
    text = clean_lines("\n".join(note.strip().splitlines()))
    if len(text) > MAX_NOTE:
        raise InvalidInputError(
            f"the note is longer than {MAX_NOTE:,} characters", code="note-too-long", max_length=MAX_NOTE
        )
    return text


def label_model(
    services: Services, model_id: str, *, tags: Sequence[str] | None = None, note: str | None = None
) -> Model:
    """Set the tags or the note of a model; None leaves them.

    Raises:
        NotFoundError: ``model-not-found`` or ``model-deleted``.
        InvalidInputError: ``invalid-tag``, ``too-many-tags`` or ``note-too-long``.
    """
    checked = None if tags is None else check_tags(tags)
    text = None if note is None else check_note(note)
    with services.uow.write() as repos:
        before = repos.models.get(model_id)
        model = repos.models.label(model_id, tags=checked, note=text)
        if (model.tags, model.note) != (before.tags, before.note):
            repos.audit.note(AuditAction.MODEL_CHANGED, model.id)
    log.info("model labelled", model_id=model.id, tags=model.tags)
    return model
