"""The base class of all tables."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from sqlalchemy import Boolean, Double, Integer, MetaData, Table, Text
from sqlalchemy.orm import DeclarativeBase

from tunefarm_db.states.job import JobState
from tunefarm_db.tables.columns import EnumText, JsonText
from tunefarm_db.values import (
    AuditAction,
    CalibrationOutcome,
    DeliveryState,
    DeviceState,
    Json,
    ModelState,
    SampleState,
    SourceState,
    StepKind,
    StepState,
    UploadState,
)


class Base(DeclarativeBase):
    """Base of the tables; every constraint has a name, so that a migration can refer to it."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text(),
        float: Double(),
        int: Integer(),
        bool: Boolean(),
        Json: JsonText(),
        list[Any]: JsonText(),
        JobState: EnumText(JobState),
        ModelState: EnumText(ModelState),
        StepKind: EnumText(StepKind),
        StepState: EnumText(StepState),
        DeviceState: EnumText(DeviceState),
        CalibrationOutcome: EnumText(CalibrationOutcome),
        DeliveryState: EnumText(DeliveryState),
        SourceState: EnumText(SourceState),
        SampleState: EnumText(SampleState),
        UploadState: EnumText(UploadState),
        AuditAction: EnumText(AuditAction),
    }


def table_of(row: type[Base]) -> Table:
    """Return the table behind a row class, typed as one."""
    return cast("Table", row.__table__)
