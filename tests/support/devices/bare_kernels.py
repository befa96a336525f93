"""Kernels on machines for which there is no TVM: linked with a small program, and run by QEMU's user mode.

The program has no C library: it reads the arguments from its input, calls the kernel, and writes them all to its output.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from emulated_arm import emulator
from numpy.typing import NDArray
from tvm import tirx

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS

TARGETS = {
    "aarch64": parse_target("llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu"),
    "arm": parse_target("llvm -mcpu=cortex-a7 -mtriple=armv7l-linux-gnueabihf -mfloat-abi=hard"),
    "riscv64": parse_target("llvm -mcpu=sifive-u74 -mtriple=riscv64-linux-gnu -mabi=lp64d"),
}
"""By QEMU's names of the machines."""
_COMPILED_FOR = {
    "aarch64": ("aarch64-linux-gnu",),
    "arm": ("arm-linux-gnueabihf", "-mcpu=cortex_a7"),
    "riscv64": ("riscv64-linux-gnu",),
}
_LINKER = (sys.executable, "-m", "ziglang", "ld.lld")
_SOURCE = """
#include <stddef.h>
#include <stdint.h>
typedef struct { int32_t type, zero; union { int64_t number; void *pointer; }; } Value;
typedef struct { void *data; int32_t device[2], ndim; uint8_t code, bits; uint16_t lanes; int64_t *shape, *strides; uint64_t offset; } Tensor;
typedef struct { void *sync; int32_t tasks; } Group;
typedef int (*Part)(int, Group *, void *);
extern int __tvm_ffi_main(void *, const Value *, int32_t, Value *);
extern int (*__TVMBackendParallelLaunch)(Part, void *, int) __attribute__((weak));
extern void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) __attribute__((weak));
extern int (*__TVMBackendFreeWorkspace)(int, int, void *) __attribute__((weak));
void __aeabi_unwind_cpp_pr0(void) {}
void *memset(void *to, int value, size_t size) { for (volatile char *at = to; size--;) *at++ = value; return to; }
void *memcpy(void *to, const void *from, size_t size) { const char *next = from; for (volatile char *at = to; size--;) *at++ = *next++; return to; }
static int launch(Part part, void *data, int tasks) { Group group = {0, 1}; return part(0, &group, data); }
static char memory[1 << 24] __attribute__((aligned(64)));
static size_t used;
static void *take(size_t size) { void *part = memory + used; used += (size + 63) / 64 * 64; return part; }
static void *allocate(int type, int id, uint64_t size, int code, int bits) { return take(size); }
static int release(int type, int id, void *part) { return 0; }
static long call(long number, long a, long b, long c) {
#if defined(__aarch64__)
  register long n __asm__("x8") = number, x __asm__("x0") = a, y __asm__("x1") = b, z __asm__("x2") = c;
  __asm__ volatile("svc 0" : "+r"(x) : "r"(n), "r"(y), "r"(z) : "memory");
#elif defined(__arm__)
  register long n __asm__("r7") = number, x __asm__("r0") = a, y __asm__("r1") = b, z __asm__("r2") = c;
  __asm__ volatile("svc 0" : "+r"(x) : "r"(n), "r"(y), "r"(z) : "memory");
#else
  register long n __asm__("a7") = number, x __asm__("a0") = a, y __asm__("a1") = b, z __asm__("a2") = c;
  __asm__ volatile("ecall" : "+r"(x) : "r"(n), "r"(y), "r"(z) : "memory");
#endif
  return x;
}
#if defined(__arm__)
enum { READ = 3, WRITE = 4, EXIT = 1 };
#else
enum { READ = 63, WRITE = 64, EXIT = 93 };
#endif
static void pass(int number, int file, char *at, size_t size) {
  while (size) { long done = call(number, file, (long)at, size); if (done <= 0) call(EXIT, 9, 0, 0); at += done; size -= done; }
}
static const size_t sizes[] = {SIZES};
enum { COUNT = sizeof sizes / sizeof *sizes };
static Tensor tensors[COUNT];
static Value values[COUNT];
void start(void) {
  if (&__TVMBackendParallelLaunch) __TVMBackendParallelLaunch = launch;
  if (&__TVMBackendAllocWorkspace) __TVMBackendAllocWorkspace = allocate;
  if (&__TVMBackendFreeWorkspace) __TVMBackendFreeWorkspace = release;
  for (int i = 0; i < COUNT; ++i) {
    tensors[i].data = take(sizes[i]);
    tensors[i].device[0] = 1;
    pass(READ, 0, tensors[i].data, sizes[i]);
    values[i].type = 7;
    values[i].pointer = &tensors[i];
  }
  Value result = {0};
  int code = __tvm_ffi_main(0, values, COUNT, &result);
  for (int i = 0; i < COUNT; ++i) pass(WRITE, 1, tensors[i].data, sizes[i]);
  call(EXIT, code & 127, 0, 0);
}
__asm__(".globl _start\\n_start:\\n" START);
"""
_START = {
    "aarch64": "  mov x29, xzr\\n  bl start\\n",
    "arm": "  bic sp, sp, #15\\n  bl start\\n",
    "riscv64": "  andi sp, sp, -16\\n  call start\\n",
}


def build(func: tirx.PrimFunc, target: Target) -> Any:
    """Return a scheduled kernel, built without checks of its arguments."""
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    config = {**SPLIT_TAILS, "tirx.disable_assert": True}
    with tvm_target(target), tvm.transform.PassContext(config=config):
        return tvm.tirx.build(module, target=tvm_target(target))


def run_bare(
    func: tirx.PrimFunc, machine: str, arrays: Sequence[NDArray[Any]], folder: Path
) -> list[NDArray[Any]]:
    """Return a scheduled kernel's arguments after a call on an emulated machine."""
    program = emulator(machine)
    source, library = folder / "main.c", folder / f"{machine}-main.o"
    kernel, linked = folder / f"{machine}-kernel.o", folder / f"{machine}-program"
    build(func, TARGETS[machine]).write_to_file(str(kernel), "o")
    source.write_text(_SOURCE)
    sizes = ",".join(str(array.nbytes) for array in arrays)
    compiler = (sys.executable, "-m", "ziglang", "cc", "-target", *_COMPILED_FOR[machine])
    options = ("-c", "-O1", "-g0", "-ffreestanding", "-fno-sanitize=all", "-fno-stack-protector", "-w")
    defined = (f"-DSIZES={sizes}", f'-DSTART="{_START[machine]}"')
    subprocess.run([*compiler, *options, *defined, "-o", library, source], check=True)
    subprocess.run([*_LINKER, "-o", linked, library, kernel], check=True)
    given = b"".join(array.tobytes() for array in arrays)
    ended = subprocess.run([program, linked], input=given, capture_output=True, timeout=300.0, check=False)
    assert ended.returncode == 0, (ended.returncode, ended.stderr.decode()[-2000:])
    results, start = [], 0
    for array in arrays:
        part = ended.stdout[start : start + array.nbytes]
        results.append(np.frombuffer(part, array.dtype).reshape(array.shape))
        start += array.nbytes
    return results
