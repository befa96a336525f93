"""Tune a network on this machine, and record the measurements and their durations for farms to replay.

    python -m benchmarks.scale.record [--trials 480] [--output benchmarks/scale/recording.json.xz]

The tasks of ResNet-18, on one core. Every trial is kept with its samples, the seconds of its build and those of its
measurement: `RecordedTask` is what the replay engine takes.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.search.machine import ROOT, one_core_target

from tunefarm_app.engines.recorded_tasks import RecordedTask
from tunefarm_tuning import Budget, extract_tasks, import_model, load_records, tune
from tunefarm_tuning.measure.builder.local import LocalBuilder

sys.path.insert(0, str(ROOT / "examples"))

RECORDING = Path(__file__).with_name("recording.json.xz")


def record(trials: int) -> list[dict[str, Any]]:
    """Return the tasks that could be tuned, and every trial of them."""
    from resnet18 import build_resnet18

    with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder, LocalBuilder(workers=1) as builder:
        network = Path(folder) / "network.onnx"
        network.write_bytes(build_resnet18().SerializeToString())
        tasks = extract_tasks(import_model(network), one_core_target(), alternatives=False)
        log = Path(folder) / "records.jsonl"
        tune(tasks, budget=Budget(trials=trials), seed=0, log_path=log)
        records = list(load_records(log))
        return [
            RecordedTask.of(task, builder.config_space(task), task_records).to_json()
            for task in tasks
            if (task_records := [record for record in records if record.workload_key == task.workload.key])
        ]


def load_recording(path: Path = RECORDING) -> tuple[RecordedTask, ...]:
    """Return the recording."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return tuple(RecordedTask.from_json(data) for data in json.load(file))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=480)
    parser.add_argument("--output", type=Path, default=RECORDING)
    options = parser.parse_args()
    tasks = record(options.trials)
    with lzma.open(options.output, "wt", encoding="utf-8") as output:
        json.dump(tasks, output, separators=(",", ":"))
    print(f"{sum(len(task['trials']) for task in tasks)} trials of {len(tasks)} tasks")
