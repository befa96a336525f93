"""Other algorithms and libraries that compute kernels: their names, and what an artifact is by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

WINOGRAD = "winograd"
_LIBRARIES: Mapping[str, str] = {"onednn": "oneDNN", "cudnn": "cuDNN", "cublas": "cuBLAS"}


def algorithm_title(algorithm: str, library: str = "") -> str:
    """Return an algorithm's name for people: ``"Winograd"``, ``"oneDNN 3.9.1"``.

    Args:
        algorithm: Its key in reports: ``"winograd-4"``, ``"onednn"``.
        library: Name and version of the library that computes it, as reports have it; empty if none does.
    """
    if algorithm.partition("-")[0] == WINOGRAD:
        return WINOGRAD.capitalize()
    title = _LIBRARIES.get(algorithm, algorithm)
    version = library.removeprefix(algorithm).strip()
    return f"{title} {version}" if version else title


def artifact_kind(covered: int | None, algorithms: Iterable[str] = ()) -> str:
    """Return what an artifact is: ``"tuned"``, ``"untuned"``, or ``"not tuned, with oneDNN and Winograd"``.

    Args:
        covered: Number of its tasks with a tuned kernel; None if unknown, then it is called tuned.
        algorithms: Other algorithms in it, by their keys.
    """
    if covered is None or covered:
        return "tuned"
    titles = sorted({algorithm_title(algorithm) for algorithm in algorithms}, key=str.lower)
    return f"not tuned, with {' and '.join(titles)}" if titles else "untuned"


def kind_of_report(report: Mapping[str, Any] | None) -> str:
    """Return `artifact_kind` of a report: a job's, or the compiler's, which is in the artifact."""
    report = report or {}
    coverage, alternatives = report.get("coverage"), report.get("alternatives")
    if isinstance(alternatives, Mapping):
        alternatives = alternatives.get("candidates")
    covered = coverage.get("covered") if isinstance(coverage, Mapping) else None
    return artifact_kind(
        covered if isinstance(covered, int) else None,
        [
            str(entry.get("algorithm", ""))
            for entry in (alternatives if isinstance(alternatives, list) else ())
            if isinstance(entry, Mapping) and entry.get("chosen")
        ],
    )
