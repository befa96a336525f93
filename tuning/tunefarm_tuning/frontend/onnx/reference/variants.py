"""Run a network in ONNX Runtime in several legal ways, for its reference and for how far its outputs may be from that.

The ways: without graph optimisations and with all of them, on one thread and on several; with inputs and weights moved by about
a unit in the last place, as another order of sums would; and in float64, the reference itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean_message
from tunefarm_tuning.frontend.onnx.reference.float64 import NoFloat64, in_float64, with_exact_sigmoids
from tunefarm_tuning.frontend.onnx.reference.moved import median_size, moved_array, with_moved_weights
from tunefarm_tuning.frontend.onnx.reference.narrow import with_narrow_factors
from tunefarm_tuning.frontend.onnx.reference.rounding import computes_in_float16
from tunefarm_tuning.frontend.onnx.reference.runs import Runs
from tunefarm_tuning.frontend.onnx.reference.runtime import Arrays, open_session, run_session
from tunefarm_tuning.frontend.onnx.reference.scaled import weighted_nodes, with_scales
from tunefarm_tuning.reference.comparison import STEPS, compare_outputs, width_with_shares
from tunefarm_tuning.reference.widths import Width, reference_of, width_of, width_of_steps, with_tail
from tunefarm_tuning.workload.task import TensorSpec

_MOVED_BY, _FURTHER = 2.0**-22, 2.0**-20
"""How far inputs and weights are moved, as a share of themselves: by a few units in the last place of float32. `_FURTHER` is for networks
whose results jump at ties."""
_MOVED_WHERE_ROUNDED = (2.0**-22, 2.0**-18, 2.0**-18, 2.0**-18)
"""How far in each run of a network that rounds its activations: by as much as long sums in other orders differ. Not each turns a tie."""
_TIMES_WHERE_JUMPING = 3
"""How often a network whose results jump at ties is moved by `_FURTHER`: each time turns about half of the ties."""
_TIMES_FOR_TIES = 4
"""How often a network with outputs of integers is moved by `_FURTHER`: one time turns half of the ties."""
_FLOAT64_RUNS = 8
"""How many times as long as in float32 a run in float64 may take, roughly."""
_PROBES = 4
PROBE_SCALE = 1.001
"""What a layer's weights are multiplied by, to see whether the comparison notices."""
_OPTIMISED = "with all graph optimisations"
_LEGAL_MULTIPLE = 64.0
"""How many times the median error of the other runs that of an optimised one may be."""
_TIMES_NARROW = 2
"""How often a network is run with rounded factors: as it is, and with weights moved by `_MOVED_WHERE_NARROW`, which rounds them otherwise."""
_MOVED_WHERE_NARROW = 2.0**-12
_JUMPING = frozenset({
    "ArgMax", "ArgMin", "Ceil", "Floor", "Mod", "NonMaxSuppression", "NonZero", "Round", "Sign", "TopK", "Unique",
})  # fmt: skip
"""Operators whose results jump: a tie there moves what follows by far more than rounding."""


