"""Another program on the GPU: it computes, or takes its memory. It runs in any Python that has PyTorch.

python -m benchmarks.gpu.faults.hog compute 15           # seconds
python -m benchmarks.gpu.faults.hog memory 15 --left-mib 200
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import torch

_SIZE = 8192
_CONTEXT_BYTES = 600 << 20  # what a program takes beside its tensors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("compute", "memory"))
    parser.add_argument("seconds", type=float)
    parser.add_argument("--left-mib", type=int, default=200, help="memory that others have left")
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    if options.what == "compute":
        matrix = torch.randn(_SIZE, _SIZE, device="cuda", dtype=torch.float16)
        while time.monotonic() < until:
            matrix @ matrix
            torch.cuda.synchronize()
        return 0
    taken: Any = torch.empty(_bytes_to_take(options.left_mib), dtype=torch.uint8, device="cuda")
    time.sleep(max(0.0, until - time.monotonic()))
    del taken
    return 0


def _bytes_to_take(left_mib: int) -> int:
    free, _ = torch.cuda.mem_get_info()
    return max(0, int(free) - (left_mib << 20) - _CONTEXT_BYTES)


if __name__ == "__main__":
    sys.exit(main())
