"""What the sandbox adds to the start of a child process: ``python -m benchmarks.child_start``.

Children with and without a sandbox start in turn, so that both meet the same machine. Prints the rows of
[results/sandbox.md](results/sandbox.md).
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from tunefarm_tuning.process import Access, ChildProcess
from tunefarm_tuning.process.device_address import DeviceAddress

MODULES = {
    "tunefarm_tuning.reference.samples_child": Access(),
    "tunefarm_tuning.tvm.children.build": Access(programs=True),
    "tunefarm_tuning.tvm.children.measure": Access(
        device=DeviceAddress(tracker_host="127.0.0.1", tracker_port=9, key="none")
    ),
}


def start_sec(module: str, access: Access | None) -> float:
    """Return the seconds until a child is ready."""
    with ChildProcess(module, access=access) as child:
        begin = time.perf_counter()
        child.start()
        return time.perf_counter() - begin


def main() -> None:
    """Print a row for each module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    print("| Child | Without, ms | With, ms | Difference of medians, ms |\n|---|---:|---:|---:|")
    for module, access in MODULES.items():
        pairs = [(start_sec(module, None), start_sec(module, access)) for _ in range(rounds)]
        without, confined = (1e3 * median(column) for column in zip(*pairs, strict=True))
        print(
            f"| `{module.rpartition('.')[2]}` | {without:.0f} | {confined:.0f} | {confined - without:+.1f} |"
        )


if __name__ == "__main__":
    main()
