"""AutoTVM's log of the fastest configs is read, and its winners are ranked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu import prior_check


def line(model: str, tile_f: list[int], task: str = "conv2d_nchw.cuda") -> dict[str, Any]:
    args = [["TENSOR", [1, 64, 28, 28], "float32"], ["TENSOR", [128, 64, 3, 3], "float32"]]
    tiles = {"tile_f": tile_f, "tile_y": [7, 1, 4, 1], "tile_x": [1, 1, 28, 1]}
    reduction = {"tile_rc": [16, 4], "tile_ry": [1, 3], "tile_rx": [1, 3]}
    entity = [[name, "sp", tile] for name, tile in {**tiles, **reduction}.items()]
    entity += [["auto_unroll_max_step", "ot", 512], ["unroll_explicit", "ot", 1]]
    return {
        "input": [f"cuda -model={model}", task, [*args, [1, 1], [1, 1], [1, 1], "float32"], {}],
        "config": {"entity": entity},
    }


def test_winners_are_ranked_among_what_the_gpu_can_launch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        line("v100", [-1, 2, 1, 4]),
        line("v100", [64, 1, 1, 2]),
        line("v100", [-1, 1, 2, 4]),
        line("v100", [3, 1, 1, 2]),  # no tile of 128 filters: of another version
        line("v100", [-1, 2, 1, 4], task="conv2d_nchw_winograd.cuda"),
        line("gfx900", [-1, 2, 1, 4]),
    ]
    log = tmp_path / "cuda.log"
    log.write_text("\n".join(map(json.dumps, lines)))
    winners = list(prior_check.winners(log))
    assert len(winners) == 3
    ranks = [prior_check.rank(winner) for winner in winners]
    assert all(ranked and 0 <= ranked.before < 0.5 and ranked.in_registers for ranked in ranks)
    assert prior_check.main([str(log)]) == 0
    assert "| v100 (sm_70) | 3 | " in capsys.readouterr().out
