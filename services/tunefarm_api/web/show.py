"""Numbers as people read them; every one has its unit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

NONE = "–"


def latency(sec: float | None) -> str:
    """Return ``"8.12 ms"``."""
    if sec is None:
        return NONE
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns")):
        if sec * factor >= 1.0 or unit == "ns":
            return f"{sec * factor:.3g} {unit}" if sec * factor < 999.5 else f"{sec * factor:.0f} {unit}"
    return NONE


def duration(sec: float | None) -> str:
    """Return ``"4 min 05 s"``."""
    if sec is None:
        return NONE
    if sec < 59.5:
        return f"{sec:.1f} s" if 0.05 <= sec < 9.95 else f"{sec:.0f} s"
    minutes, rest = divmod(round(sec), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return NONE


def number(count: float | None) -> str:
    """Return ``"12,345"`` or ``"11.7 M"``."""
    if count is None:
        return NONE
    if count >= 1e9:
        return f"{count / 1e9:.1f} G"
    return f"{count / 1e6:.1f} M" if count >= 1_000_000 else f"{count:,.0f}"


def speedup(ratio: float | None) -> str:
    return NONE if ratio is None else f"{ratio:.2f}×"


def percent(share: float | None) -> str:
    if share is None:
        return NONE
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{share * 100:.0f} %" if share >= 0.0995 else f"{share * 100:.1f} %"


def gflops(flops: float, sec: float | None) -> str:
    """Return what a kernel does per second."""
    return NONE if not sec or not flops else f"{flops / sec / 1e9:.3g} GFLOP/s"


def rate(per_sec: float | None, unit: str) -> str:
    """Return ``"272 GFLOP/s"``."""
    if per_sec is None:
        return NONE
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if per_sec >= 0.9995 * factor:
            return f"{figures(per_sec / factor)} {letter}{unit}"
    return f"{per_sec:.3g} {unit}"


def figures(value: float) -> str:
    """Return a number with three figures at least, and never with an exponent."""
    return f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return ``"1 trial"`` or ``"2 trials"``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def shape(dims: list[int], dtype: str = "") -> str:
    return f"{'×'.join(map(str, dims)) or 'scalar'} {dtype}".rstrip()


def iso(unix_sec: float) -> str:
    """Return the time as a browser's script reads it."""
    return datetime.fromtimestamp(unix_sec, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def utc(unix_sec: float) -> str:
    """Return the time as it is shown where no script puts it into the reader's zone."""
    return datetime.fromtimestamp(unix_sec, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def budget(limits: Mapping[str, Any]) -> str:
    """Return a budget in words."""
    parts = []
    if limits.get("wall_sec"):
        parts.append(duration(limits["wall_sec"]))
    if limits.get("trials"):
        parts.append(plural(limits["trials"], "trial"))
    if limits.get("patience_trials"):
        parts.append(f"until {plural(limits['patience_trials'], 'trial')} bring nothing")
    if limits.get("min_gain_per_min"):
        parts.append(f"while a minute wins {percent(limits['min_gain_per_min'])}")
    return ", ".join(parts) or NONE
