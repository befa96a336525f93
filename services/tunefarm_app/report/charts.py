"""The geometry of the report's charts. Tables beside them hold the same figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tunefarm_app.report.document import JobReport, ReportKernel
from tunefarm_app.report.sections import ReportLatency, ReportTiming
from tunefarm_text.job_terms import RUNTIMES
from tunefarm_text.quantities import plural, seconds, signed_percent, tick

WIDTH = 720
_LABEL = 132
_RIGHT = 14
_ROW = 40
_TOP = 6
_LOG_FROM = 8.0
_LARGEST = 6
_LEAST_SHARE_WITH_LABEL = 0.07


@dataclass(frozen=True, slots=True, kw_only=True)
class StripRow:
    """One runtime: its samples as dots, their range as a line, the median as a mark."""

    key: str
    label: str
    value: str
    y: float
    dots: tuple[float, ...]
    low: float
    high: float
    median: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """Samples of several runtimes on one axis.

    Attributes:
        ticks: Position and text.
        zero: Where the axis begins.
        bottom: Of the rows; the ticks' texts are below.
        logarithmic: Whether the axis is logarithmic; only on a linear one are bars drawn from zero.
    """

    rows: tuple[StripRow, ...]
    ticks: tuple[tuple[float, str], ...]
    zero: float
    bottom: float
    height: float
    logarithmic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a stacked bar. `color` counts from 0; -1 is all other kernels, -2 the remainder."""

    name: str
    color: int
    x: float
    width: float
    share: str
    labelled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stacked bar of a whole inference."""

    label: str
    total: str
    segments: tuple[Segment, ...]


def latency_strip(latency: ReportLatency) -> Strip:
    """Return the chart of the network's latencies."""
    timings: list[tuple[str, str, ReportTiming]] = []
    timings += [
        (name.replace("_", "-"), RUNTIMES.get(name, name), timing)
        for name, timing in latency.others().items()
    ]
    timings.append(("untuned", "TVM, untuned", latency.untuned))
    if latency.rejected is not None:
        timings.append(("rejected", "TVM, rejected", latency.rejected))
    if not latency.tuned_is_untuned:
        timings.append(("tuned", "The artifact", latency.tuned))
    low = min(timing.min_sec for _, _, timing in timings)
    high = max(timing.max_sec for _, _, timing in timings)
    axis = _Axis(low, high)
    rows = tuple(
        StripRow(
            key=key,
            label=label,
            value=seconds(timing.median_sec),
            y=_TOP + _ROW * (number + 0.5),
            dots=tuple(axis.x_of(sample) for sample in timing.samples_sec),
            low=axis.x_of(timing.min_sec),
            high=axis.x_of(timing.max_sec),
            median=axis.x_of(timing.median_sec),
        )
        for number, (key, label, timing) in enumerate(timings)
    )
    bottom = _TOP + _ROW * len(rows)
    return Strip(
        rows=rows,
        ticks=tuple((axis.x_of(value), tick(value)) for value in axis.ticks()),
        zero=_LABEL,
        bottom=bottom,
        height=bottom + 24,
        logarithmic=axis.logarithmic,
    )


class _Axis:
    """Maps seconds to x positions: linear from zero, or logarithmic if the timings differ widely."""

    def __init__(self, low: float, high: float) -> None:
        self.logarithmic = low > 0 and high / low > _LOG_FROM
        self._low, self._high = (low / 1.25, high * 1.25) if self.logarithmic else (0.0, high * 1.08 or 1.0)

    def x_of(self, value: float) -> float:
        if self.logarithmic:
            share = math.log(value / self._low) / math.log(self._high / self._low)
        else:
            share = value / self._high
        return round(_LABEL + share * (WIDTH - _LABEL - _RIGHT), 2)

    def ticks(self) -> list[float]:
        if not self.logarithmic:
            step = _round_step(self._high / 5)
            return [step * number for number in range(int(self._high / step) + 1)]
        decades = range(math.floor(math.log10(self._low)), math.ceil(math.log10(self._high)) + 1)
        steps = (1, 2, 5) if self._high / self._low < 300 else (1,)
        values = [step * 10.0**decade for decade in decades for step in steps]
        return [value for value in values if self._low <= value <= self._high]


def _round_step(about: float) -> float:
    power = 10.0 ** math.floor(math.log10(about))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= about)


def time_stacks(report: JobReport) -> tuple[Stack, ...]:
    """Return two bars, before and after: the slowest kernels, all other kernels, and the remainder."""
    if report.breakdown is None or report.latency is None:
        return ()
    timed = [
        kernel for kernel in report.kernels if kernel.before_sec is not None and kernel.after_sec is not None
    ]
    before, after = (sum(_times(timed, which)) for which in (0, 1))
    by_share = sorted(
        timed,
        key=lambda kernel: max(
            (kernel.before_sec or 0) / (before or 1), (kernel.after_sec or 0) / (after or 1)
        ),
        reverse=True,
    )
    largest = by_share[:_LARGEST]
    parts = report.breakdown
    stacks = [
        _stack("Untuned", 0, largest, timed, report.latency.untuned.median_sec, parts.rest_before_sec),
        _stack("In the artifact", 1, largest, timed, report.latency.tuned.median_sec, parts.rest_after_sec),
    ]
    return tuple(stacks)


def _stack(
    label: str,
    which: int,
    largest: Sequence[ReportKernel],
    timed: Sequence[ReportKernel],
    total_sec: float,
    rest_sec: float,
) -> Stack:
    sizes = [(kernel.name, number, _times([kernel], which)[0]) for number, kernel in enumerate(largest)]
    others = sum(_times(timed, which)) - sum(size for _, _, size in sizes)
    if len(timed) > len(largest):
        sizes.append((plural(len(timed) - len(largest), "other kernel"), -1, max(0.0, others)))
    sizes.append(("remainder", -2, rest_sec))
    total = sum(size for _, _, size in sizes) or 1.0  # the whole inference: `ReportBreakdown` adds up
    segments, x = [], 0.0
    for name, color, size in sizes:
        width = size / total * WIDTH
        segments.append(
            Segment(
                name=name,
                color=color,
                x=round(x, 2),
                width=round(width, 2),
                share=signed_percent(size / total),
                labelled=size / total >= _LEAST_SHARE_WITH_LABEL,
            )
        )
        x += width
    return Stack(label=label, total=seconds(total_sec), segments=tuple(segments))


def _times(kernels: Sequence[ReportKernel], which: int) -> list[float]:
    return [(kernel.before_sec if which == 0 else kernel.after_sec) or 0.0 for kernel in kernels]
