"""What a person means by a text: an id, its first or last characters, or a name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from sqlalchemy import ColumnElement, and_, literal, or_, select
from sqlalchemy.orm import InstrumentedAttribute

from tunefarm_db.repositories.base import Repository
from tunefarm_db.states.device import DeviceState
from tunefarm_db.tables import (
    ApiKeyRow,
    AuditLogRow,
    DeviceRow,
    JobRow,
    ModelRow,
    SampleFileRow,
    SweepRow,
    WebhookDeliveryRow,
    WebhookRow,
)
from tunefarm_db.values import ModelState
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean

Kind = Literal["job", "model", "sweep", "device", "key", "webhook", "delivery", "samples"]
"""What a text can mean."""

LEAST_CHARACTERS = 4
"""The fewest characters that mean an id: with fewer, a slip of the keyboard would delete something."""

_MOST_LISTED = 5
_ID_CHARACTERS = 26
_KEY_CHARACTERS = 16
_PAGES_BEGIN = "…."
"""What pages write before the last characters of an id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """The rows of a kind.

    Attributes:
        id: The column of their ids.
        prefix: What each id begins with.
        length: How many characters follow.
        label: A text by which people tell them apart.
        present: The condition that a row can be meant; None for all.
    """

    id: InstrumentedAttribute[str]
    prefix: str
    length: int = _ID_CHARACTERS
    label: ColumnElement[Any] | InstrumentedAttribute[Any]
    present: ColumnElement[bool] | None = None


_ROWS: Mapping[Kind, _Rows] = MappingProxyType(
    {
        "job": _Rows(id=JobRow.id, prefix="job_", label=JobRow.state),
        "model": _Rows(
            id=ModelRow.id,
            prefix="mdl_",
            label=ModelRow.name,
            present=ModelRow.state != ModelState.DELETED,
        ),
        "sweep": _Rows(id=SweepRow.id, prefix="swp_", label=SweepRow.note),
        "device": _Rows(
            id=DeviceRow.id,
            prefix="dev_",
            label=DeviceRow.name,
            present=DeviceRow.state != DeviceState.REMOVED,
        ),
        "key": _Rows(id=ApiKeyRow.id, prefix="", length=_KEY_CHARACTERS, label=ApiKeyRow.name),
        "webhook": _Rows(id=WebhookRow.id, prefix="whk_", label=WebhookRow.url),
        "delivery": _Rows(id=WebhookDeliveryRow.id, prefix="whd_", label=WebhookDeliveryRow.state),
        "samples": _Rows(id=SampleFileRow.id, prefix="smp_", label=SampleFileRow.name),
    }
)
_PART = re.compile(r"[0-9a-z]+")
_SUBJECT = re.compile(r"[0-9a-z_]+")


class References(Repository):
    """Ids by what people write."""

    def find(self, kind: Kind, text: str) -> str:
        """Return the id that a text means: itself, a name, or the one id that begins or ends with it (``…h6z1vw``).

        A model is named by ``name@version``, or by its name, which means its newest version; a job by its model; a device by its
        name. A name comes before a part of an id. A text that means nothing is returned as it is: no row has this id.

        Raises:
            InvalidInputError: ``ambiguous`` if it can be one of several.
        """
        rows = _ROWS[kind]
        wanted = text.strip()
        part = wanted.lstrip(_PAGES_BEGIN).removeprefix(rows.prefix)
        if len(part) == rows.length and text == rows.prefix + part:
            return text
        for condition in (self._named(kind, wanted), _part_of_id(rows, part)):
            if condition is None:
                continue
            query = (
                select(rows.id, rows.label)
                .where(condition, *(() if rows.present is None else (rows.present,)))
                .order_by(rows.id.desc())
            )
            matches = self._run(query.limit(_MOST_LISTED + 1)).all()
            if len(matches) > 1:
                raise _ambiguous(kind, wanted, [(str(row[0]), str(row[1] or "")) for row in matches])
            if matches:
                return str(matches[0][0])
        return text

    def subject(self, text: str) -> str:
        """Return the id of what the audit log is about, which may be gone, that a text means; the text if it means nothing.

        Raises:
            InvalidInputError: ``ambiguous``.
        """
        part = text.strip().lstrip(_PAGES_BEGIN)
        if len(part) < LEAST_CHARACTERS or _SUBJECT.fullmatch(part) is None:
            return text
        about = AuditLogRow.subject
        condition = or_(about.startswith(part, autoescape=True), about.endswith(part, autoescape=True))
        subjects = (
            self._run(select(about).where(condition).distinct().limit(_MOST_LISTED + 1)).scalars().all()
        )
        if len(subjects) > 1 and text not in subjects:
            raise _ambiguous("subject", part, [(str(subject), "") for subject in subjects])
        return str(subjects[0]) if len(subjects) == 1 else text

    def _named(self, kind: Kind, text: str) -> ColumnElement[bool] | None:
        """Return the condition that a row has the name; None if rows of the kind have none by which they are meant."""
        if kind == "device":
            return DeviceRow.name == text
        if kind not in ("model", "job"):
            return None
        models = self._models(text)
        if kind == "model":
            return ModelRow.id.in_(models[:1])
        return JobRow.model_id.in_(models)

    def _models(self, text: str) -> list[str]:
        """Return the models of this name, the newest version first, or else the one that is ``name@version``."""
        present = ModelRow.state != ModelState.DELETED
        name, _, version = text.rpartition("@")
        conditions = [ModelRow.name == text]  # a name may itself end in @2
        if name and version.isdecimal() and len(version) < 10:
            conditions.append(and_(ModelRow.name == name, ModelRow.version == int(version)))
        for condition in conditions:
            query = select(ModelRow.id).where(present, condition).order_by(ModelRow.version.desc())
            if models := [str(row[0]) for row in self._run(query)]:
                return models
        return []


def _part_of_id(rows: _Rows, part: str) -> ColumnElement[bool] | None:
    """Return the condition that an id begins or ends with a part; None if that is none, or too short."""
    if not LEAST_CHARACTERS <= len(part) <= rows.length or _PART.fullmatch(part) is None:
        return None
    begins = rows.id.startswith(literal(rows.prefix + part), autoescape=False)
    return or_(begins, rows.id.endswith(literal(part), autoescape=False))


def _ambiguous(kind: str, text: str, matches: list[tuple[str, str]]) -> InvalidInputError:
    listed = ", ".join(
        f"{row_id} ({clean(label, 60)})" if label else row_id for row_id, label in matches[:_MOST_LISTED]
    )
    several = str(len(matches)) if len(matches) <= _MOST_LISTED else f"more than {_MOST_LISTED}"
    plural = {"delivery": "deliveries", "samples": "samples"}.get(kind, f"{kind}s")
    return InvalidInputError(
        f"{clean(text, 60)} can be one of {several} {plural}: {listed}; give more of the id",
        code="ambiguous",
        ids=[row_id for row_id, _label in matches[:_MOST_LISTED]],
    )
