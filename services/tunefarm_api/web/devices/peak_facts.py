"""What a device can do at its best, as its page says it."""

from __future__ import annotations

from tunefarm_text import quantities
from tunefarm_tuning.measure.peak import Peak, Rate


def peak_facts(peak: Peak | None) -> list[tuple[str, str]]:
    """Return names and texts; nothing where it was never measured."""
    if peak is None:
        return []
    facts = [
        (f"Peak, {dtype}", _text(rate, "FLOP/s", peak.threads)) for dtype, rate in peak.flops_per_sec.items()
    ]
    if peak.bandwidth:
        facts.append(("Memory bandwidth", _text(peak.bandwidth[-1].bytes_per_sec, "B/s", peak.threads)))
    if peak.missing:
        facts.append(("No peak", peak.missing))
    return facts


def _text(rate: Rate, unit: str, threads: int) -> str:
    one = f"{quantities.rate(rate.one_core, unit)} on one core"
    return one if threads == 1 else f"{one}, {quantities.rate(rate.all_cores, unit)} on {threads:,}"
