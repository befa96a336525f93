"""What every runner of real kernels must do, sentence by sentence of `Runner`'s docstring.

Derive a test class from `RunnerContract` and say how to make the runner and what to give it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from tunefarm_tuning.measure import MeasureInput, MeasureResult, Outcome, Runner

REPEAT = 3


class RunnerContract(ABC):
    """Conformance suite of `Runner` (pytest collects what derives from it).

    The runner times `REPEAT` samples, and gives a candidate a few seconds at most.
    """

    @abstractmethod
    def runner(self) -> Runner:
        """Return the runner; it may be the same one every time, and is not closed here."""

    @abstractmethod
    def good(self) -> list[MeasureInput]:
        """Return three kernels that run."""

    @abstractmethod
    def bad(self, kind: str) -> MeasureInput:
        """Return a kernel of `bad_kernels.BODIES`."""

    def _check_good(self, results: list[MeasureResult]) -> None:
        for result in results:
            assert result.failure is None, result.failure
            assert len(result.samples_sec) == REPEAT
            assert all(type(sample) is float and sample > 0 for sample in result.samples_sec)
            assert result.cost_sec is not None
            assert result.run_sec > 0

    def _run_among_good(self, bad: MeasureInput) -> MeasureResult:
        first, *rest = self.good()
        results = self.runner().run([first, bad, *rest])
        assert len(results) == 2 + len(rest)
        self._check_good([results[0], *results[2:]])
        failed = results[1]
        assert failed.samples_sec == ()
        assert failed.cost_sec is None
        assert failed.failure is not None
        assert failed.failure.message
        return failed

    def test_one_result_per_input(self) -> None:
        assert self.runner().run([]) == []
        inputs = self.good()
        results = self.runner().run(inputs)
        assert len(results) == len(inputs)
        self._check_good(results)

    def test_the_device_stays_the_same(self) -> None:
        assert self.runner().device == self.runner().device
        assert self.runner().device.num_cores >= 1

    def test_a_crash_is_the_candidates_alone(self) -> None:
        for kind in ("crash", "exit"):
            failed = self._run_among_good(self.bad(kind))
            assert failed.failure is not None
            assert failed.failure.outcome is Outcome.RUN_CRASH, failed.failure

    def test_a_hang_is_the_candidates_alone(self) -> None:
        failed = self._run_among_good(self.bad("hang"))
        assert failed.failure is not None
        assert failed.failure.outcome is Outcome.RUN_TIMEOUT, failed.failure

    def test_a_library_without_a_kernel_is_an_error(self) -> None:
        failed = self._run_among_good(self.bad("nothing"))
        assert failed.failure is not None
        assert failed.failure.outcome is Outcome.RUN_ERROR, failed.failure

    def test_a_missing_file_is_an_error(self) -> None:
        good = self.good()[0]
        failed = self._run_among_good(
            MeasureInput(task=good.task, artifact_path=good.artifact_path.with_name("missing.so"))
        )
        assert failed.failure is not None
        assert failed.failure.outcome is Outcome.RUN_ERROR, failed.failure
