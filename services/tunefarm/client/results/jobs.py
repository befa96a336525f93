"""What the client returns: frozen values read from the server's answers.

Each keeps the whole answer in `raw`, for what this version has no name for. Times that end in ``_at`` are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from tunefarm.client.results.fields import Fields
from tunefarm.client.results.peaks import Roofline
from tunefarm.client.results.shown import Shown, html_table

T = TypeVar("T")

FINISHED_STATES = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Part of a list; `next_cursor` gets the next part, None where this is the last.

    Iterating yields this part's items; the lists' `all` methods go on to the end.
    """

    items: tuple[T, ...]
    next_cursor: str | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, position: int) -> T:
        return self.items[position]

    def _repr_html_(self) -> str:
        more = "" if self.next_cursor is None else "<p>… and more: this is the first part</p>"
        return html_table(self.items) + more

    @classmethod
    def read(cls, data: object, item: Callable[[object], T]) -> Page[T]:
        f = Fields(data, "list")
        return Page(
            items=tuple(item(entry) for entry in f.items("items")), next_cursor=f.optional_text("next_cursor")
        )


class Whole(tuple[T, ...]):
    """A whole list; a notebook shows it as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return html_table(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a model or a job failed."""

    code: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, data: object) -> Self | None:
        if data is None:
            return None
        f = Fields(data, "error")
        message = f.optional_text("message") or f.optional_text("detail") or "no reason was given"
        return cls(code=f.text("code", "internal"), message=message, fields=f.mapping("fields"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An input or output of a model."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "tensor")
        return cls(name=f.text("name"), shape=tuple(int(d) for d in f.items("shape")), dtype=f.text("dtype"))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Model(Shown):
    """An uploaded model.

    Attributes:
        state: ``importing``, ``ready``, ``failed`` or ``deleted``; inputs and what follows are known when ready.
        operators: Operator name and how often it occurs.
    """

    id: str
    name: str
    state: str
    sha256: str
    size_bytes: int
    created_at: float
    error: Problem | None
    shapes: Mapping[str, tuple[int, ...]]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    operators: tuple[tuple[str, int], ...]
    opset: int | None
    num_params: int | None
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "model")
        opset, num_params = f.optional_number("opset"), f.optional_number("num_params")
        return cls(
            id=f.text("id"),
            name=f.text("name", ""),
            state=f.text("state"),
            sha256=f.text("sha256", ""),
            size_bytes=f.integer("size_bytes", 0),
            created_at=f.number("created_at", 0.0),
            error=Problem.read(f.data.get("error")),
            shapes={name: tuple(int(d) for d in shape) for name, shape in f.mapping("shapes").items()},
            inputs=tuple(Tensor.read(t) for t in f.items("inputs")),
            outputs=tuple(Tensor.read(t) for t in f.items("outputs")),
            operators=tuple((str(pair[0]), int(pair[1])) for pair in f.items("operators")),
            opset=None if opset is None else int(opset),
            num_params=None if num_params is None else int(num_params),
            raw=f.data,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelTask(Shown):
    """A kernel of a model that can be tuned; `weight` is how often one inference runs it."""

    position: int
    name: str
    workload_key: str
    weight: int
    flops: float
    pipeline: str
    args: tuple[Tensor, ...]
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "task")
        return cls(
            position=f.integer("position", 0),
            name=f.text("name", ""),
            workload_key=f.text("workload_key"),
            weight=f.integer("weight", 1),
            flops=f.number("flops", 0.0),
            pipeline=f.text("pipeline", ""),
            args=tuple(Tensor.read(t) for t in f.items("args")),
            raw=f.data,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is.

    Attributes:
        phase: ``queued``, ``extracting``, ``tuning``, ``confirming`` (the best are measured again), ``compiling`` or a
            final state.
        best_latency_sec: The model's latency as the sum of its kernels' best times; None until each has one.
        tuned_sec: Wall-clock spent searching.
    """

    phase: str
    tasks_total: int
    tasks_with_record: int
    trials: int
    failures: int
    best_latency_sec: float | None
    tuned_sec: float
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "progress")
        return cls(
            phase=f.text("phase", ""),
            tasks_total=f.integer("tasks_total", 0),
            tasks_with_record=f.integer("tasks_with_record", 0),
            trials=f.integer("trials", 0),
            failures=f.integer("failures", 0),
            best_latency_sec=f.optional_number("best_latency_sec"),
            tuned_sec=f.number("tuned_sec", 0.0),
            raw=f.data,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Job(Shown):
    """A tuning job.

    Attributes:
        state: ``queued``, ``extracting``, ``tuning``, ``compiling``, ``paused``, ``succeeded``, ``failed`` or
            ``cancelled``.
        budget: ``trials``, ``wall_sec``, ``patience_trials``, ``min_gain_per_min``; None where a limit is not set.
        stop_reason: Why the search ended: the limit that was reached, or ``exhausted``.
        priority: Jobs with a higher one get devices first.
        waiting: What it waits for (a device, its turn on one, a worker, another try); None while it is at work.
    """

    id: str
    model_id: str
    state: str
    target_key: str
    device_key: str
    tuner: str
    seed: int
    budget: Mapping[str, float | None]
    trials: int
    failures: int
    best_latency_sec: float | None
    tuned_sec: float
    stop_reason: str | None
    cancel_requested: bool
    priority: int
    waiting: str | None
    error: Problem | None
    artifact_id: str | None
    progress: Progress
    created_at: float
    finished_at: float | None
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED_STATES

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "job")
        state = f.text("state")
        return cls(
            id=f.text("id"),
            model_id=f.text("model_id", ""),
            state=state,
            target_key=f.text("target_key", ""),
            device_key=f.text("device_key", ""),
            tuner=f.text("tuner", ""),
            seed=f.integer("seed", 0),
            budget=f.mapping("budget"),
            trials=f.integer("trials", 0),
            failures=f.integer("failures", 0),
            best_latency_sec=f.optional_number("best_latency_sec"),
            tuned_sec=f.number("tuned_sec", 0.0),
            stop_reason=f.optional_text("stop_reason"),
            cancel_requested=f.flag("cancel_requested"),
            priority=f.integer("priority", 0),
            waiting=f.optional_text("waiting"),
            error=Problem.read(f.data.get("error")),
            artifact_id=f.optional_text("artifact_id"),
            progress=Progress.read({"phase": state, **f.mapping("progress")}),
            created_at=f.number("created_at", 0.0),
            finished_at=f.optional_number("finished_at"),
            raw=f.data,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JobTask(Shown):
    """One of a job's kernels, and how far its tuning is.

    Attributes:
        weight: How often one inference runs it.
        outcomes: How many trials ended how.
        best_cost_sec: Its fastest kernel so far, seconds per call.
        flops: Floating-point operations of one call; None where they are not known.
        roofline: How near that kernel is to what its device can do; None where none works yet.
        counts: Whether its time is part of the network's: an alternative that is faster takes its place.
    """

    position: int
    name: str
    workload_key: str
    weight: int
    trials: int
    failures: int
    outcomes: Mapping[str, int]
    best_cost_sec: float | None
    untuned_cost_sec: float | None
    flops: float | None
    roofline: Roofline | None
    spent_sec: float
    counts: bool = True
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "task")
        return cls(
            position=f.integer("position"),
            name=f.text("name", ""),
            workload_key=f.text("workload_key"),
            weight=f.integer("weight", 1),
            trials=f.integer("trials", 0),
            failures=f.integer("failures", 0),
            outcomes=f.mapping("outcomes"),
            best_cost_sec=f.optional_number("best_cost_sec"),
            untuned_cost_sec=f.optional_number("untuned_cost_sec"),
            flops=f.optional_number("flops"),
            roofline=Roofline.read(f.data.get("roofline")),
            spent_sec=f.number("spent_sec", 0.0),
            counts=f.flag("counts", True),
            raw=f.data,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Trial(Shown):
    """One config that a job tried, and how it ended (`outcome` is ``ok`` or a class of failure)."""

    position: int
    round: int
    outcome: str
    cost_sec: float | None
    message: str
    measured_at: float
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "trial")
        return cls(
            position=f.integer("position", 0),
            round=f.integer("round", 0),
            outcome=f.text("outcome"),
            cost_sec=f.optional_number("cost_sec"),
            message=f.text("message", ""),
            measured_at=f.number("measured_at", 0.0),
            raw=f.data,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Record(Shown):
    """A measured fact from the server's history."""

    workload_key: str
    target_key: str
    device_model: str
    toolchain: str
    outcome: str
    cost_sec: float | None
    measured_at: float
    tuner: str
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "record")
        return cls(
            workload_key=f.text("workload_key"),
            target_key=f.text("target_key", ""),
            device_model=f.text("device_model", ""),
            toolchain=f.text("toolchain", ""),
            outcome=f.text("outcome"),
            cost_sec=f.optional_number("cost_sec"),
            measured_at=f.number("measured_at", 0.0),
            tuner=f.text("tuner", ""),
            raw=f.data,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Event(Shown):
    """Something that happened to a job; `seq` counts from 1 within the job."""

    seq: int
    kind: str
    data: Mapping[str, Any]
    created_at: float

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "event")
        return cls(
            seq=f.integer("seq"),
            kind=f.text("kind"),
            data=f.mapping("data"),
            created_at=f.number("created_at", 0.0),
        )
