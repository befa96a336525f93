"""The contract test of runners of real kernels: a test for each sentence of `Runner`'s docstring.

Derive a test class from `RunnerContract`, and define the runner and the kernels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import MeasureInput, MeasureResult, Runner

REPEAT = 3


class RunnerContract(ABC):
    """Conformance suite of `Runner` (pytest collects its subclasses).

    The runner times `REPEAT` samples (fewer only of hopeless candidates), and gives a candidate a few seconds at most.
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
            assert result.truncated or len(result.samples_sec) == REPEAT
            assert all(type(sample) is float and sample > 0 for sample in result.samples_sec)
            assert result.cost_sec is not None
            assert result.run_sec > 0

    def _run_among_good(self, bad: MeasureInput) -> MeasureResult:
        first, *others = self.good()
        results = self.runner().run([first, bad, *others])
        assert len(results) == 2 + len(others)
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

    def test_the_first_of_a_batch_without_a_rival_is_timed_in_full(self) -> None:
        (result,) = self.runner().run(self.good()[:1])
        assert not result.truncated
        assert len(result.samples_sec) == REPEAT
        assert result.noise is not None
        assert result.noise >= 0

    def test_what_is_hopeless_is_timed_briefly(self) -> None:
        good = self.good()[0]
        (full,) = self.runner().run([replace(good, rival_sec=1.0)])
        assert not full.truncated
        (brief,) = self.runner().run([replace(good, rival_sec=1e-12)])
        assert brief.failure is None
        assert brief.truncated
        assert len(brief.samples_sec) == 1
        assert brief.cost_sec is not None

    def test_kernels_are_timed_in_turn(self) -> None:
        assert self.runner().run_interleaved([], rounds=3) == []
        inputs = [replace(candidate, rival_sec=1e-12) for candidate in self.good()]
        results = self.runner().run_interleaved(inputs, rounds=5)
        assert len(results) == len(inputs)
        for result in results:
            assert result.failure is None
            assert not result.truncated
            assert len(result.samples_sec) == 5
            assert all(type(sample) is float and sample > 0 for sample in result.samples_sec)
            assert result.run_sec > 0

    def test_a_bad_kernel_among_those_timed_in_turn_is_found(self) -> None:
        for kind, outcome in (("crash", Outcome.RUN_CRASH), ("nothing", Outcome.RUN_ERROR)):
            first, second, *_ = self.good()
            results = self.runner().run_interleaved([first, self.bad(kind), second], rounds=5)
            assert results[1].failure is not None
            assert results[1].failure.outcome is outcome, results[1].failure
            for result in (results[0], results[2]):
                assert result.failure is None
                assert not result.truncated
                assert len(result.samples_sec) == REPEAT

    def test_kernels_of_different_tasks_are_not_timed_in_turn(self) -> None:
        first = self.good()[0]
        workload = replace(first.task.workload, key="another")
        other = replace(first, task=replace(first.task, workload=workload))
        try:
            self.runner().run_interleaved([first, other], rounds=1)
        except ValueError as error:
            assert "different tasks" in str(error)  # noqa: PT017  (this package does not need pytest)
        else:
            raise AssertionError("kernels of different tasks were timed in turn")

    def test_the_device_stays_the_same(self) -> None:
        assert self.runner().device == self.runner().device
        assert self.runner().device.num_cores >= 1
        assert self.runner().shares_host in (True, False)

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
