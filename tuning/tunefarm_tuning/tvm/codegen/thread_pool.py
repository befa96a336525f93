"""The object code of the threads on which a network's kernels run (``thread_pool.c``), for any 64-bit machine.

A worker may have no C compiler for a device's machine. So LLVM compiles ``thread_pool.ll``, the C file's translation, which is the same
for all machines but for what is added here. Having changed the C file, write it again (`tunefarm[cross]` has the translator)::

    python -m tunefarm_tuning.tvm.codegen.thread_pool
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import tvm_ffi

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.codegen.device_code import unused_library

_SOURCE = Path(__file__).with_suffix(".c")
_TRANSLATION = Path(__file__).with_suffix(".ll")
_PAUSES = {"x86_64": "pause", "aarch64": "yield"}
_MACHINE = re.compile(r"^target (?:datalayout|triple) = .*$", re.MULTILINE)
_METADATA = re.compile(r'^!\d+ = !{i32 \d+, !"tvm_target", .*}$', re.MULTILINE)
_DECLARED_HERE = re.compile(
    r"^(?:@tunefarm_threads_of_target = |declare void @tunefarm_pause\().*\n", re.MULTILINE
)


def thread_pool_object(target: Target, path: Path) -> Path | None:
    """Write the object file for a CPU; return its path, or None for a machine of 32 bits or without atomics: TVM's pool runs its kernels."""
    code = _object(target)
    if code is None:
        return None
    path.write_bytes(code)
    return path


@functools.lru_cache(maxsize=8)
def _object(target: Target) -> bytes | None:
    """Compile the translation, with the data layout and the target of a library that TVM made for the same machine."""
    library = str(unused_library(target).inspect_source("ll"))
    machine, metadata = _MACHINE.findall(library), _METADATA.findall(library)
    if "p:32:32" in machine[0]:
        return None
    triple = machine[1].split('"')[1]
    pause = _PAUSES.get(triple.partition("-")[0], "")
    threads = target.get("num-cores") or 0
    parts = [
        *machine,
        _TRANSLATION.read_text("utf-8"),
        f"@tunefarm_threads_of_target = internal constant i32 {threads}",
        f'define internal void @tunefarm_pause() {{\n  call void asm sideeffect "{pause}", "~{{memory}}"()\n  ret void\n}}',
        "!llvm.module.flags = !{!0}",
        re.sub(r"^!\d+", "!0", metadata[0]),
    ]
    with tempfile.TemporaryDirectory(prefix="thread-pool-") as folder:
        text, output = Path(folder, "thread_pool.ll"), Path(folder, "thread_pool.o")
        text.write_text("\n".join(parts) + "\n", "utf-8")
        tvm_ffi.load_module(str(text)).write_to_file(str(output), "o")
        code = output.read_bytes()
    return None if b"__atomic_" in code else code


def translate() -> str:
    """Return the C file's translation, without what is of one machine.

    Raises:
        subprocess.CalledProcessError: If the C file has an error.
    """
    options = (
        "-Os",
        "-g0",
        "-fPIC",
        "-fno-sanitize=all",
        "-fno-stack-protector",
        "-fno-vectorize",
        "-Wall",
        "-Werror",
    )
    command = (sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu", *options)
    with tempfile.TemporaryDirectory(prefix="thread-pool-") as folder:
        output = Path(folder, "thread_pool.ll")
        subprocess.run(
            [
                *command,
                "-Wno-unused-command-line-argument",
                "-S",
                "-emit-llvm",
                "-o",
                str(output),
                str(_SOURCE),
            ],
            check=True,
        )
        text = output.read_text("utf-8")
    text = _DECLARED_HERE.sub("", _MACHINE.sub("", text))
    lines = [
        line for line in text.splitlines() if not line.startswith((";", "source_filename", "!", "attributes"))
    ]
    text = re.sub(r"(?:,? ![\w.]+ !\d+| #\d+)(?= |,|$|:)", "", "\n".join(lines), flags=re.MULTILINE)
    heading = f"; Generated from {_SOURCE.name} by ziglang {version('ziglang')}: change that file (thread_pool.py says how).\n\n"
    return heading + re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


if __name__ == "__main__":
    _TRANSLATION.write_text(translate(), "utf-8")
