"""The runtimes beside which a network can be timed, by the names that users ask for them by."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata

from tunefarm_text.job_terms import BASELINES
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineKind:
    """A runtime, set up in one way.

    Attributes:
        name: In options and reports.
        package: What it is imported as.
        distribution: What it is installed as.
        opener: The module and the function (`runtime.OpenRuntime`) that open a network in it, for child processes.
        reads_onnx: Whether it reads ONNX files; all read TFLite files.
    """

    name: str
    package: str
    distribution: str
    opener: tuple[str, str]
    reads_onnx: bool

    @property
    def title(self) -> str:
        """Its name for people."""
        return BASELINES[self.name]


_OPENVINO, _LITERT = "tunefarm_tuning.measure.baselines.openvino", "tunefarm_tuning.measure.baselines.litert"

KINDS: Mapping[str, BaselineKind] = {
    kind.name: kind
    for kind in (
        BaselineKind(
            name="openvino",
            package="openvino",
            distribution="openvino",
            opener=(_OPENVINO, "open_float32"),
            reads_onnx=True,
        ),
        BaselineKind(
            name="openvino_default",
            package="openvino",
            distribution="openvino",
            opener=(_OPENVINO, "open_default"),
            reads_onnx=True,
        ),
        BaselineKind(
            name="litert",
            package="ai_edge_litert",
            distribution="ai-edge-litert",
            opener=(_LITERT, "LiteRtRuntime"),
            reads_onnx=False,
        ),
    )
}
"""All but ONNX Runtime."""


def parse_baselines(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return the runtimes of a list, or of a text with commas, without ONNX Runtime, in the order of `KINDS`.

    Raises:
        InvalidInputError: ``unknown-baseline``.
    """
    texts = names.split(",") if isinstance(names, str) else list(names)
    asked = {text.strip().lower().replace("-", "_"): text for text in texts if text.strip()}
    for name, text in asked.items():
        if name not in BASELINES:
            raise InvalidInputError(
                f"there is no baseline {clean(text.strip(), 40)!r}; the baselines are {', '.join(BASELINES)}",
                code="unknown-baseline",
                known=list(BASELINES),
            )
    return tuple(name for name in KINDS if name in asked)


def is_installed(kind: BaselineKind) -> bool:
    """Return whether this environment has a runtime; it is not imported."""
    return importlib.util.find_spec(kind.package) is not None


def installed_version(kind: BaselineKind) -> str | None:
    """Return the version of a runtime in this environment; None if it is not installed."""
    try:
        return metadata.version(kind.distribution) if is_installed(kind) else None
    except metadata.PackageNotFoundError:
        return "unknown"


NOT_INSTALLED = "not installed on the device (pip install 'tunefarm[baselines]')"
"""What to tell of a runtime that is missing where the network runs."""


def why_refused(kind: BaselineKind, *, is_tflite: bool) -> str:
    """Return why a runtime cannot read a file, by its format; empty if it can."""
    return (
        "" if is_tflite or kind.reads_onnx else "it reads only TFLite files, and the network's file is ONNX"
    )
