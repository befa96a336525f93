"""The API runs with the ``server`` extra alone: no numpy, no compiler."""

from __future__ import annotations

import subprocess
import sys


def test_the_api_imports_nothing_heavy() -> None:
    code = (
        "import sys, tunefarm_api.__main__; "
        "print([m for m in ('numpy', 'tvm', 'onnx', 'onnxruntime', 'xgboost', 'psutil') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.strip() == "[]"
