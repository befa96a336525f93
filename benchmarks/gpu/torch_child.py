"""Child process that runs a network with PyTorch and times it. It runs in any Python that has PyTorch.

    python -m benchmarks.gpu.torch_child REQUEST.json

The request has ``network``, ``dtype``, ``device``, ``mode`` (``eager`` or ``compile``), ``inductor`` (the compiler's mode), ``tf32``,
``samples``, and the files
``weights``, ``inputs`` (both .npz), ``outputs`` (.npz) and ``reply`` (JSON), the last two to be written.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.gpu.twins import twin

SAMPLE_SEC = 0.05
WARM_UPS = 10


def main(request_file: str) -> int:
    request: dict[str, Any] = json.loads(Path(request_file).read_text(encoding="utf-8"))
    device = request["device"]
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = request["tf32"]
    torch.backends.cuda.matmul.allow_tf32 = request["tf32"]
    with np.load(request["weights"], allow_pickle=False) as weights:
        module = twin(request["network"], weights, request["dtype"], device)
    with np.load(request["inputs"], allow_pickle=False) as inputs:
        x = torch.from_numpy(inputs["x"]).to(device)
    if x.ndim == 4:  # what tensor cores take, and cuDNN is at its best with
        module = module.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    began = time.perf_counter()
    run = torch.compile(module, mode=request["inductor"]) if request["mode"] == "compile" else module
    with torch.inference_mode():
        y = run(x)
        _wait(device)
        first_sec = time.perf_counter() - began
        outputs = y.float().cpu().numpy().copy()
        samples = _samples(lambda: run(x), device, request["samples"])
    np.savez(request["outputs"], y=outputs)
    reply = {"samples_sec": samples, "first_sec": first_sec, "torch": torch.__version__}
    Path(request["reply"]).write_text(json.dumps(reply), encoding="utf-8")
    return 0


def _samples(run: Callable[[], object], device: str, count: int) -> list[float]:
    for _ in range(WARM_UPS):
        run()
    call_sec = _time(run, device, 3)
    number = max(1, int(SAMPLE_SEC / max(call_sec, 1e-6)))
    return [_time(run, device, number) for _ in range(count)]


def _time(run: Callable[[], object], device: str, number: int) -> float:
    """Return seconds per call, by the device's own clock where it has one."""
    if device == "cpu":
        began = time.perf_counter()
        for _ in range(number):
            run()
        return (time.perf_counter() - began) / number
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(number):
        run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3 / number


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
