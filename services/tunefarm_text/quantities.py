"""Format quantities for people, with their units. Every part of tunefarm that writes numbers for people uses this module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

NONE = "–"
"""Text for an unknown value."""


def latency(sec: float | None) -> str:
    """Return a time with at most three figures, in the unit that fits: ``"8.12 ms"``, ``"30 ns"``."""
    if sec is None:
        return NONE
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns")):
        if sec * factor >= 1.0 or unit == "ns":
            return f"{sec * factor:.3g} {unit}" if sec * factor < 999.5 else f"{sec * factor:.0f} {unit}"
    return NONE


def doubted_latency(sec: float | None, *, is_measured: bool, is_disturbed: bool) -> str:
    """Return a latency, and in brackets the reason to doubt it, if there is one: ``"8.12 ms (estimate)"``."""
    doubt = "" if sec is None else "estimate" if not is_measured else "disturbed" if is_disturbed else ""
    return f"{latency(sec)} ({doubt})" if doubt else latency(sec)


def seconds(value: float | None) -> str:
    """Return a time, or a difference of times, with exactly three figures: ``"74.8 ms"``, ``"−1.92 s"``.

    Times in a report stand below each other and are compared; `latency` drops zeros, this does not.
    """
    if value is None:
        return NONE
    magnitude = abs(value)
    if magnitude >= 600:
        minutes, remainder = divmod(round(magnitude), 60)
        return f"{'−' if value < 0 else ''}{minutes} min {remainder} s"
    if magnitude == 0:
        return "0 s"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns")):
        if magnitude * factor >= 0.9995 or unit == "ns":
            return f"{figures(value * factor)} {unit}"
    return NONE


def tick(value: float) -> str:
    """Return a round number of seconds for an axis: ``"50 ms"``."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if value * factor >= 0.9995:
            return f"{value * factor:.4g} {unit}"
    return f"{value * 1e9:.4g} ns" if value else "0"


