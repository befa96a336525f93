"""Compile CUDA C to machine code with ``nvcc``, and read what its assembler says of each kernel."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process.lifeline import adopt_orphans, end_orphans
from tunefarm_tuning.target.gpu_launch import KernelResources
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import check_can_build

_TIMEOUT_SEC = 600.0  # a builder's own limit is shorter, and ends the compiler with its child process
_END_SEC = 5.0
_MOST_KEPT = 512
_ELF = b"\x7fELF"
_LANES = b"""
template <typename Vector, typename Element, typename... Others>
static __device__ __forceinline__ Vector lanes_of(Element first, Others... others) {
  static_assert(sizeof(Vector) == sizeof(Element) * (1 + sizeof...(Others)));
  const Element elements[] = {first, static_cast<Element>(others)...};
  Vector vector;
  for (int i = 0; i < 1 + sizeof...(Others); ++i) reinterpret_cast<Element*>(&vector)[i] = elements[i];
  return vector;
}
#define TWO(E) E a, E b
#define FOUR(E) TWO(E), E c, E d
#define EIGHT(E) FOUR(E), E e, E f, E g, E h
template <typename E> static __device__ __forceinline__ longlong4 make_longlong4(EIGHT(E)) { return lanes_of<longlong4>(a, b, c, d, e, f, g, h); }
template <typename E> static __device__ __forceinline__ ulonglong4 make_ulonglong4(EIGHT(E)) { return lanes_of<ulonglong4>(a, b, c, d, e, f, g, h); }
template <typename E> static __device__ __forceinline__ uint4 make_uint4(EIGHT(E)) { return lanes_of<uint4>(a, b, c, d, e, f, g, h); }
template <typename E> static __device__ __forceinline__ uint2 make_uint2(FOUR(E)) { return lanes_of<uint2>(a, b, c, d); }
template <typename E> static __device__ __forceinline__ uint1 make_uint1(TWO(E)) { return lanes_of<uint1>(a, b); }
#undef EIGHT
#undef FOUR
#undef TWO
#line 1
"""
"""TVM 0.27 keeps eight integers of 32 bits in a ``longlong4``, and two, four or eight elements of 16 bits in a ``uint1``, ``uint2`` or
``uint4``. It makes these of as many numbers, for which CUDA has no functions."""
_FEW_KERNELS = 8


@dataclass(frozen=True, slots=True)
class MachineCode:
    """A *cubin*, which is an ELF file, and the resources of its kernels."""

    data: bytes
    kernels: tuple[KernelResources, ...]


def compile_all(sources: Iterable[bytes], target: Target, work_dir: Path) -> None:
    """Compile sources on all cores, so that `compile_cuda` has their machine code at hand. It says what is wrong with those that fail."""

    def compile_one(source: bytes) -> None:
        with contextlib.suppress(InvalidInputError, OSError):
            compile_cuda(source, target, work_dir)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for _ in pool.map(compile_one, dict.fromkeys(sources)):
            pass


def compile_cuda(source: bytes, target: Target, work_dir: Path) -> MachineCode:
    """Return the machine code of CUDA C for a target's architecture. The last sources that this process compiled are not compiled again.

    TVM would pass ``--use_fast_math``; it is left out, as its ``tanh`` is off by 5e-4, and its divisions and roots by more than
    one ULP.

    ``nvcc`` stays in this process's group, so that ending the group ends its compilers too. After a time limit it is ended here.

    Args:
        source: CUDA C as TVM generates it.
        target: A target of kind ``cuda``.
        work_dir: Parent of the temporary folder for the compiler's files.

    Raises:
        InvalidInputError: ``no-cuda-compiler``, ``cuda-compiler-unfit``; ``cuda-compile-failed`` if it refuses the source,
            or takes too long.
    """
    nvcc = check_can_build(target)
    number = str(target.get("arch")).removeprefix("sm_")
    key = number, hashlib.sha256(source).digest()
    with _lock:
        if (kept := _recent.get(key)) is not None:
            return kept
    with tempfile.TemporaryDirectory(prefix="nvcc-", dir=work_dir) as folder:
        path, output = Path(folder, "kernels.cu"), Path(folder, "kernels.cubin")
        path.write_bytes(_LANES + source)
        command = [
            str(nvcc),
            *("-cubin", "-O3", "-w", "--expt-relaxed-constexpr", "-Xptxas", "-v"),
            *("-gencode", f"arch=compute_{number},code=sm_{number}"),
            *(["--split-compile=0"] if source.count(b"__global__") > _FEW_KERNELS else []),
            *("-o", str(output), str(path)),
        ]
        code, text = _run(command, {**os.environ, "TMPDIR": folder})
        data = output.read_bytes() if code == 0 and output.is_file() else b""
        if not data.startswith(_ELF):
            raise InvalidInputError(f"nvcc: {_reason(text.replace(folder, ''))}", code="cuda-compile-failed")
        result = MachineCode(data, read_resources(text))
    with _lock:
        while len(_recent) >= _MOST_KEPT:
            del _recent[next(iter(_recent))]
        _recent[key] = result
    return result


_lock = threading.Lock()
_recent: dict[tuple[str, bytes], MachineCode] = {}
"""By architecture and the source's digest, oldest first."""
_KERNEL = re.compile(r"Compiling entry function '(?P<kernel>[^']+)'")
_FUNCTION = re.compile(r"Function properties for (?P<function>\S+)")
_FRAME = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
)
_USED = re.compile(r"Used (?P<registers>\d+) registers(?P<others>.*)")
_SHARED = re.compile(r"\b(\d+) bytes smem")


