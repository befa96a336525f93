"""Read GPUs' machine code with NVIDIA's ``nvdisasm``: which instructions a kernel consists of.

``nvdisasm`` is in the lock file (a wheel of 5 MB), needs no GPU, and knows the architectures of its toolkit and older ones.
"""

from __future__ import annotations

import re
import shutil
import sysconfig
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from benchmarks.gpu.machine import ask

_TIMEOUT_SEC = 300.0
_WHEEL = Path("nvidia", "cu13", "bin", "nvdisasm")

_SECTION = re.compile(r"^\.section\s+\.text\.(?P<kernel>[^,\s]+)")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<name>[A-Z][A-Z0-9_]*)")
KINDS: Mapping[str, re.Pattern[str]] = {
    "mma": re.compile(r"[HIDBQO]MMA"),
    "wgmma": re.compile(r"[HIQB]GMMA"),
    "tcgen05": re.compile(r"UTC\w*MMA"),
    "spills": re.compile(r"LDL|STL"),
    "global": re.compile(r"LDG\w*|STG|LD|ST|LDGSTS|RED|ATOMG?"),
    "shared": re.compile(r"LDS\w*|STS|ATOMS"),
    "float": re.compile(r"FFMA|FADD|FMUL|HFMA2\w*|HADD2\w*|HMUL2\w*|DFMA|DADD|DMUL|MUFU"),
}
"""Kinds of instructions by their names in SASS: tensor cores of a warp, of four warps (sm_90), of a block (sm_100); accesses of a
thread's own memory, of global and of shared memory; arithmetic."""
ALL = "all"
"""Key of the number of all instructions, without those that only fill up."""


def find_nvdisasm() -> Path | None:
    """Return ``nvdisasm`` of this environment, or from the PATH; None without one."""
    of_wheel = Path(sysconfig.get_path("purelib")) / _WHEEL
    if of_wheel.is_file():
        return of_wheel
    on_path = shutil.which("nvdisasm")
    return Path(on_path) if on_path else None


def instructions(cubin: Path) -> dict[str, dict[str, int]]:
    """Return how many instructions of each of `KINDS` each kernel has, and of `ALL`; nothing without ``nvdisasm``.

    Raises:
        subprocess.CalledProcessError: If it cannot read the file.
    """
    program = find_nvdisasm()
    if program is None:
        return {}
    return count(ask([str(program), "-c", str(cubin)], _TIMEOUT_SEC))


def count(listing: str) -> dict[str, dict[str, int]]:
    """Return the counts of `instructions` for a listing of ``nvdisasm -c``."""
    counts: dict[str, Counter[str]] = {}
    current: Counter[str] = Counter()
    for line in listing.splitlines():
        if match := _SECTION.match(line.strip()):
            current = counts.setdefault(match["kernel"], Counter(dict.fromkeys((*KINDS, ALL), 0)))
        elif (match := _INSTRUCTION.match(line)) and match["name"] != "NOP":
            current[ALL] += 1
            current.update(kind for kind, pattern in KINDS.items() if pattern.fullmatch(match["name"]))
    return {kernel: dict(counter) for kernel, counter in counts.items()}
