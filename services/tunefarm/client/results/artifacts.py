"""A job's artifact, as the client returns what is known of it: its draft, its speed-ups and its measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tunefarm.client.results.models import Problem
from tunefarm.client.results.reading import Answer, Result
from tunefarm.client.results.shown import Shown
from tunefarm_text import quantities
from tunefarm_text.job_terms import RUNTIMES, runtime_title


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup(Result):
    """How many times as fast an artifact is as another network.

    Attributes:
        value: Ratio of the medians.
        low: Lower end of its 95 % interval; None if unknown.
        high: Upper end of it.
        text: The ratio as far as it is known: ``1.24×``, or ``between 1.2 and 3.9×``.
        verdict: ``faster``, ``slower``, or ``same`` if the interval cannot tell.
        comparable: Whether the other network computes as precisely as the artifact has to; if not, it is not taken for the fastest
            other runtime.
    """

    value: float
    low: float | None = None
    high: float | None = None
    text: str = ""
    verdict: str = ""
    comparable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(Result):
    """The artifact so far of a job that has none of its own yet.

    Attributes:
        tasks: Number of kernels to tune.
        covered: Number of those that are tuned in it; 0: it is untuned.
        created_at: When it was stored.
    """

    name: str
    sha256: str
    size_bytes: int
    tasks: int = 0
    covered: int = 0
    created_at: float = 0.0

    @property
    def text(self) -> str:
        """How far it is tuned: ``untuned``, or ``12 of 20 kernels tuned``."""
        return quantities.tuned_kernels(self.covered, self.tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedNetwork(Result):
    """The network with its kernels so far, as a search compiled and timed it.

    Attributes:
        number: 0 is the untuned network.
        tasks: Number of kernels to tune.
        covered: Number of those that are tuned in it.
        latency_sec: Seconds per inference; `low_sec` and `high_sec` are its 95 % interval, None if there is one sample.
        quiet: Whether other work on the device hardly slowed it; None if nobody looked.
        device: Name of the device.
        tuned_sec: Seconds of search when it was timed.
    """

    number: int
    latency_sec: float
    tasks: int = 0
    covered: int = 0
    low_sec: float | None = None
    high_sec: float | None = None
    quiet: bool | None = None
    device: str | None = None
    tuned_sec: float = 0.0
    timed_at: float = 0.0

    @property
    def text(self) -> str:
        """When and how far tuned it was: ``measured after 1 min 02 s of search, 3 of 20 kernels tuned``."""
        disturbed = ", disturbed by other work" if self.quiet is False else ""
        tuned = quantities.tuned_kernels(self.covered, self.tasks)
        return f"measured after {quantities.duration(self.tuned_sec)} of search, {tuned}{disturbed}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Measurement(Shown, Result):
    """A measurement of a job's artifact.

    Attributes:
        device: Name of the device; None if unknown. `device_model` is its model.
        at_compile: Whether the compile measured it.
        quiet: Whether other work on the device hardly slowed it; None if nobody looked.
        shown: Whether the job's report, page and lists show this one: the latest quiet one; if none is quiet, the latest. One that
            timed fewer networks than the shown one is only listed.
        seconds: Seconds per inference of ``tuned`` (the artifact), ``untuned``, ``onnxruntime`` and other runtimes.
        ratios: How many times as fast as the others the artifact is.
    """

    measured_at: float
    device: str | None = None
    device_model: str | None = None
    at_compile: bool = False
    quiet: bool | None = None
    shown: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, Speedup] = field(default_factory=dict)

    def summary(self) -> Mapping[str, str]:
        """Return the measurement's row in a notebook: column name to text."""
        further = [name for name in RUNTIMES if name in self.ratios and name != "onnxruntime"]
        names = {"untuned": "speed-up over untuned", "onnxruntime": "speed-up over ONNX Runtime"}
        names |= {name: f"speed-up over {runtime_title(name)}" for name in further}
        return {
            "": quantities.local_time(self.measured_at) + (" (compile)" if self.at_compile else ""),
            "device": self.device or quantities.NONE,
            "other work": quantities.other_work(self.quiet),
            "artifact": quantities.latency(self.seconds.get("tuned")),
            **{
                text: self.ratios[name].text if name in self.ratios else quantities.NONE
                for name, text in names.items()
            },
            "shown": "yes" if self.shown else "",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements(Answer):
    """The measurements of a job's artifact, oldest first.

    Attributes:
        state: State of the last one that was asked for: ``waiting`` for a worker or a device, ``measuring``, ``failed`` or
            ``idle``.
        asked_at: When it was asked for, Unix seconds; None if nobody has asked for one.
        error: Why it failed, or what it is repeated after.
        waiting: What it waits for; None unless `state` is ``waiting``.
    """

    items: tuple[Measurement, ...] = ()
    state: str = "idle"
    asked_at: float | None = None
    error: Problem | None = None
    waiting: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether a measurement is under way."""
        return self.state in ("waiting", "measuring")
