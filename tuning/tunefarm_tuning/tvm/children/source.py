"""Child process of `compiler.kernel_source`: return a config's kernel as scheduled TensorIR and as generated code.

Handlers:

- `source`: ``ir``, ``target``, ``config``, ``space_key`` (the record's; null where the config is of no record and may apply as another),
  ``limit_bytes`` -> a list of ``kind`` (``"schedule"``, ``"llvm"``, ``"asm"``, ``"cuda"``), ``text``, ``size_bytes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock
from tvm.tirx import build

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean, clean_lines
from tunefarm_tuning.process import Handlers
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.resources import with_deep_stack
from tunefarm_tuning.tvm.base.serialization import module_from_text
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.tasks.apply_record import apply_recorded

_FORMATS = {"llvm": "ll", "asm": "s"}


def source(params: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the texts, each cut to the limit.

    Raises:
        InvalidInputError: ``"space-changed"`` or ``"does-not-apply"``.
    """
    return with_deep_stack(lambda: _source(params))


def _source(params: dict[str, Any]) -> list[dict[str, Any]]:
    target = Target.from_json(params["target"])
    scheduled = _schedule(params, target)
    limit_bytes = int(params["limit_bytes"])
    return [_cut(kind, text, limit_bytes) for kind, text in _texts(scheduled, target)]


def _schedule(params: dict[str, Any], target: Target) -> tvm.IRModule:
    config = Config.from_json(params["config"])
    schedule = apply_recorded(module_from_text(params["ir"]), target, config, params["space_key"])
    # measured kernels are built from the same module
    module: tvm.IRModule = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)
    return module


def _texts(module: tvm.IRModule, target: Target) -> Iterator[tuple[str, str]]:
    yield "schedule", str(module["main"].script())
    try:
        # Without the wrapper's checks of its arguments, as candidates are built.
        with tvm.transform.PassContext(config={**SPLIT_TAILS, "tirx.disable_assert": True}):
            built = build(module, target=tvm_target(target))
    except MemoryError:
        raise
    except Exception as error:
        raise InvalidInputError(
            f"the kernel does not build: {clean(str(error), 300)}", code="does-not-apply"
        ) from error
    if target.kind == "cuda":
        # The host's code only launches the kernel.
        for device in built.imports:
            yield "cuda", str(device.inspect_source("cuda"))
        return
    for kind, form in _FORMATS.items():
        yield kind, str(built.inspect_source(form))


def _cut(kind: str, text: str, limit_bytes: int) -> dict[str, Any]:
    """Return a text without terminal escapes, cut after a full line if it exceeds the limit."""
    data = clean_lines(text).encode()
    size_bytes = len(data)
    if size_bytes > limit_bytes:
        data = data[: data.rfind(b"\n", 0, limit_bytes) + 1] or data[:limit_bytes]
    return {"kind": kind, "text": data.decode(errors="ignore"), "size_bytes": size_bytes}


HANDLERS: Handlers = {"source": source}
