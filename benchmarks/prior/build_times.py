"""Build configs of the prior's trials again, and record the processor seconds of each.

    python -m benchmarks.prior.layers layers.onnx
    python -m benchmarks.prior.build_times layers.onnx build_times.jsonl

Each workload gets 24 of its configs, spread over its trials. Nothing is measured: other work on the machine does no
harm. Workloads that the file has already are skipped, so a killed run goes on.
"""

from __future__ import annotations

import argparse
import json
import lzma
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.prior.fit import TRIALS
from benchmarks.search import json_lines
from benchmarks.search.machine import one_core_target

from tunefarm_tuning import extract_tasks, import_model
from tunefarm_tuning.tvm.children import build as build_child

CONFIGS = 24


def build_times(model: Path, output: Path) -> None:
    """Append one line per workload: its key, and pairs of a trial's place and seconds."""
    target = one_core_target()
    tasks = {
        task.workload.key: task for task in extract_tasks(import_model(model), target, alternatives=False)
    }
    done = {line["workload"] for line in json_lines.load(output)}
    with lzma.open(TRIALS, "rt", encoding="utf-8") as lines, tempfile.TemporaryDirectory() as folder:
        for data in map(json.loads, lines):
            task = tasks.get(data["workload"])
            if task is None or data["workload"] in done:
                continue
            build_child.open_task(
                {"handle": task.workload.key, "ir": task.workload.ir, "target": target.to_json()}
            )
            places = np.linspace(0, len(data["trials"]) - 1, CONFIGS).astype(int).tolist()
            seconds = [
                [index, _build_sec(task.workload.key, data["trials"][index][0], Path(folder))]
                for index in places
            ]
            json_lines.append(output, {"workload": data["workload"], "build_sec": seconds})
            done.add(data["workload"])
            print(data["name"], flush=True)


def _build_sec(handle: str, config: Any, folder: Path) -> float:
    params = {
        "handle": handle,
        "config": config,
        "output": str(folder / "kernel.so"),
        "work_dir": str(folder),
        "recent": str(folder / "none-"),
    }
    began = time.process_time()
    build_child.build_kernel(params)
    return round(time.process_time() - began, 4)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    build_times(options.model, options.output)
