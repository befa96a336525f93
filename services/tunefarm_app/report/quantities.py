"""Numbers as people read them; every one has its unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

NONE = "–"


def seconds(value: float | None) -> str:
    """Return ``"74.8 ms"``: three figures, in the unit that fits."""
    if value is None:
        return NONE
    size = abs(value)
    if size >= 600:
        minutes, rest = divmod(round(size), 60)
        return f"{'−' if value < 0 else ''}{minutes} min {rest} s"
    if size == 0:
        return "0 s"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns")):
        if size * factor >= 0.9995 or unit == "ns":
            return f"{figures(value * factor)} {unit}"
    return NONE


def tick(value: float) -> str:
    """Return a round number of seconds for an axis: ``"50 ms"``."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if value * factor >= 0.9995:
            return f"{value * factor:.4g} {unit}"
    return f"{value * 1e9:.4g} ns" if value else "0"


def figures(value: float) -> str:
    """Return a number with three figures at least, and never with an exponent."""
    size = abs(value)
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{value:.{digits}f}".replace("-", "−")


def ratio(value: float | None) -> str:
    """Return ``"47.1×"``."""
    return NONE if value is None else f"{figures(value)}×"


def percent(value: float | None) -> str:
    """Return a share as ``"12.5 %"``."""
    if value is None:
        return NONE
    return f"{value * 100:.1f} %".replace("-", "−")


def size(count_bytes: int | None) -> str:
    """Return ``"47.1 MB"``."""
    if count_bytes is None:
        return NONE
    value = float(count_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return NONE


def number(value: int | None) -> str:
    """Return ``"11,689,512"``."""
    return NONE if value is None else f"{value:,}"


def flops_per_sec(flops: float | None, sec: float | None) -> str:
    """Return ``"31.5 GFLOP/s"``."""
    return NONE if not flops or not sec else f"{figures(flops / sec / 1e9)} GFLOP/s"


def per_sec(value: float | None, unit: str) -> str:
    """Return ``"272 GFLOP/s"``."""
    if value is None:
        return NONE
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= 0.9995 * factor:
            return f"{figures(value / factor)} {letter}{unit}"
    return f"{figures(value)} {unit}"


def error(value: float) -> str:
    """Return a difference of numbers without a unit."""
    return f"{value:.2e}".replace("e-0", "e-").replace("e+0", "e+") if value else "0"


def count(number_of: int, name: str) -> str:
    """Return ``"3 kernels"``."""
    return f"{number_of:,} {name}{'' if number_of == 1 else 's'}"


def when(unix_sec: float | None) -> str:
    """Return a time in UTC: nobody knows where the page will be read."""
    return NONE if unix_sec is None else datetime.fromtimestamp(unix_sec, UTC).strftime("%Y-%m-%d %H:%M UTC")


def shape(spec: Mapping[str, object]) -> str:
    """Return a tensor's ``"1×3×224×224 float32"``."""
    return f"{_dims(spec)} {spec.get('dtype', '')}".rstrip()


def shapes(specs: Sequence[Mapping[str, object]]) -> str:
    """Return a kernel's arguments and, after an arrow, its result; the element type once where all have the same."""
    dtypes = {str(spec.get("dtype", "")) for spec in specs}
    texts = [_dims(spec) if len(dtypes) == 1 else shape(spec) for spec in specs]
    joined = " → ".join(part for part in (", ".join(texts[:-1]), *texts[-1:]) if part)
    return f"{joined} {dtypes.pop()}".rstrip() if len(dtypes) == 1 else joined


def _dims(spec: Mapping[str, object]) -> str:
    dims = spec.get("shape")
    return "×".join(str(dim) for dim in dims) if isinstance(dims, list | tuple) and dims else "scalar"
