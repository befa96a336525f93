"""Attributes of PrimFuncs that tell passes of this package what a kernel is."""

from __future__ import annotations

IS_SCHEDULED = "tirx.is_scheduled"
"""Of a PrimFunc that no default schedule is made for: it has one."""
CPU_ONLY = "tunefarm.cpu_only"
"""Of a PrimFunc whose loops are a CPU's: the operator's name."""
