"""Child process: a network in another runtime, to be timed and to be compared with the reference.

Handlers: `open` first; `sample` then runs what is open.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.array_file import load_arrays
from tunefarm_tuning.core.errors import InvariantError
from tunefarm_tuning.core.spans import SpanKind, span
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.baselines.runtime import NetworkFile, OpenRuntime, Runtime
from tunefarm_tuning.measure.baselines.runtimes import KINDS, NOT_INSTALLED, BaselineKind
from tunefarm_tuning.measure.timing_blocks import warm_call_sec, watched_sample
from tunefarm_tuning.reference.comparison import compare_outputs
from tunefarm_tuning.reference.widths import load_widths

_open: Runtime | None = None


@span("open another runtime", SpanKind.TIMING)
def open_(params: dict[str, Any]) -> dict[str, Any]:
    """Open a network, run it, and compare its outputs as the artifact's are compared.

    Args:
        params: ``kind`` (of `runtimes.KINDS`), ``path``, ``names`` (of the inputs), ``inputs`` (a file of arrays), ``constants``,
            ``threads``; ``outputs`` (their names), ``expected`` and ``widths`` (files; the latter may be null), ``rounding``.

    Returns:
        ``missing``: why it does not run; empty if it does. Then ``first_sec``: how long an inference takes, roughly; ``version``;
        ``computes``; ``checks`` (`baseline.BaselineFacts`).
    """
    global _open
    kind = KINDS[params["kind"]]
    network = NetworkFile(
        path=Path(params["path"]),
        inputs=dict(zip(params["names"], load_arrays(params["inputs"]), strict=True)),
        constants=params["constants"],
        threads=params["threads"],
    )
    opener = _opener(kind)
    if isinstance(opener, str):
        return {"missing": opener}
    try:
        runtime = opener(network)
        first_sec = warm_call_sec(runtime.run)
        checks = _compare(runtime, params)
    except Exception as error:  # noqa: BLE001  (runtimes raise anything; a baseline never fails a compile)
        return {"missing": f"it does not run the network: {_in_short(error, network.path)}"}
    _open = runtime
    return {
        "missing": "",
        "first_sec": first_sec,
        "version": runtime.version,
        "computes": runtime.computes,
        "checks": checks,
    }


def _opener(kind: BaselineKind) -> OpenRuntime | str:
    """Return what opens a network; or why the runtime cannot be imported."""
    module, function = kind.opener
    try:
        opener: OpenRuntime = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == kind.package:
            return NOT_INSTALLED
        return f"it cannot be imported: {_in_short(error)}"
    except Exception as error:  # noqa: BLE001  (a library of it may be missing, or refuse this CPU)
        return f"it cannot be imported: {_in_short(error)}"
    return opener


def _in_short(error: Exception, path: Path | None = None) -> str:
    """Return the line of an error's text that says most: the last one. It names neither OpenVINO's source files nor the network's."""
    text = str(error) if path is None else str(error).replace(str(path), path.name)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Exception from", "Check '"))] or lines
    return clean(telling[-1] if telling else type(error).__name__, 200)


def _compare(runtime: Runtime, params: dict[str, Any]) -> dict[str, Any]:
    expected = load_arrays(params["expected"])
    outputs = runtime.outputs()
    if len(outputs) == len(
        expected
    ):  # integers of another width are another representation, not another result
        outputs = [
            array.astype(wanted.dtype) if array.dtype.kind == wanted.dtype.kind else array
            for array, wanted in zip(outputs, expected, strict=True)
        ]
    comparisons = compare_outputs(
        params["outputs"],
        outputs,
        expected,
        rounding=params["rounding"],
        widths=load_widths(params["widths"]),
    )
    return {
        "ok": all(comparison.ok for comparison in comparisons),
        **{
            error: max((getattr(comparison, error) for comparison in comparisons), default=0.0)
            for error in ("max_abs_error", "max_rel_error", "mean_rel_error")
        },
        "message": next(
            (clean(comparison.message, 200) for comparison in comparisons if not comparison.ok), ""
        ),
    }


@span("time another runtime", SpanKind.TIMING)
def sample(params: dict[str, Any]) -> dict[str, Any]:
    """Return `watched_sample` of ``number`` inferences."""
    return watched_sample(_get().run, params["number"])


def _get() -> Runtime:
    if _open is None:
        raise InvariantError("no network is open")
    return _open


HANDLERS = {"open": open_, "sample": sample}
