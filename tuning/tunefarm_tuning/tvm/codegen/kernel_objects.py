"""Object code of kernels for CPUs, each compiled once: a network, its variants and the check of a kernel link the same objects.

An object has one kernel, under a symbol of its digest. The digest is of the scheduled kernel, the target, the compilers and this code, so
that an object made by another process, in another compile, serves as well. A library names its kernels by assignments of symbols, in
a script for the linker.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import secrets
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import tvm
from tvm import tirx

from tunefarm_tuning.core.spans import SpanKind, span
from tunefarm_tuning.target.linker import link
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import IS_SCHEDULED
from tunefarm_tuning.tvm.codegen.onednn import onednn_object
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.kernels.library_products import CALLS_LIBRARY
from tunefarm_tuning.tvm.kernels.weight_packing import MARKS
from tunefarm_tuning.workload.revisions import code_revision

_CODEGEN_IGNORES = frozenset({"global_symbol", "op_pattern", IS_SCHEDULED, CALLS_LIBRARY, *MARKS})
"""Attributes of a kernel that do not change its code."""
_DIGEST_BYTES = 32
_MOST_COPIES = 8
_COPIES_SEC, _WAIT_SEC = 300.0, 0.005
_NUMBER_BYTES = 4
_FFI_PREFIX = "__tvm_ffi_"


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A kernel with the attributes alone that matter for its code, whether its code checks arguments, and its name in its object."""

    func: tirx.PrimFunc
    checked: bool
    symbol: str

    @classmethod
    def of(cls, func: tirx.PrimFunc, target: Target, *, checked: bool) -> _Kernel:
        unnamed = _for_codegen(func)
        checked = checked and not _has_fixed_shapes(unnamed)
        # Not TVM's structural hash: two kernels with one hash can be made on purpose.
        code = hashlib.sha256(tvm.ir.save_json(unnamed).encode()).hexdigest()
        text = json.dumps([code, checked, target.to_json(), toolchain_key(), code_revision()], sort_keys=True)
        return cls(unnamed, checked, f"kernel_{hashlib.sha256(text.encode()).hexdigest()[:32]}")


@dataclass(frozen=True, slots=True)
class KernelObjects:
    """A folder of objects.

    Concurrency: any number of processes; an object appears complete or not at all. A damaged one is compiled anew.

    Attributes:
        folder: Where they lie. It exists.
    """

    folder: Path

    def object_of(self, func: tirx.PrimFunc, target: Target, *, checked: bool = True) -> Path:
        """Return the object of a kernel; compile it unless it is there.

        Args:
            func: The scheduled kernel.
            target: A CPU.
            checked: Whether the kernel checks shapes of its arguments that are known only when it runs. Those of fixed shapes are never
                checked: they are the network's own, or those of a check.
        """
        return self._made(_Kernel.of(func, target, checked=checked), target)

    def _made(self, kernel: _Kernel, target: Target) -> Path:
        """Return the object of a kernel; compile it unless it is there."""
        path = self._path(kernel)
        if _is_whole(path):
            return path
        module = tvm.IRModule({path.stem: kernel.func.with_attr("global_symbol", path.stem)})
        config = {**SPLIT_TAILS, "tirx.disable_assert": not kernel.checked}
        with (
            tvm.transform.PassContext(config=config),
            span("LLVM: a kernel", SpanKind.LLVM),
        ):
            fresh = self.folder / f".{path.stem}-{secrets.token_hex(8)}.o"
            tirx.build(module, tvm_target(target)).write_to_file(str(fresh), "o")
            with fresh.open("r+b") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
                file.write(digest)  # behind the last section, where no linker looks
            fresh.replace(path)
        return path

    def compile_all(self, kernels: Iterable[tirx.PrimFunc], target: Target, *, checked: bool = True) -> None:
        """Compile the kernels whose objects are not there, on all cores.

        Each core has a copy of this process, which takes one kernel after the other. What fails there, or kills it, fails again, in
        this process, when its object is asked for. A copy that hangs is ended after five minutes.
        """
        self._make_all([_Kernel.of(func, target, checked=checked) for func in kernels], target)

    def _make_all(self, kernels: Iterable[_Kernel], target: Target) -> None:
        missing = list(
            {kernel.symbol: kernel for kernel in kernels if not _is_whole(self._path(kernel))}.values()
        )
        cores = min(len(os.sched_getaffinity(0)), _MOST_COPIES, len(missing))
        if len(missing) < 2 or cores < 2:
            return
        with (
            span(f"LLVM: {len(missing)} kernels on {cores} cores", SpanKind.LLVM),
            _numbers(len(missing)) as next_number,
        ):
            copies = []
            for _ in range(cores):
                try:
                    process = os.fork()
                except OSError:  # too little memory, or too many processes
                    break
                if process == 0:
                    self._compile_in_copy(missing, next_number, target)
                copies.append(process)
            _wait_for(copies, time.monotonic() + _COPIES_SEC)

    def _compile_in_copy(
        self, kernels: Sequence[_Kernel], next_number: Callable[[], int | None], target: Target
    ) -> NoReturn:
        """Compile kernels in a copy of the process, and end it without the clean-up that is the original's."""
        gc.disable()  # the original's garbage may wait for threads that a copy does not have
        try:
            while (number := next_number()) is not None:
                with suppress(Exception):
                    self.object_of(kernels[number].func, target, checked=kernels[number].checked)
        finally:
            os._exit(0)

    def _path(self, kernel: _Kernel) -> Path:
        return self.folder / f"{kernel.symbol}.o"

    def files(
        self, kernels: Mapping[str, tirx.PrimFunc], target: Target, folder: Path, *, checked: bool = True
    ) -> list[Path]:
        """Return what to link for a library with these kernels, by their names there: objects and, in `folder`, a script."""
        named = {name: _Kernel.of(func, target, checked=checked) for name, func in kernels.items()}
        self._make_all(named.values(), target)
        objects = {name: self._made(kernel, target) for name, kernel in named.items()}
        script = folder / "names.ld"
        script.write_text(
            "".join(f"{_FFI_PREFIX}{name} = {_FFI_PREFIX}{path.stem};\n" for name, path in objects.items()),
            encoding="ascii",
        )
        if any(CALLS_LIBRARY in func.attrs for func in kernels.values()):
            objects["onednn"] = onednn_object(self.folder)
        return [*dict.fromkeys(objects.values()), script]

    def link(
        self,
        kernels: Mapping[str, tirx.PrimFunc],
        target: Target,
        output: Path,
        *,
        checked: bool = True,
    ) -> None:
        """Write a library with these kernels, by their names there."""
        with tempfile.TemporaryDirectory(prefix="names-", dir=output.parent) as folder:
            files = self.files(kernels, target, Path(folder), checked=checked)
            with span("link", SpanKind.LINK):
                link(files, output, target)