@dataclass(slots=True, kw_only=True)
class _Input:
    feeds: Arrays
    runs: list[Arrays]
    optimised: list[Arrays] = field(default_factory=list)
    for_ties: list[Arrays] = field(default_factory=list)
    narrow: list[Arrays] = field(default_factory=list)
    exact: Arrays | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected outputs on one set of inputs, and how far outputs may be from them."""

    outputs: Arrays
    widths: list[Width]


class Variants:
    """Runs one network in all ways that fit into a time.

    Args:
        source: What ONNX Runtime loads.
        model: The same, parsed.
        specs: Its inputs.
        threads: Of the plain run.
        budget_sec: Seconds for all ways but the plain one; what does not fit is left out.
        probes: Whether to find out how well the comparison notices faults.
        narrow: The dtype that a compile rounds the factors of products to; None if it does not.
    """

    def __init__(
        self,
        source: str | bytes,
        model: onnx.ModelProto,
        specs: Sequence[TensorSpec],
        *,
        threads: int,
        budget_sec: float,
        probes: bool = True,
        narrow: str | None = None,
    ) -> None:
        self.report = Runs()
        self._source = source
        self._model = model
        self._specs = specs
        self._names = [spec.name for spec in specs]
        self._threads = threads
        self._probes = probes
        self._narrow = narrow
        self._until = time.monotonic() + budget_sec
        self._halves = computes_in_float16(model.graph)
        self._jumps = any(node.op_type in _JUMPING for node in model.graph.node)
        self._inputs: list[_Input] = []
        self._once_sec = 0.0
        self._scales: list[str] = []
        self._scaled: onnxruntime.InferenceSession | None = None

    def add(self, feeds: Arrays, outputs: Arrays, seconds: float) -> None:
        """Add inputs, and the outputs of the plain run on them, which took so long."""
        self._inputs.append(_Input(feeds=feeds, runs=[outputs]))
        self._once_sec = max(self._once_sec, seconds)

    def run(self) -> list[Expected]:
        """Run the other ways, and return what is expected of each set of inputs."""
        several = max(2, self._threads)
        self.report.ways.append(f"without graph optimisations, on {_threads(self._threads)}")
        self._run_exact()
        if not self.report.float64:
            self._run_exact_sigmoids()
        self._attempt(
            f"{_OPTIMISED}, on {_threads(several)}",
            lambda: self._plain(several, optimised=True),
        )
        other = 1 if self._threads > 1 else several
        self._attempt(
            f"without graph optimisations, on {_threads(other)}", lambda: self._plain_with_scales(other)
        )
        self._attempt(f"{_OPTIMISED}, on 1 thread", lambda: self._plain(1, optimised=True))
        amounts = [(_MOVED_BY, False)]
        if self._jumps:
            amounts += [(_FURTHER, False)] * _TIMES_WHERE_JUMPING
        if any(array.dtype.kind in "iub" for array in self._inputs[0].runs[0]):
            amounts += [(_FURTHER, True)] * _TIMES_FOR_TIES
        for seed, (moved_by, for_ties) in enumerate(amounts):
            self._attempt_moved(moved_by, for_ties=for_ties, seed=seed)
        for seed in range(_TIMES_NARROW if self._narrow else 0):
            self._attempt_narrow(seed)
        self._take_optimised()
        expected = [self._expected(given) for given in self._inputs]
        self._probe(expected)
        return expected

    def run_steps(self) -> list[Expected] | None:
        """Run a network that rounds its activations to integers in other ways; None if the fixed shares allow for all of them.

        A tie moves a value by a whole step. In a network with feedback one step may grow until the output says nothing, and then
        ONNX Runtime's own runs are apart, too.
        """
        several = 1 if self._threads > 1 else 2
        self.report.ways.append(f"without graph optimisations, on {_threads(self._threads)}")
        self._attempt(
            f"without graph optimisations, on {_threads(several)}",
            lambda: self._plain(several, optimised=False),
        )
        for seed, moved_by in enumerate(_MOVED_WHERE_ROUNDED):
            self._attempt_moved(moved_by, for_ties=False, seed=seed)
        names = [""] * len(self._inputs[0].runs[0])
        is_steady = all(
            comparison.ok
            for given in self._inputs
            for run in given.runs[1:]
            for comparison in compare_outputs(names, run, given.runs[0], rounding=STEPS)
        )
        if is_steady:
            return None
        return [
            Expected(
                outputs=given.runs[0],
                widths=[
                    width_of_steps(output, [run[position] for run in given.runs])
                    for position, output in enumerate(given.runs[0])
                ],
            )
            for given in self._inputs
        ]

    def width_of_feedback(self, position: int) -> Width:
        """Return how far an output of a layer that feeds rounded values back may be on the first inputs, after `run_steps`.

        Before a first tie there is only rounding.
        """
        runs = [run[position] for run in self._inputs[0].runs]
        return width_of(runs[0], runs, by_slices=True)

    def _take_optimised(self) -> None:
        """Count the optimised runs as legal, unless they round weights to fewer bits, as ONNX Runtime does with packed ones."""
        if all(_is_legal(given) for given in self._inputs):
            for given in self._inputs:
                given.runs += given.optimised
            return
        optimised = [way for way in self.report.ways if way.startswith(_OPTIMISED)]
        self.report.ways = [way for way in self.report.ways if way not in optimised]
        self.report.left_out += [f"{way}: it computes far less exactly than without" for way in optimised]

    def _expected(self, given: _Input) -> Expected:
        outputs, widths = [], []
        for position in range(len(given.runs[0])):
            runs = [run[position] for run in given.runs]
            exact = None if given.exact is None else given.exact[position]
            outputs.append(reference_of(runs, exact))
            for_ties = [run[position] for run in given.for_ties]
            width = width_of(outputs[-1], runs, for_ties, jumps=self._jumps)
            if exact is None and self._halves:  # nothing moves what is rounded to float16
                width = width_with_shares(outputs[-1], width, "float16")
            width = with_tail(outputs[-1], width, [run[position] for run in given.narrow])
            widths.append(width)
        return Expected(outputs=outputs, widths=widths)

    def _attempt(self, way: str, run: Callable[[], bool], times: float = 1.0) -> None:
        needed = times * self._once_sec * len(self._inputs)
        if time.monotonic() + needed > self._until:
            self.report.left_out.append(f"{way}: it would take about {needed:.0f} s")
            self.report.hurried = True
            return
        try:
            if run() and way not in self.report.ways:
                self.report.ways.append(way)
        except InvalidModelError as error:
            self.report.left_out.append(f"{way}: {error.message}")

    def _plain(self, threads: int, *, optimised: bool) -> bool:
        session = open_session(self._source, threads, optimised=optimised)
        for given, outputs in self._on_all(session, lambda array: array):
            (given.optimised if optimised else given.runs).append(outputs)
        return True

    def _run_exact(self) -> None:
        def run() -> bool:
            try:
                twin = in_float64(self._model, self._specs).SerializeToString()
            except NoFloat64 as error:
                raise InvalidModelError(str(error), code="reference-failed") from error
            except ValueError as error:
                raise InvalidModelError(
                    "it would exceed protobuf's limit of 2 GiB", code="reference-failed"
                ) from error
            session = open_session(twin, max(2, self._threads), optimised=False)
            for given, outputs in self._on_all(session, _wide):
                if [array.shape for array in outputs] != [array.shape for array in given.runs[0]]:
                    raise InvalidModelError("its shapes differ then", code="reference-failed")
                given.exact = outputs
            self.report.float64 = True
            return True

        self._attempt("in float64", run, _FLOAT64_RUNS)

    def _run_exact_sigmoids(self) -> None:
        """Take the network with sigmoids in float64 for the plain one, where all of it cannot be run so.

        ONNX Runtime's sigmoid is the same everywhere below -18. No order of its runs would show this.
        """

        def run() -> bool:
            try:
                twin = with_exact_sigmoids(self._model, self._specs)
                source = None if twin is None else twin.SerializeToString()
            except (NoFloat64, ValueError) as error:
                raise InvalidModelError(clean_message(error), code="reference-failed") from error
            if twin is None or source is None:
                return False
            session = open_session(source, self._threads, optimised=False)
            for given, outputs in self._on_all(session, lambda array: array):
                given.runs = [outputs]
            self._model = twin
            return True

        self._attempt("with sigmoids in float64", run)

    def _attempt_moved(self, moved_by: float, *, for_ties: bool, seed: int) -> None:
        self._attempt(
            f"with inputs and weights moved by up to {moved_by:.0e} of themselves",
            lambda: self._moved(moved_by, for_ties=for_ties, seed=seed),
        )

    def _attempt_narrow(self, seed: int) -> None:
        def run() -> bool:
            model = self._model
            if seed:
                moved = with_moved_weights(model, _MOVED_WHERE_NARROW, np.random.default_rng(seed))
                model = onnx.ModelProto.FromString(moved)
            source = with_narrow_factors(model, self._specs, self._narrow or "")
            if source is None:
                return False
            session = open_session(source, max(2, self._threads), optimised=False)
            for given, outputs in self._on_all(session, lambda array: array):
                given.narrow.append(outputs)
            return True

        self._attempt(f"with the factors of products rounded to {self._narrow}", run)

    def _moved(self, moved_by: float, *, for_ties: bool, seed: int) -> bool:
        rng = np.random.default_rng(seed)
        steps_by = (moved_by if seed % 2 else -moved_by) if for_ties else 0.0
        source = with_moved_weights(self._model, moved_by, rng, steps_by=steps_by)
        session = open_session(source, max(2, self._threads), optimised=False)
        for given, outputs in self._on_all(session, lambda array: moved_array(array, moved_by, rng)):
            (given.for_ties if for_ties else given.runs).append(outputs)
        return True

    def _on_all(
        self, session: onnxruntime.InferenceSession, changed: Callable[[NDArray[Any]], NDArray[Any]]
    ) -> list[tuple[_Input, Arrays]]:
        pairs = []
        for given in self._inputs:
            outputs = run_session(session, self._names, [changed(array) for array in given.feeds])
            if [array.shape for array in outputs] != [array.shape for array in given.runs[0]]:
                raise InvalidModelError("its outputs have other shapes then", code="reference-failed")
            pairs.append((given, outputs))
        return pairs

    def _plain_with_scales(self, threads: int) -> bool:
        """Run the network with a factor at the weights of some layers, which is 1 here."""
        layers = weighted_nodes(self._model, self._specs) if self._probes else []
        last = len(layers) - 1
        chosen = sorted({round(number * last / (_PROBES - 1)) for number in range(_PROBES)}) if layers else []
        source, self._scales = with_scales(self._model, [layers[number] for number in chosen])
        session = open_session(source, threads, optimised=False)
        for given in self._inputs:
            given.runs.append(self._run_scaled(session, given, None))
        self._scaled = session
        return True

    def _run_scaled(self, session: onnxruntime.InferenceSession, given: _Input, scaled: str | None) -> Arrays:
        factors = [np.array(PROBE_SCALE if name == scaled else 1.0, np.float32) for name in self._scales]
        return run_session(session, [*self._names, *self._scales], [*given.feeds, *factors])

    def _probe(self, expected: Sequence[Expected]) -> None:
        """Find out whether the comparison notices when the weights of one layer are 0.1 % too large."""
        if self._scaled is None:
            return
        names = [output.name for output in self._scaled.get_outputs()]
        for scale in self._scales:
            if time.monotonic() + self._once_sec > self._until:
                self.report.left_out.append("more layers with weights 0.1 % too large: no time was left")
                self.report.hurried = True
                return
            self.report.probes += 1
            for given, want in zip(reversed(self._inputs), reversed(expected), strict=True):
                outputs = self._run_scaled(self._scaled, given, scale)
                if not all(
                    comparison.ok
                    for comparison in compare_outputs(names, outputs, want.outputs, widths=want.widths)
                ):
                    self.report.noticed += 1
                    break


def _is_legal(given: _Input) -> bool:
    """Return whether optimised runs are about as far from the reference as others."""
    for position, plain in enumerate(given.runs[0]):
        if plain.dtype.kind == "f" and plain.size:
            exact = None if given.exact is None else given.exact[position]
            want = reference_of([run[position] for run in given.runs], exact)
            least = float(np.finfo(plain.dtype).eps) * median_size(want)
            most = max(least, *(median_size(run[position], want) for run in given.runs))
            if any(median_size(run[position], want) > _LEGAL_MULTIPLE * most for run in given.optimised):
                return False
    return True


def _threads(number: int) -> str:
    return "1 thread" if number == 1 else f"{number} threads"


def _wide(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float64) if array.dtype.kind == "f" else array
