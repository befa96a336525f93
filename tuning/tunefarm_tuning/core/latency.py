"""Latencies: raw samples and their median."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds per inference.

    Attributes:
        samples_sec: In measuring order; at least one. Each is the mean of as many inferences as the clock needs.
        threads: On how many threads kernels ran.
        inferences: Of how many each sample is the mean; empty where that is not known.
    """

    samples_sec: tuple[float, ...]
    threads: int
    inferences: tuple[int, ...] = ()

    @property
    def median_sec(self) -> float:
        return median(self.samples_sec)

    def to_json(self) -> dict[str, Any]:
        return {
            "median_sec": self.median_sec,
            "samples_sec": list(self.samples_sec),
            "threads": self.threads,
            "inferences": list(self.inferences),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Latency:
        return cls(
            samples_sec=tuple(data["samples_sec"]),
            threads=int(data["threads"]),
            inferences=tuple(data.get("inferences", ())),
        )

    @classmethod
    def of(cls, samples_sec: Iterable[float], threads: int, inferences: Iterable[int] = ()) -> Self:
        return cls(
            samples_sec=tuple(float(sample) for sample in samples_sec),
            threads=threads,
            inferences=tuple(inferences),
        )
