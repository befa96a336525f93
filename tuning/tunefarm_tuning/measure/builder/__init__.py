"""Builders: from a config to a kernel."""

from __future__ import annotations

from tunefarm_tuning.measure.builder.local import LocalBuilder

__all__ = ["LocalBuilder"]