@contextmanager
def _numbers(count: int) -> Iterator[Callable[[], int | None]]:
    """Give what returns the next of the numbers below `count`, in whichever copy of this process it is called; None at the end.

    So a copy whose kernels take little time compiles more of them. Numbers that do not fit into a pipe are left out.
    """
    reads, writes = os.pipe()
    try:
        os.set_blocking(writes, False)
        with suppress(BlockingIOError):
            for number in range(count):
                os.write(writes, number.to_bytes(_NUMBER_BYTES, "little"))
    finally:
        os.close(writes)

    def next_number() -> int | None:
        data = os.read(reads, _NUMBER_BYTES)
        return int.from_bytes(data, "little") if data else None

    try:
        yield next_number
    finally:
        os.close(reads)


def _wait_for(copies: list[int], until: float) -> None:
    """Wait for copies of the process; end those that are not done in time: a copy has what locks other threads held."""
    while copies:
        copies = [process for process in copies if os.waitpid(process, os.WNOHANG) == (0, 0)]
        if copies and time.monotonic() > until:
            for process in copies:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
            return
        time.sleep(_WAIT_SEC if copies else 0.0)


def _is_whole(path: Path) -> bool:
    """Return whether an object is there and undamaged, and note that it is used, for `core.kept_files.prune`."""
    try:
        data = path.read_bytes()
        os.utime(path)
    except OSError:
        return False
    return hashlib.sha256(data[:-_DIGEST_BYTES]).digest() == data[-_DIGEST_BYTES:]


@contextmanager
def kernel_objects(objects: KernelObjects | None = None) -> Iterator[KernelObjects]:
    """Return the given objects; without any, a folder for the length of the block."""
    if objects is not None:
        yield objects
        return
    with tempfile.TemporaryDirectory(prefix="kernel-objects-") as folder:
        yield KernelObjects(Path(folder))


def _for_codegen(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel with the attributes that matter for its code, in one order whatever was done to it before."""
    attributes = dict(func.attrs.items())
    for name in attributes:
        func = func.without_attr(name)
    return func.with_attr({name: attributes[name] for name in sorted(attributes.keys() - _CODEGEN_IGNORES)})


def _has_fixed_shapes(func: tirx.PrimFunc) -> bool:
    """Return whether all arguments are tensors of known shapes."""
    types: Iterable[Any] = (param.ty for param in func.params)
    return all(
        all(isinstance(size, tirx.IntImm) for size in getattr(of_param, "shape", (None,)))
        for of_param in types
    )
