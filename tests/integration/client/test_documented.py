"""The how-to's examples run as written, against a real server, with a smaller budget."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from repository import ROOT

HOW_TO = ROOT / "docs" / "how-to.md"


def test_the_examples_of_the_client(farm: Any, tmp_path: Path) -> None:
    section = HOW_TO.read_text(encoding="utf-8").split("## Use the farm from Python\n")[1].split("\n## ")[0]
    blocks, awaits = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    for tasks, name in enumerate(("model", "a", "b"), start=1):
        farm.write_model(tmp_path / f"{name}.onnx", tasks=tasks)
    env = {**os.environ, "TUNEFARM_URL": farm.url, "TUNEFARM_API_KEY": farm.api_key}
    for code, names in ((blocks, ["model"]), (awaits, ["a", "b"])):
        done = subprocess.run(
            [sys.executable, "-c", code.replace("minutes=10", "trials=8")],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert [f"out/{name}.tunefarm" for name in names] == re.findall(r"out/\S+", done.stdout)
        assert all((tmp_path / "out" / f"{name}.tunefarm").is_file() for name in names)