def duration(sec: float | None) -> str:
    """Return how long something takes: ``"4.2 s"``, ``"4 min 05 s"``, ``"2 d 7 h"``."""
    if sec is None:
        return NONE
    if sec < 59.5:
        return f"{sec:.1f} s" if 0.05 <= sec < 9.95 else f"{sec:.0f} s"
    minutes, remainder = divmod(round(sec), 60)
    if minutes < 60:
        return f"{minutes} min {remainder:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def local_time(unix_sec: float | None) -> str:
    """Return a time in the time zone of this machine: ``"2027-01-15 09:00:00"``."""
    if not unix_sec:
        return NONE
    return datetime.fromtimestamp(unix_sec).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def utc(unix_sec: float) -> str:
    """Return a time in UTC: ``"2027-01-15 08:00:00 UTC"``."""
    return datetime.fromtimestamp(unix_sec, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def utc_minute(unix_sec: float | None) -> str:
    """Return a time in UTC, to the minute: ``"2027-01-15 08:00 UTC"``."""
    return NONE if unix_sec is None else datetime.fromtimestamp(unix_sec, UTC).strftime("%Y-%m-%d %H:%M UTC")


def iso(unix_sec: float) -> str:
    """Return a time as a browser's script reads it: ``"2027-01-15T08:00:00Z"``."""
    return datetime.fromtimestamp(unix_sec, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def size(count_bytes: int | None) -> str:
    """Return a size in bytes: ``"47.1 MB"``."""
    if count_bytes is None:
        return NONE
    value = float(count_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return NONE


def number(count: float | None) -> str:
    """Return a count, rounded from a million on: ``"12,345"``, ``"11.7 M"``."""
    if count is None:
        return NONE
    if count >= 1e9:
        return f"{count / 1e9:.1f} G"
    return f"{count / 1e6:.1f} M" if count >= 1_000_000 else f"{count:,.0f}"


def whole_number(count: int | None) -> str:
    """Return a count with all its digits: ``"11,689,512"``."""
    return NONE if count is None else f"{count:,}"


def plural(count: int, singular: str, many: str | None = None) -> str:
    """Return ``"1 trial"`` or ``"1,234 trials"``; `many` is the plural that is not the singular with an s."""
    return f"{count:,} {singular if count == 1 else many or singular + 's'}"


def some_of(names: Sequence[str], limit: int = 3) -> str:
    """Return the first names, and how many more there are: ``"a, b, c and 4 more"``."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"


def kernels_to_tune(kernels: int, alternatives: int) -> str:
    """Return what a search tries: ``"6 kernels to tune"``, or ``"6 kernels to tune, and 1 alternative to them"``."""
    others = f", and {plural(alternatives, 'alternative')} to them" if alternatives else ""
    return f"{plural(kernels, 'kernel')} to tune{others}"


def kernels_measured(
    measured: int, kernels: int, others_measured: int = 0, others: int = 0, *, noun: bool = True
) -> str:
    """Return how many kernels have a time: ``"6 of 6 kernels measured, and 1 of 1 alternative to them"``."""
    counted = plural(kernels, "kernel") if noun else f"{kernels:,}"
    alternatives = f", and {others_measured:,} of {plural(others, 'alternative')} to them" if others else ""
    return f"{measured:,} of {counted} measured{alternatives}"


def tuned_so_far(covered: int, tasks: int) -> str:
    """Return how far the network of a running search is tuned, where that is less than what was measured, and why."""
    return f"{tuned_kernels(covered, tasks)} in the network so far: the others are faster untuned, or were measured later"


def tuned_kernels(covered: int, tasks: int) -> str:
    """Return how far a network is tuned: ``"untuned"``, or ``"12 of 20 kernels tuned"``."""
    return f"{covered:,} of {plural(tasks, 'kernel')} tuned" if covered else "untuned"


def figures(value: float) -> str:
    """Return a number with three figures at least, and never with an exponent: ``"31,250"``, ``"0.50"``, ``"−1.92"``."""
    magnitude = abs(value)
    digits = 0 if magnitude >= 99.95 else 1 if magnitude >= 9.995 else 2
    return f"{value:,.{digits}f}".replace("-", "−")


def ratio(value: float | None) -> str:
    """Return how many times as fast something is: ``"47.1×"``."""
    return NONE if value is None else f"{figures(value)}×"


TIGHT = 1.1
"""A speed-up is written as one number if its interval ends within this many times its lower end."""

_TELLS_NOTHING = 30.0
"""A speed-up is not known if its interval reaches further than this: other work slowed one of the two networks alone."""

_HIDES_LATENCY = 3.0
"""A latency is called disturbed if the intervals of all its ratios reach further than this."""

NOT_KNOWN = "not known"


def over(speedup_text: str, runtime: str) -> str:
    """Return a speed-up with what it is over: ``"1.24× ONNX Runtime"``, ``"not known (ONNX Runtime)"``."""
    return f"{speedup_text} {f'({runtime})' if speedup_text == NOT_KNOWN else runtime}"


def speedup(value: float | None, low: float | None, high: float | None) -> str:
    """Return a speed-up as far as it is known: ``"1.24×"``, ``"between 1.2 and 3.9×"``, ``"about 1.24×"``, ``"not known"``.

    Args:
        value: The measured speed-up.
        low: Lower end of its interval; None if the measurement tells none.
        high: Upper end.
    """
    if value is None:
        return NONE
    if low is None or high is None:
        return f"about {ratio(value)}"
    if not is_wide(low, high):
        return ratio(value)
    if not is_known(low, high):
        return NOT_KNOWN
    return f"between {_two_figures(low)} and {_two_figures(high)}×"


def is_wide(low: float | None, high: float | None) -> bool:
    """Return whether an interval is too wide for `speedup` to write one number."""
    return low is not None and high is not None and high > TIGHT * low


def is_known(low: float | None, high: float | None) -> bool:
    """Return whether an interval says anything about a speed-up; a single measurement, which has none, says a little."""
    return low is None or high is None or high <= _TELLS_NOTHING * low


def is_disturbed(ratios: Iterable[tuple[float | None, float | None]]) -> bool:
    """Return whether the timing that ratios are of was disturbed, by the interval of each: there are some, and all are far too wide.

    A ratio of exactly one is of an artifact that fell back to the untuned network, so it tells nothing.
    """
    intervals = [interval for interval in ratios if interval != (1.0, 1.0)]
    return bool(intervals) and all(
        low is not None and high is not None and high > _HIDES_LATENCY * low for low, high in intervals
    )


def interval(low: float | None, high: float | None) -> str:
    """Return the interval of a speed-up: ``"1.21 to 1.27×"``; empty if there is none."""
    return "" if low is None or high is None else f"{figures(low)} to {figures(high)}×"


def other_work(quiet: bool | None) -> str:
    """Return what other work did to a measurement: ``"quiet"``, ``"disturbed"``, or ``"not watched"`` if nobody looked."""
    return "not watched" if quiet is None else "quiet" if quiet else "disturbed"


def _two_figures(value: float) -> str:
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"


def percent(share: float | None) -> str:
    """Return a share of 1 with two figures: ``"12 %"``, ``"1.2 %"``, ``"< 0.1 %"``; ``"> 99 %"`` is not all."""
    if share is None:
        return NONE
    if 0.995 <= share < 1 - 1e-9:
        return "> 99 %"
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{share * 100:.0f} %" if share >= 0.0995 else f"{share * 100:.1f} %"


def signed_percent(share: float | None) -> str:
    """Return a share, or a difference of shares, with one decimal: ``"50.0 %"``, ``"−3.1 %"``."""
    return NONE if share is None else f"{share * 100:.1f} %".replace("-", "−")


def change(share: float | None) -> str:
    """Return how much something grew or shrank, with its sign: ``"+6.0 %"``, ``"−3.1 %"``."""
    return NONE if share is None else f"{share * 100:+.1f} %".replace("-", "−")


def flops(count: float) -> str:
    """Return a number of floating-point operations: ``"1.82 G"``."""
    return f"{count / 1e6:.3g} M" if count < 1e9 else f"{count / 1e9:.3g} G"


def rate(per_sec: float | None, unit: str) -> str:
    """Return a rate in a unit (``"FLOP/s"``, ``"B/s"``): ``"272 GFLOP/s"``."""
    if per_sec is None:
        return NONE
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if per_sec >= 0.9995 * factor:
            return f"{figures(per_sec / factor)} {letter}{unit}"
    return f"{figures(per_sec)} {unit}"


def flops_per_sec(count: float | None, sec: float | None) -> str:
    """Return the rate of `count` floating-point operations in `sec` seconds, always in one unit: ``"31.5 GFLOP/s"``."""
    if not count or not sec:
        return NONE
    rate_g = count / sec / 1e9
    return f"{figures(rate_g) if rate_g >= 0.0995 else f'{rate_g:.3g}'} GFLOP/s"


def error(value: float) -> str:
    """Return a difference of numbers without a unit: ``"1.43e-5"``."""
    return f"{value:.2e}".replace("e-0", "e-").replace("e+0", "e+") if value else "0"


def temperature(celsius: float | None) -> str:
    """Return ``"47 °C"``."""
    return NONE if celsius is None else f"{celsius:.0f} °C"


def clock(mhz: float | None) -> str:
    """Return the frequency of a processor: ``"3.41 GHz"``."""
    return NONE if mhz is None else f"{mhz / 1000:.2f} GHz"


def shape(dims: Sequence[int | None], dtype: str = "") -> str:
    """Return ``"1×3×224×224 float32"``; a question mark for a dimension that depends on values."""
    return f"{'×'.join('?' if size is None else str(size) for size in dims) or 'scalar'} {dtype}".rstrip()


def tensor(spec: Mapping[str, object]) -> str:
    """Return the shape and the element type of a report's tensor (``{"shape": [...], "dtype": ...}``)."""
    return f"{_dims(spec)} {spec.get('dtype', '')}".rstrip()


def kernel_shapes(specs: Sequence[Mapping[str, object]]) -> str:
    """Return a kernel's arguments and, after an arrow, its result; the element type once where all have the same."""
    dtypes = {str(spec.get("dtype", "")) for spec in specs}
    texts = [_dims(spec) if len(dtypes) == 1 else tensor(spec) for spec in specs]
    joined = " → ".join(part for part in (", ".join(texts[:-1]), *texts[-1:]) if part)
    return f"{joined} {dtypes.pop()}".rstrip() if len(dtypes) == 1 else joined


def ascii_kernel_shapes(specs: Sequence[Mapping[str, object]]) -> str:
    """Return `kernel_shapes` in ASCII, for files that are read by eye and by ``grep``: ``"1x64, 64x128 -> 1x128 float32"``."""
    return kernel_shapes(specs).replace("×", "x").replace("→", "->")


def budget(limits: Mapping[str, Any], whole: str = "job") -> str:
    """Return the budget of a job, or of a whole sweep, in words: ``"10 min 00 s, 200 trials"``."""
    parts = []
    if limits.get("job_sec"):
        of_search = f", {duration(limits['wall_sec'])} of search" if limits.get("wall_sec") else ""
        parts.append(f"{duration(limits['job_sec'])} for the whole {whole}{of_search}")
    elif limits.get("wall_sec"):
        parts.append(duration(limits["wall_sec"]))
    if limits.get("trials"):
        parts.append(plural(limits["trials"], "trial"))
    if limits.get("patience_trials"):
        parts.append(f"until {plural(limits['patience_trials'], 'trial')} without a better kernel")
    if limits.get("min_gain_per_min"):
        parts.append(f"while a minute gains {percent(limits['min_gain_per_min'])}")
    return ", ".join(parts) or NONE


def _dims(spec: Mapping[str, object]) -> str:
    dims = spec.get("shape")
    return shape(dims) if isinstance(dims, list | tuple) else "scalar"
