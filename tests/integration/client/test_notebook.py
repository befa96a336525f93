"""The client in the kernel of a notebook: bars, tables, the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from notebook_kernel import notebook_of, outputs, run_notebook

BLOCKING = """
import tunefarm
client = tunefarm.Client()
job = client.tune("net.onnx", target="host", trials=24)
job.wait(poll_sec=0.1)
"""
AWAITED = """
import tunefarm
client = tunefarm.AsyncClient()
job = await client.tune("net.onnx", target="host", trials=24)
await job.wait(poll_sec=0.1)
"""


@pytest.fixture
def env(farm: Any) -> dict[str, str]:
    return {"TUNEFARM_URL": farm.url, "TUNEFARM_API_KEY": farm.api_key}


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize(("program", "wait"), [(BLOCKING, ""), (AWAITED, "await ")])
def test_a_job_and_all_that_is_shown_of_it(
    farm: Any, env: dict[str, str], tmp_path: Path, program: str, wait: str
) -> None:
    farm.write_model(tmp_path / "net.onnx", tasks=2, trial_sec=0.02)
    done = run_notebook(
        notebook_of(
            program, "job", f"{wait}job.tasks()", f"{wait}client.jobs.list()", f"{wait}job.report_page()"
        ),
        tmp_path,
        env,
    )
    upload, bars = outputs(done, "display_data")  # two places, written again and again
    assert "import" in upload.data["text/html"]
    assert "2 of 2 kernels" in bars.data["text/html"]
    assert "━" in bars.data["text/html"]
    assert "verify" in bars.data["text/html"]
    ended, job, tasks, jobs, report = (cell.outputs[-1].data for cell in done.cells)
    for shown in (ended, job, tasks, jobs):
        assert shown["text/html"].startswith("<table>")
    assert "succeeded" in ended["text/html"]
    assert "state succeeded" in job["text/plain"]
    assert "<iframe sandbox" in report["text/html"]
    assert outputs(done, "stream") == []


@pytest.mark.exhaustive
def test_bars_are_not_drawn_where_somebody_else_draws(farm: Any, env: dict[str, str], tmp_path: Path) -> None:
    farm.write_model(tmp_path / "net.onnx", tasks=1)
    plain = BLOCKING.replace("trials=24", "trials=24, progress_bar=False")
    silent = plain.replace("poll_sec=0.1", "progress_bar=False, poll_sec=0.1")
    drawn_elsewhere = plain.replace("poll_sec=0.1", "lambda job: None, poll_sec=0.1")
    done = run_notebook(notebook_of(silent, drawn_elsewhere), tmp_path, env)
    assert [output.output_type for output in outputs(done)] == ["execute_result"] * 2
