"""Jobs and models store tags and notes, models a version; jobs store the numbers of their artifacts that lists show and sort by.

Revision ID: 0022
Revises: 0021
Created: 2026-11-25
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_RUNTIMES = ("onnxruntime", "torch_compile")
_NUMBERS = ("network_latency_sec", "over_untuned", "over_runtime")


def upgrade() -> None:
    for table in ("jobs", "models"):
        op.add_column(table, sa.Column("tags", sa.JSON(), nullable=False, server_default="[]"))
        op.add_column(table, sa.Column("note", sa.Text(), nullable=False, server_default=""))
    op.add_column("models", sa.Column("version", sa.Integer(), nullable=False, server_default="1"))
    earlier = "SELECT count(*) FROM models AS other WHERE other.name = models.name AND other.id <= models.id"
    op.execute(sa.text(f"UPDATE models SET version = ({earlier})"))  # noqa: S608  (texts of this module)
    op.create_index(
        "uq_models_name_version",
        "models",
        ["name", "version"],
        unique=True,
        sqlite_where=sa.text("state != 'deleted'"),
        postgresql_where=sa.text("state != 'deleted'"),
    )
    for name in _NUMBERS:
        op.add_column("jobs", sa.Column(name, sa.Double()))
    op.add_column("jobs", sa.Column("speedups", sa.JSON(), nullable=False, server_default=sa.text("'{}'")))
    _fill()


def _fill() -> None:
    connection = op.get_bind()
    job_ids = connection.execute(sa.text("SELECT job_id FROM artifacts")).scalars().all()
    for job_id in job_ids:
        query = sa.text("SELECT report FROM artifacts WHERE job_id = :job_id")
        report = connection.execute(query, {"job_id": job_id}).scalar_one()
        numbers = _numbers(json.loads(report) if isinstance(report, str) else report)
        if numbers:
            names = ", ".join(f"{name} = :{name}" for name in numbers)
            update = sa.text(f"UPDATE jobs SET {names} WHERE id = :job_id")  # noqa: S608  (names of this module)
            connection.execute(update, {**numbers, "job_id": job_id})


def _numbers(report: Any) -> dict[str, Any]:
    """Return the numbers of a report, as `tunefarm_app.report.numbers` has them; none of one that cannot be read."""
    try:
        latency = report["latency"]
        tuned_sec = float(latency["tuned"]["median_sec"])
        seconds = {
            name: float(latency[name]["median_sec"]) for name in ("untuned", *_RUNTIMES) if latency.get(name)
        }
        noted = latency.get("ratios") or {}
        ratios = {
            name: noted.get(name) or {"value": sec / tuned_sec, "low": None, "high": None}
            for name, sec in seconds.items()
        }
        values = {name: float(ratio["value"]) for name, ratio in ratios.items()}
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        return {}
    return {
        "network_latency_sec": tuned_sec,
        "speedups": json.dumps(ratios),
        "over_untuned": values.pop("untuned", None),
        "over_runtime": min(values.values(), default=None),
    }


def downgrade() -> None:
    # An older tunefarm knows no such steps.
    op.execute(sa.text("DELETE FROM steps WHERE kind = 'measure'"))
    op.drop_index("uq_models_name_version", "models")
    op.drop_column("models", "version")
    for name in (*_NUMBERS, "speedups"):
        op.drop_column("jobs", name)
    for table in ("jobs", "models"):
        for name in ("tags", "note"):
            op.drop_column(table, name)
