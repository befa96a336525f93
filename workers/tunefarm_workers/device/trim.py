"""Remove what a device that lends its CPU does not need: ``tunefarm device trim``."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from tunefarm_tuning.core.errors import InvalidInputError, TunefarmError
from tunefarm_tuning.target.parse import detect_host_target
from tunefarm_tuning.target.trimmed import trim, tvm_folder


def main() -> int:
    """Ask TVM's compiler what this machine is, and remove it; 1 if that cannot be done, or other parts of tunefarm need it."""
    try:
        if find_spec("onnx") is not None:
            raise InvalidInputError(
                "tunefarm's engine is installed in this environment too, and needs TVM's compiler: install "
                "`tunefarm[device]` into an environment of its own, and trim that",
                code="compiler-needed",
            )
        target = detect_host_target()
        tvm = tvm_folder()
        assert tvm is not None, "it was just asked"
        removed = trim(tvm, target)
    except (TunefarmError, OSError) as error:
        print(f"device: {error}", file=sys.stderr)
        return 1
    print(said(removed, target.key))
    return 0


def said(removed_bytes: int, target: str) -> str:
    """Return what to say of so many removed bytes; none were left by an earlier call."""
    done = f"{removed_bytes / 1e6:.0f} MB removed" if removed_bytes else "TVM's compiler was removed before"
    return f"{done}. This machine is {target}"


if __name__ == "__main__":
    sys.exit(main())
