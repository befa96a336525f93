"""Numbers as people read them; every one has its unit."""

from __future__ import annotations

from datetime import datetime

NONE = "–"


def latency(sec: float | None) -> str:
    if sec is None:
        return NONE
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if sec * factor >= 1.0 or unit == "µs":
            return f"{sec * factor:.3g} {unit}" if sec * factor < 999.5 else f"{sec * factor:.0f} {unit}"
    return NONE


def temperature(celsius: float | None) -> str:
    return NONE if celsius is None else f"{celsius:.0f} °C"


def duration(sec: float | None) -> str:
    if sec is None:
        return NONE
    if sec < 60:
        return f"{sec:.0f} s"
    minutes, rest = divmod(round(sec), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return NONE


def count(number: int) -> str:
    return f"{number / 1e6:.1f} M" if number >= 1_000_000 else f"{number:,}"


def shape(dims: tuple[int, ...], dtype: str = "") -> str:
    return f"{'×'.join(map(str, dims)) or 'scalar'} {dtype}".rstrip()


def when(unix_sec: float | None) -> str:
    """Return a time in the reader's zone."""
    if not unix_sec:
        return NONE
    return datetime.fromtimestamp(unix_sec).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def flops(count: float) -> str:
    return f"{count / 1e6:.3g} M" if count < 1e9 else f"{count / 1e9:.3g} G"


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
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"


def percent(share: float | None) -> str:
    return NONE if share is None else f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}"


def ratio(numerator: float | None, denominator: float | None) -> str:
    if not numerator or not denominator:
        return NONE
    return f"{numerator / denominator:.2f}×"
