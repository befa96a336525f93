"""What a GPU's machine code of a recorded kernel uses, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tunefarm_text.quantities import percent, size, whole_number
from tunefarm_tuning.records.record import GPU_CODE


def gpu_code_text(extra: Mapping[str, Any] | None) -> str:
    """Return a record's facts about machine code as a line; empty without them. Records come from anywhere: anything may be there."""
    facts = (extra or {}).get(GPU_CODE)
    if not isinstance(facts, Mapping):
        return ""
    numbers = {name: value for name, value in facts.items() if _is_count(value)}
    parts = []
    if "registers" in numbers:
        parts.append(f"{whole_number(int(numbers['registers']))} registers of a thread")
    if "spill_bytes" in numbers:
        spilled = int(numbers["spill_bytes"])
        parts.append(f"{size(spilled)} of them spilled" if spilled else "none of them spilled")
    if "shared_bytes" in numbers:
        parts.append(f"{size(int(numbers['shared_bytes']))} of shared memory")
    if numbers.get("occupancy", 2) <= 1:
        parts.append(f"occupancy {percent(numbers['occupancy'])}")
    return ", ".join(parts)


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 53
