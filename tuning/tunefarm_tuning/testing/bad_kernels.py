"""Shared libraries that misbehave when they are run as a kernel; needs a C compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_RAISE = "void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);"


def _raise(message: str) -> str:
    return f'TVMFFIErrorSetRaisedFromCStr("RuntimeError", "{message}"); return -1;'


_ERROR = _raise("CUDA: an illegal memory access was encountered")
BODIES = {
    "crash": "*(volatile int *)0 = 1;",
    "divide": "volatile int zero = 0; zero = 7 / zero;",
    "hang": 'for (;;) __asm__ volatile("");',
    "sleep": "usleep(100000000);",
    "exit": "_exit(3);",
    "idle": "",  # behaves, and does nothing
    # Behaves, and leaves a process behind that dies when it writes a file.
    "poison": "struct rlimit none = {0, 0}; setrlimit(RLIMIT_FSIZE, &none);",
    # Fails as a CUDA kernel does that reads out of bounds: nothing that uses the GPU works in its process afterwards.
    "illegal": f'setenv("POISONED", "1", 1); {_ERROR}',
    "after-illegal": f'if (getenv("POISONED")) {{ {_ERROR} }}',  # uses the GPU
    # faults that are not the kernel's
    "broken-gpu": _raise("CUDA: uncorrectable ECC error encountered"),
    "other-gpu": _raise("cuModuleLoadData failed with error: CUDA_ERROR_NO_BINARY_FOR_GPU"),
}


def bad_kernel(kind: str, folder: Path) -> Path:
    """Compile a kernel that does one of `BODIES`, or ``"nothing"``: a library without a kernel in it."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError("a C compiler is needed")
    body = BODIES.get(kind)
    entry = (
        f"int __tvm_ffi_main(void *h, const void *a, int n, void *r) {{ {body} return 0; }}"
        if body is not None
        else ""
    )
    source = folder / f"{kind}.c"
    source.write_text(
        f"#include <stdlib.h>\n#include <sys/resource.h>\n#include <unistd.h>\n{_RAISE}\n{entry}\n",
        encoding="utf-8",
    )
    output = folder / f"{kind}.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O0", "-o", str(output), str(source)], check=True)
    return output
