"""Jobs side by side, as the client returns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tunefarm.client.results.artifacts import Speedup, TimedNetwork
from tunefarm.client.results.reading import Answer, Result
from tunefarm.client.results.shown import Shown
from tunefarm_text import quantities


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ComparedJob(Shown, Result):
    """A job among others.

    Attributes:
        libraries: Libraries that may compute kernels, by TVM's names of them.
        latency_sec: Latency of the network as it was measured; before that, the sum of the kernels' best times.
        is_measured: Whether the latency is the network's, and not such a sum.
        is_disturbed: Whether other work disturbed its timing so much that no ratio is known within a factor of three.
        ratios: How many times as fast the artifact is as other networks, by their names.
        networks: The network as the search timed it on the way, oldest first.
        curve: Seconds of search, and the sum of the kernels' best times in seconds, where it changed.
    """

    id: str
    model_id: str = ""
    model_name: str = ""
    state: str = ""
    device_key: str = ""
    target_key: str = ""
    tuner: str = ""
    precision: str = ""
    libraries: tuple[str, ...] = ()
    trials: int = 0
    tuned_sec: float = 0.0
    created_at: float = 0.0
    latency_sec: float | None = None
    is_measured: bool = False
    is_disturbed: bool = False
    ratios: Mapping[str, Speedup] = field(default_factory=dict)
    artifact_bytes: int | None = None
    networks: tuple[TimedNetwork, ...] = ()
    curve: tuple[tuple[float, float], ...] = ()

    @property
    def latency_text(self) -> str:
        """The latency as text, and whether it is an estimate, or disturbed."""
        return quantities.doubted_latency(
            self.latency_sec, is_measured=self.is_measured, is_disturbed=self.is_disturbed
        )

    def ratio_text(self, network: str) -> str:
        """Return how many times as fast as a network (``onnxruntime``, ``untuned``) it is, as text; ``–`` if that is not known."""
        ratio = self.ratios.get(network)
        if ratio is None:
            return quantities.NONE
        return ratio.text if ratio.comparable else f"{ratio.text} (computes something else)"

    def summary(self) -> Mapping[str, str]:
        """Return the job's row in a notebook: column name to text."""
        return {
            "": self.id,
            "model": self.model_name,
            "devices": self.device_key,
            "precision": self.precision,
            "state": self.state,
            "latency": self.latency_text,
            "speed-up over ONNX Runtime": self.ratio_text("onnxruntime"),
            "speed-up over untuned": self.ratio_text("untuned"),
            "trials": str(self.trials),
            "searched": quantities.duration(self.tuned_sec),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedKernel(Result):
    """A kernel that at least one of the jobs tunes. Values are in the order of the jobs, None where a job does not tune it.

    Attributes:
        workload_key: Key of the workload.
        name: Name of the kernel.
        weights: Calls per inference.
        best_sec: Best time of a call in seconds.
        trials: Number of trials.
    """

    workload_key: str
    name: str = ""
    weights: tuple[int | None, ...] = ()
    best_sec: tuple[float | None, ...] = ()
    trials: tuple[int | None, ...] = ()

    @property
    def is_shared(self) -> bool:
        """Whether at least two of the jobs have it: others cannot be compared."""
        return sum(weight is not None for weight in self.weights) > 1


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JobComparison(Shown, Answer):
    """Jobs side by side: in the order asked for, and their kernels, the largest differences first."""

    jobs: tuple[ComparedJob, ...] = ()
    kernels: tuple[ComparedKernel, ...] = ()

    def summary(self) -> Mapping[str, str]:
        """Return the latency of each job: its id to text."""
        return {job.id: f"{job.model_name} {job.latency_text}" for job in self.jobs}
