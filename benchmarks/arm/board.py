"""Run Python on an emulated 64-bit Arm machine, as on a board: so a device can join a farm where nobody has a board.

    python -m benchmarks.arm.board cortex-a72 -m tunefarm device join --url http://127.0.0.1:8000 --name a72 --device-key a72 --work-dir ~/a72

The machine is made at the first call (`benchmarks.arm.machine`). It has the sources of this checkout, and the environment's variables
of tunefarm.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from benchmarks.arm.machine import CORTEX_A72, CORTEX_A76, MAX, NEOVERSE_N1, CannotBeMade, make_machine

CPUS = {cpu.name: cpu for cpu in (CORTEX_A72, CORTEX_A76, NEOVERSE_N1, MAX)}
"""CPUs that a machine can have, by the names that QEMU gives them."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Become the machine's Python, or end with the reason why the machine cannot be made here."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cpu", choices=tuple(CPUS), help="a Raspberry Pi 4 has a Cortex-A72, a Graviton2 a Neoverse N1"
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of Python")
    options = parser.parse_args(arguments)
    try:
        machine = make_machine(CPUS[options.cpu])
    except CannotBeMade as error:
        sys.exit(f"no emulated Arm machine: {error}")
    settings = {name: value for name, value in os.environ.items() if name.startswith("TUNEFARM_")}
    python = str(machine.python)
    os.execve(python, [python, *options.arguments], {**machine.environment, **settings})


if __name__ == "__main__":
    main()
