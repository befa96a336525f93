"""Take every case through tunefarm and through ONNX Runtime, and write the table: ``python -m benchmarks.conformance.run``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnx
from benchmarks.conformance.cases import THROUGH, Case, all_cases
from benchmarks.search import json_lines

from tunefarm_tuning.core.array_file import save_arrays
from tunefarm_tuning.core.errors import InvalidInputError, TunefarmError
from tunefarm_tuning.process import ChildProcess

ROOT = Path(__file__).parents[2]
OURS = "benchmarks.conformance.child"
REFERENCE = "benchmarks.conformance.reference_child"
_TIMEOUT_SEC = 300.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case.

    Attributes:
        word: ``passes``, ``passes-with-values`` (its parameters are bound to their values, as by ``--value``), ``refused`` (a clear error), ``wrong``
            (other outputs than ONNX expects), ``fails`` (any other error, or a crash).
        code: Of the error.
        reason: The error, or in what the outputs differ.
    """

    word: str
    code: str = ""
    reason: str = ""

    @property
    def passes(self) -> bool:
        return self.word.startswith("passes")


class Runner:
    """Takes cases through a child process, which serves until it crashes.

    Args:
        module: The child's.
        folder: For files.
        plain: Build without default schedules.
    """

    def __init__(self, module: str, folder: Path, *, plain: bool = False) -> None:
        self._child = ChildProcess(module, access=None, env={"PYTHONPATH": str(ROOT)})
        self._folder = folder
        self._plain = plain
        folder.mkdir(exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()

    def as_it_is(self, case: Case) -> Outcome:
        """Run a case as it is."""
        return self._run(case, case.model, case.feeds, case.expected, {})

    def outcome(self, case: Case) -> Outcome:
        """Run a case: as it is, and if that is refused, with its parameters bound to their values."""
        outcome = self.as_it_is(case)
        parameters = case.parameters
        if outcome.word != "refused" or (case.feeds and not parameters):
            return outcome
        feeds = {name: value for name, value in case.feeds.items() if name not in parameters}
        expected = list(case.expected)
        if feeds and all(np.size(value) for value in parameters.values()):
            values = {name: np.asarray(value).tolist() for name, value in parameters.items()}
            bound = self._run(case, case.model, feeds, expected, values)
        else:
            if not feeds:
                feeds[THROUGH] = np.ones(1, np.float32)
                expected.append(feeds[THROUGH])
            bound = self._run(case, case.stored(parameters), feeds, expected, {})
        return Outcome("passes-with-values") if bound.passes else bound

    def _run(
        self,
        case: Case,
        model: onnx.ModelProto,
        feeds: Mapping[str, Any],
        expected: Sequence[Any],
        values: Mapping[str, Any],
    ) -> Outcome:
        path = self._folder / f"{case.name}.onnx"
        path.write_bytes(model.SerializeToString())
        files: dict[str, str | None] = {"feeds": None, "expected": None}
        if case.of_tensors:
            for name, arrays in (("feeds", list(feeds.values())), ("expected", list(expected))):
                file = self._folder / f"{name}.npz"
                save_arrays(file, arrays)
                files[name] = str(file)
        # a library's path must be new to the process that loads it
        library = self._folder / f"{case.name}.{len(feeds)}.so"
        params = {"path": str(path), "values": values, "library": str(library), "plain": self._plain, **files}
        try:
            difference = self._child.call(
                "run", {**params, "rtol": case.rtol, "atol": case.atol}, timeout_sec=_TIMEOUT_SEC
            )
        except InvalidInputError as error:
            return Outcome("refused", error.code, error.message)
        except TunefarmError as error:
            return Outcome("fails", error.code, error.message)
        finally:
            path.unlink()
            library.unlink(missing_ok=True)
        return Outcome("wrong", "", difference) if difference else Outcome("passes")


def run_cases(
    cases: Sequence[Case],
    folder: Path,
    write: Callable[[dict[str, Any]], None],
    *,
    children: int,
    plain: bool,
) -> None:
    """Run cases in several children at once, and write a line for each: its outcome, and ONNX Runtime's word."""
    lock = threading.Lock()

    def work(number: int) -> None:
        own = folder / str(number)
        with Runner(OURS, own, plain=plain) as ours, Runner(REFERENCE, own) as reference:
            for case in cases[number::children]:
                outcome = ours.outcome(case)
                word = reference.as_it_is(case).word if case.of_tensors else "refused"
                line = {"name": case.name, "operator": case.operator, "of_tensors": case.of_tensors}
                with lock:
                    write({**line, **asdict(outcome), "reference": word})

    with ThreadPoolExecutor(children) as threads:
        list(threads.map(work, range(children)))


def main(arguments: Sequence[str]) -> int:
    """Run the cases and write a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="a line of JSON per case")
    parser.add_argument("--cases", nargs="*", help="parts of their names; otherwise all")
    parser.add_argument("--children", type=int, default=2)
    parser.add_argument(
        "--plain", action="store_true", help="build without default schedules, in half the time"
    )
    options = parser.parse_args(arguments)
    parts = options.cases or [""]
    chosen = [case for name, case in all_cases().items() if any(part in name for part in parts)]
    options.output.unlink(missing_ok=True)
    write = partial(json_lines.append, options.output)
    with tempfile.TemporaryDirectory() as folder:
        run_cases(chosen, Path(folder), write, children=options.children, plain=options.plain)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
