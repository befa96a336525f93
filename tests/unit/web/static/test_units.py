"""Scripts of the pages write quantities as the server does."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import playwright
from repository import ROOT

from tunefarm_text import quantities

UNITS = ROOT / "services/tunefarm_api/web/static/units.js"
NODE = Path(playwright.__file__).parent / "driver" / "node"  # comes with Playwright

# Per function: values for the server and, where a chart has another unit, the factor from its unit to the chart's.
EXAMPLES: dict[str, tuple[list[float | None], float]] = {
    "duration": ([None, 0, 0.01, 0.06, 4.2, 9.9, 9.96, 30.4, 59.4, 59.7, 60, 245, 3599.6, 7260, 172_799, 200_000], 1.0),
    "latency": ([None, 0.0, 3e-10, 3e-8, 74.56e-9, 1e-6, 1.45e-4, 9.994e-4, 0.00812, 0.0748, 0.9997, 1.0, 1.5, 725.4, 1234.6], 1e3),
    "percent": ([None, 0.0, 0.0004, 0.0006, 0.012, 0.0994, 0.0996, 0.123, 0.5, 1.0, 1.234], 1.0),
    "size": ([None, 0, 192, 999, 1000, 44_700, 999_999, 1_000_000, 47_146_181, 2_340_000_000, 5e12], 1.0),
    "temperature": ([None, 0.0, 46.8, 61.2, 104.9], 1.0),
    "clock": ([None, 800.0, 3410.0, 4699.9], 1e-3),
}  # fmt: skip


def test_both_homes_of_quantities_agree() -> None:
    calls = [
        [name, None if value is None else value * factor]
        for name, (values, factor) in EXAMPLES.items()
        for value in values
    ]
    script = (
        f"const units = await import({json.dumps(UNITS.as_uri())});\n"
        f"const calls = {json.dumps(calls)};\n"
        "console.log(JSON.stringify(calls.map(([name, value]) => units[name](value))));\n"
    )
    done = subprocess.run(
        [NODE, "--no-warnings", "--input-type=module", "-e", script],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    ours = [getattr(quantities, name)(value) for name, (values, _) in EXAMPLES.items() for value in values]
    assert dict(zip(map(str, calls), json.loads(done.stdout), strict=True)) == dict(
        zip(map(str, calls), ours, strict=True)
    )
