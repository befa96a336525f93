"""Records that were imported before imports counted in a key's bytes count, too.

Revision ID: 0037
Revises: 0036
Created: 2026-11-30
"""

from __future__ import annotations

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

_KEYS = ("workload_key", "target_key", "device_model", "toolchain", "space_key")
_TEXTS = (*_KEYS, "outcome", "tuner", "message")
_JSON = ("config", "samples_sec", "extra")
_NAMES_AND_NUMBERS = 210
"""So many bytes have the names of the fields, and the numbers, of a record's line of JSON."""


def upgrade() -> None:
    lengths = [f"length({name})" for name in _TEXTS]
    lengths += [f"coalesce(length(CAST({name} AS TEXT)), 0)" for name in _JSON]
    op.execute(
        f"UPDATE records SET size_bytes = {_NAMES_AND_NUMBERS} + {' + '.join(lengths)} "  # noqa: S608  (the names above)
        "WHERE owner IS NOT NULL AND size_bytes IS NULL"
    )


def downgrade() -> None:
    """An older release may count them."""
