"""``tunefarm jobs source|records`` and the search of records, against the real API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tunefarm.client import Client
from tunefarm_tuning.records.record import load_records


def test_the_source_and_the_records_of_a_job(run: Any, farm: Any, client: Client, tmp_path: Path) -> None:
    job = client.tune(farm.write_model(tmp_path / "net.onnx", tasks=2), trials=12)
    job.wait(poll_sec=0.05, timeout_sec=120)

    text = run("jobs", "source", job.id, "1").stdout
    assert text.startswith("# a simulation has no kernels: matmul_1")
    assert client.jobs.source(job.id, 1) == job.source(1) == text
    as_json = json.loads(run("jobs", "source", job.id, "1", "--kind", "asm", "--json").stdout)
    assert as_json == {"kind": "asm", "source": text}
    file = tmp_path / "kernel.ll"
    assert "1 line" in run("jobs", "source", job.id, "0", "--kind", "llvm", "-o", file).stdout
    assert file.read_text() == client.jobs.source(job.id, 0, kind="llvm")
    assert "it has schedule, llvm, asm" in run("jobs", "source", job.id, "0", "--kind", "cuda", code=3).stderr
    run("jobs", "source", job.id, "2", code=3)
    run("jobs", "source", job.id, "x", code=2)

    other = client.tune(farm.write_model(tmp_path / "other.onnx", tasks=1), trials=4)
    other.wait(poll_sec=0.05, timeout_sec=120)
    compared = run("jobs", "compare", job.id, other.id).stdout
    assert f"…{other.id[-6:]}" in compared
    assert "matmul_0" in compared
    (row,) = [line for line in compared.splitlines() if job.id in line]
    assert "as-model" in row.split()
    assert "1 kernel that only one of the jobs has: not compared" in compared
    as_json = json.loads(run("jobs", "compare", job.id, other.id, "--json").stdout)
    assert as_json == client.jobs.compare([job.id, other.id]).raw
    assert "2 to 6" in run("jobs", "compare", job.id, code=2).stderr

    traced = run("jobs", "trace", job.id).stdout
    assert "the farm's own work" in traced
    file = tmp_path / "trace.json"
    summary = json.loads(run("jobs", "trace", job.id, "-o", file, "--json").stdout)
    written = json.loads(file.read_text())
    assert summary["output"] == str(file)
    assert summary["seconds"].keys() == written["otherData"]["seconds"].keys()
    assert "step tune" in {event["name"] for event in written["traceEvents"]}
    assert f"{len(written['traceEvents'])} events" in run("jobs", "trace", job.id, "-o", file).stdout
    run("jobs", "trace", "job_none", code=3)

    records = tmp_path / "records.jsonl"
    summary = json.loads(run("jobs", "records", job.id, "-o", records, "--json").stdout)
    assert summary == {"records": 12, "output": str(records)}
    assert len(list(load_records(records))) == 12
    assert job.save_records(tmp_path / "again.jsonl").read_text() == records.read_text()
    run("jobs", "records", "job_none", "-o", records, code=3)
    assert len(list(load_records(records))) == 12, "what was there stays"

    def count_of(*options: str) -> int:
        return len(run("records", "best", "--json", *options).stdout.splitlines())

    assert count_of() == count_of("--operator", "matmul") == count_of("--shape", "1x8") == 2
    assert count_of("--operator", "matmul_1", "--shape", "8") == 1
    assert count_of("--operator", "conv2d") == 0
    assert "not a shape" in run("records", "list", "--shape", "1x", code=2).stderr
    assert [r.workload_key for r in client.records.best(operator="matmul_1", shape=(1, 8))]
    run("records", "export", "--operator", "matmul_1", "--best", "-o", records)
    assert len(list(load_records(records))) == 1
    run("records", "export", "--job", job.id, "--shape", "1x8", code=2)