def read_resources(text: str) -> tuple[KernelResources, ...]:
    """Read what ``ptxas -v`` reports of each kernel, in its order; functions that kernels call are left out."""
    kernels = []
    kernel, function, frame = "", "", (0, 0, 0)
    for line in text.splitlines():
        if match := _KERNEL.search(line):
            kernel = function = match["kernel"]
            frame = 0, 0, 0
        elif match := _FUNCTION.search(line):
            function = match["function"]
        elif function == kernel and (match := _FRAME.search(line)):
            frame = int(match["stack"]), int(match["stores"]), int(match["loads"])
        elif kernel and (match := _USED.search(line)):
            shared = _SHARED.search(match["others"])
            kernels.append(
                KernelResources(
                    kernel=kernel,
                    registers=int(match["registers"]),
                    stack_bytes=frame[0],
                    spill_store_bytes=frame[1],
                    spill_load_bytes=frame[2],
                    static_bytes=int(shared[1]) if shared else 0,
                )
            )
            kernel = ""
    return tuple(kernels)


_running: set[int] = set()
"""Compilers of this process's threads: ending one must not end the others."""


def _run(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Return a compiler's exit code and output."""
    adopt_orphans()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        _running.add(process.pid)
        try:
            output, errors = process.communicate(timeout=_TIMEOUT_SEC)
        except subprocess.TimeoutExpired:
            _end(process)
            raise InvalidInputError(
                f"nvcc: it was not done within {_TIMEOUT_SEC:g} s", code="cuda-compile-failed"
            ) from None
        except BaseException:
            _end(process)
            raise
        finally:
            _running.discard(process.pid)
    return process.returncode, (errors + output).decode("utf-8", "replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End ``nvcc`` and the compilers that it runs, which are this process's own once it is gone."""
    process.kill()
    process.wait()
    _running.discard(process.pid)
    end_orphans(_running, within_sec=_END_SEC)


def _reason(text: str) -> str:
    """Return the first line of a compiler's output that names an error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"\b(error|fatal|killed)\b", line, re.IGNORECASE)]
    return clean((telling or lines or ["it failed, and gave no reason"])[0], 400)
