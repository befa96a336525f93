"""Scheduled kernels that are kept beside their objects: applying a config of a record takes a tenth of a second, reading its result none."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.tvm.default_schedules.schedule import use_keeper
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel, Packing
from tunefarm_tuning.workload.revisions import code_revision

_FUNC = "func"
_RULES = ("base", "default_schedules", "kernels")
"""Folders of the code that default schedules depend on."""


def kept_schedule(
    folder: Path,
    workload_key: str,
    record: dict[str, Any],
    target: Target,
    schedule: Callable[[], PackedKernel],
) -> PackedKernel:
    """Return a scheduled kernel from a folder; schedule it, and write it there, unless it is there.

    Concurrency: any number of processes; a damaged file counts as none.

    Args:
        folder: It exists.
        workload_key: The workload.
        record: JSON: its config, and the key of its config space.
        target: The target.
        schedule: Schedules it; its errors reach the caller, and are not kept.
    """
    facts = [workload_key, record, target.to_json(), toolchain_key(), code_revision()]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
    path = folder / f"schedule_{digest}.json"
    with suppress(
        Exception
    ):  # TVM has many error types; whatever the file holds, the kernel can be scheduled
        kernel = _read(path.read_bytes())
        os.utime(path)  # it is used: see `core.kept_files.prune`
        return kernel
    kernel = schedule()
    with suppress(OSError):
        fresh = path.with_name(f".{path.stem}-{secrets.token_hex(8)}.json")
        fresh.write_bytes(_written(kernel))
        fresh.replace(path)
    return kernel


def keep_default_schedules(folder: Path) -> None:
    """Have this process take kernels from a folder that others have scheduled by rule, and put there what it schedules."""

    def kept(func: tirx.PrimFunc, target: Target, schedule: Callable[[], tirx.PrimFunc]) -> tirx.PrimFunc:
        # Not TVM's structural hash: see `kernel_objects`.
        digest = hashlib.sha256(tvm.ir.save_json(func).encode()).hexdigest()
        record = {"rules": _rules()}
        return kept_schedule(folder, digest, record, target, lambda: PackedKernel(func=schedule())).func

    use_keeper(kept)


@cache
def _rules() -> str:
    """Return a digest of the code that schedules by rule: it changes more often than records of configs may lose their meaning."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for folder in _RULES:
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _written(kernel: PackedKernel) -> bytes:
    """Return a kernel as bytes that begin with their own SHA-256."""
    packings = sorted(kernel.packings.items())
    maps = {str(number): packing.index_map for number, packing in packings}
    text = json.dumps(
        {
            "nodes": str(tvm.ir.save_json(tvm.runtime.convert({_FUNC: kernel.func, **maps}))),
            "packings": [
                [number, packing.shape, packing.packed_shape, packing.dtype] for number, packing in packings
            ],
        }
    ).encode()
    return hashlib.sha256(text).hexdigest().encode() + text


def _read(data: bytes) -> PackedKernel:
    digest, text = data[:64], data[64:]
    if hashlib.sha256(text).hexdigest().encode() != digest:
        raise ValueError("the file is damaged")
    kept = json.loads(text)
    nodes = tvm.ir.load_json(kept["nodes"])
    func = nodes[_FUNC]
    if not isinstance(func, tirx.PrimFunc):
        raise TypeError("the file holds no kernel")
    return PackedKernel(
        func=func,
        packings={
            int(number): Packing(
                shape=tuple(shape),
                packed_shape=tuple(packed_shape),
                dtype=dtype,
                index_map=nodes[str(number)],
            )
            for number, shape, packed_shape, dtype in kept["packings"]
        },
    )
