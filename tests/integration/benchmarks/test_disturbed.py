"""Other work on the machine is noticed. How often intervals hold the quiet ratio beside it is for `benchmarks.disturbed` to say."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from benchmarks.disturbed import _LOAD, Contest, load, main, networks
from waiting import wait_until


def test_other_work_is_noticed_and_widens_the_interval(tmp_path: Path) -> None:
    with ExitStack() as stack:
        contest = Contest(networks()["dense layers"], tmp_path, stack)
        with load("two processes"):
            ratio, latency = contest.ratio(0.0, [])
    assert latency.disturbance is not None
    assert latency.disturbance.others_cores is not None
    assert latency.disturbance.others_cores > 0.3
    assert latency.disturbance.slowdown > 1.0, "by how much depends on what else went on before"
    assert not ratio.is_tight or latency.disturbance.slowdown < 1.2
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < ratio.value < ratio.high


def test_kept_blocks_are_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watched = {
        "wall_sec": 0.1,
        "cores": 2,
        "others_sec": 0.1,
        "steal_sec": 0.0,
        "switches": 9,
        "stalled_sec": None,
    }
    blocks = [
        {
            "loop_sec": None,
            "samples": {
                "tuned": [1e-3 * (1 + number % 4), 100, watched, 2e-4 * (1 + number % 2)],
                "onnxruntime": [2e-3 * (1 + number % 3), 100, watched, 3e-4 * (1 + number % 2)],
            },
        }
        for number in range(30)
    ]
    kept = tmp_path / "blocks.jsonl"
    kept.write_text(json.dumps({"network": "dense layers", "blocks": blocks}) + "\n")
    assert main(["--replay", str(kept)]) == 0
    row = capsys.readouterr().out.splitlines()[-1].split(" | ")
    assert row[:4] == ["| dense layers", "0.20 ms", "1.50", "1"]
    assert (row[6], float(row[7][:-1]) < 1.25 < float(row[5][:-1])) == ("1", True)


def test_the_load_ends_with_the_benchmark() -> None:
    code = "import time\nfrom benchmarks.disturbed import load\nwith load('one core'):\n print('on', flush=True)\n time.sleep(99)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as benchmark:
        assert benchmark.stdout is not None
        benchmark.stdout.readline()
        (generator,) = psutil.Process(benchmark.pid).children()
        benchmark.kill()
    wait_until(lambda: not generator.is_running() or generator.status() == psutil.STATUS_ZOMBIE, "its end")


def test_a_load_whose_benchmark_ended_before_it_began_ends_at_once() -> None:
    arguments = ["1", "1", "0", str(_ended_process())]
    subprocess.run([sys.executable, "-c", _LOAD, *arguments], check=True, timeout=60)


def _ended_process() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid
