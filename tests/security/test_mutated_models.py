"""Model files with a few changes that a stranger might make: the import opens no other file, leaves no process and says what is wrong.

`make mutants` takes 2,000 of them through, by the same functions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from mutants import Mutant, mutant
from mutants.onnx_model import CHANGES
from mutants.share import run_share
from mutants.table import table
from mutants.trial import Outcome, adopt_orphans, take
from mutants.watch import Ground, Watch

from tunefarm_tuning.process.sandbox import VARIABLE

CHOSEN = range(0, 2000, 50)
MORE = range(1, 2000, 7)
OUTSIDE = (2009, 2030, 2037, 2040, 2105, 2111)
"""Mutants that say that a weight stands in another file."""
BEYOND_32_BITS = 20070
"""A mutant with functions whose opset is 2^63 - 1."""


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path / "ground")


@pytest.fixture
def watch(ground: Ground) -> Iterator[Watch]:
    with ground.watch() as watch:
        yield watch


def assert_right(seed: int, outcome: Outcome) -> None:
    assert outcome.is_right, f"seed {seed}: {outcome}"


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("begin", range(0, 2000, 500))
def test_some_mutants(begin: int) -> None:
    """Forty of the two thousand, each in children that serve several."""
    lines = run_share([seed for seed in CHOSEN if begin <= seed < begin + 500])
    for line in lines:
        assert_right(line["seed"], Outcome(**{name: line[name] for name in Outcome.__dataclass_fields__}))


def test_an_opset_beyond_32_bits_is_refused_in_words() -> None:
    """Before, it was an error of ours, as ONNX's table of operators takes no such number."""
    line = run_share([BEYOND_32_BITS])[0]
    assert_right(line["seed"], Outcome(**{name: line[name] for name in Outcome.__dataclass_fields__}))


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(6))
def test_more_mutants(part: int) -> None:
    for line in run_share(list(MORE)[part::6]):
        assert_right(line["seed"], Outcome(**{name: line[name] for name in Outcome.__dataclass_fields__}))


@pytest.mark.parametrize("seed", OUTSIDE)
def test_the_import_itself_opens_no_other_file(
    seed: int, ground: Ground, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the sandbox, which would hide that it tried; in children of one call each, as farms have them."""
    monkeypatch.setenv(VARIABLE, "off")
    assert_right(seed, take(mutant(seed, ground.aims), ground, watch))


def test_a_mutant_is_the_same_each_time() -> None:
    script = "import sys; from mutants import mutant; import hashlib; print(hashlib.sha256(mutant(7).data).hexdigest())"
    folder = Path(__file__).parents[1] / "support"
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{folder / 'networks'}", "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", script]
    hashes = {
        subprocess.run(command, env=environment, check=True, capture_output=True).stdout for _ in range(2)
    }
    assert len(hashes) == 1


def test_every_kind_of_change_is_among_the_two_thousand() -> None:
    drawn = {kind for seed in range(300) for kind in mutant(seed).changes}
    assert set(CHANGES) | {"words", "length", "end", "bits"} <= drawn


def test_the_watch_sees_who_opens_and_who_changes(ground: Ground, watch: Watch) -> None:
    folder = ground.model.parent
    ground.model.read_bytes()
    assert watch.events() == []
    code = f"open({str(folder / 'weights.bin')!r}).close(); open({str(folder / 'new')!r}, 'w').close()"
    subprocess.run([sys.executable, "-c", code], check=True)
    events = watch.events()
    assert f"opened {folder / 'weights.bin'}" in events
    assert f"changed {folder / 'new'}" in events


def test_a_process_that_is_left_is_seen(
    ground: Ground, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopt_orphans()

    def start_one(_path: Path, **_: object) -> None:
        subprocess.run(["sh", "-c", "setsid sleep 60 & exit 0"], check=True)

    monkeypatch.setattr("mutants.trial.importing.import_model", start_one)
    outcome = take(Mutant(0, "none", (), b""), ground, watch)
    for text in outcome.left:
        psutil.Process(int(text.split()[0])).kill()
    assert len(outcome.left) == 1
    assert "sleep" in outcome.left[0]
    assert not outcome.is_right


def test_the_table_counts() -> None:
    lines = run_share([0])
    text = table([*lines, {**lines[0], "word": "crashed", "touched": ["opened x"]}])
    assert "| all | 0 | 1 | 1 | 0 | 0 | 0 |" in text or "| all | 1 | 0 | 1 | 0 | 0 | 0 |" in text
    assert "| no file outside opened or changed | 1 |" in text
    json.dumps(lines)
