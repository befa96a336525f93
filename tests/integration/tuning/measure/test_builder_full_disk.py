"""Building on a machine whose disk for temporary files is full."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_models import GraphBuilder
from small_disk import small_disk

from tunefarm_tuning.frontend.extraction import extract_tasks
from tunefarm_tuning.frontend.importing import import_model
from tunefarm_tuning.measure.builder.local import LocalBuilder
from tunefarm_tuning.measure.builder.worker import FULL_DISK
from tunefarm_tuning.measure.interfaces import BuildInput


def test_a_full_disk_is_no_candidates_fault(tmp_path: Path) -> None:
    graph = GraphBuilder()
    graph.output(graph.node("MatMul", graph.input("x", [16, 32]), graph.weight(32, 64)), [16, 64])
    path = tmp_path / "net.onnx"
    path.write_bytes(graph.model().SerializeToString())
    (task,) = extract_tasks(import_model(path))
    with small_disk(tmp_path / "disk", 16 << 20) as disk:
        if disk is None:
            pytest.skip("needs the right to mount a small file system")
        with LocalBuilder(workers=1, work_dir=disk.path) as builder:
            first, second, third = builder.config_space(task).sample(np.random.default_rng(0), 3)
            assert builder.build([BuildInput(task=task, config=first)])[0].failure is None
            disk.fill()
            (built,) = builder.build([BuildInput(task=task, config=second)])
            assert built.failure == FULL_DISK
            disk.make_room()
            for config in (second, third):
                assert builder.build([BuildInput(task=task, config=config)])[0].failure is None
