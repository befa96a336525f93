"""Options that several commands share, alone and in groups, and their parsers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tunefarm.cli.base.completion import complete_pool
from tunefarm.cli.base.option_group import OptionGroup
from tunefarm_text.job_terms import DEFAULT_TUNER, HELP, plain_tag
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.workload.shapes import StoredShape, read_shape_lines

_BUDGET = "Budget: the first limit reached ends the search"

Shape = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=D,D,…",
        help="Shape of an input with dynamic dimensions, like x=1,3,224,224. Several sizes make one artifact for all: "
        "'x=1,3,48,160|320|640'; a range of batch sizes is 'x=1..8,3,224,224'. Can be given several times.",
    ),
]
Inputs = Annotated[
    list[Path] | None,
    typer.Option(
        "--inputs",
        metavar="SAMPLES.npz",
        help="Real inputs: an array for each input, with the input's shape or with one more dimension in front. The artifact is "
        "compared on them first, and timed on the first sample set. Can be given several times.",
    ),
]
ValueOption = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="NAME=VALUE",
        help="Value of an input that is a setting, like sr=16000. The input becomes a constant. A number, true, false, "
        "numbers with commas, or lists like [[1,2],[3,4]]. Can be given several times.",
    ),
]
Priority = Annotated[str | None, typer.Option("--priority", metavar="PRIORITY", help=HELP["priority"])]
Target = Annotated[str, typer.Option("--target", "-t", help=HELP["target"])]
DeviceKey = Annotated[
    str | None, typer.Option("--device-key", help=HELP["device_key"], autocompletion=complete_pool)
]
PrecisionOption = Annotated[str | None, typer.Option("--precision", help=HELP["precision"])]
MaxError = Annotated[float | None, typer.Option("--max-error", help=HELP["max_error"])]
OtherShapes = Annotated[bool, typer.Option("--other-shapes/--no-other-shapes", help=HELP["other_shapes"])]
BaselineNames = Annotated[
    str | None, typer.Option("--baselines", metavar="NAME,NAME", help=HELP["baselines"])
]
OutFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead of standard output."),
]
Limit = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=1_000_000_000, help="Show at most this many.")
]


Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Only items with this tag. Can be given several times."),
]
Text = Annotated[
    str | None,
    typer.Option(
        "--search", metavar="TEXT", help="Only items with this text in their id, name, tags or note."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelOptions(OptionGroup):
    """Tags and note, of something new."""

    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="Add this tag. Can be given several times."),
    ] = None
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="A note for people.")] = None


NO_CHANGE = "nothing to change: give one of the options that --help lists"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelChanges(LabelOptions):
    """Changes of tags and note."""

    untag: Annotated[
        list[str] | None,
        typer.Option("--untag", metavar="TAG", help="Remove this tag. Can be given several times."),
    ] = None

    def changes(self, present: Callable[[], Sequence[str]]) -> dict[str, Any]:
        """Return the keyword arguments for the client's methods.

        Args:
            present: Asks for the present tags.
        """
        changes: dict[str, Any] = {} if self.note is None else {"note": self.note}
        if self.tag or self.untag:
            removed = {plain_tag(tag) for tag in self.untag or ()}
            kept = [tag for tag in present() if tag not in removed]
            changes["tags"] = [*kept, *(self.tag or ())]
        return changes


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions(OptionGroup):
    """The limits of a job."""

    minutes: Annotated[
        float | None, typer.Option("--minutes", "-m", help=HELP["minutes"], rich_help_panel=_BUDGET)
    ] = None
    job_seconds: Annotated[
        float | None, typer.Option("--job-seconds", help=HELP["job_seconds"], rich_help_panel=_BUDGET)
    ] = None
    search_minutes: Annotated[
        float | None, typer.Option("--search-minutes", help=HELP["search_minutes"], rich_help_panel=_BUDGET)
    ] = None
    seconds: Annotated[
        float | None, typer.Option("--seconds", help=HELP["seconds"], rich_help_panel=_BUDGET)
    ] = None
    trials: Annotated[int | None, typer.Option("--trials", help=HELP["trials"], rich_help_panel=_BUDGET)] = (
        None
    )
    patience: Annotated[
        int | None, typer.Option("--patience", help=HELP["patience"], rich_help_panel=_BUDGET)
    ] = None
    min_gain: Annotated[
        float | None, typer.Option("--min-gain", help=HELP["min_gain"], rich_help_panel=_BUDGET)
    ] = None

    def limits(self) -> Mapping[str, float | None]:
        """Return the limits by the names of their options."""
        return {
            "--minutes": self.minutes,
            "--job-seconds": self.job_seconds,
            "--search-minutes": self.search_minutes,
            "--seconds": self.seconds,
            "--trials": self.trials,
            "--patience": self.patience,
            "--min-gain": self.min_gain,
        }

    def terms(self) -> dict[str, Any]:
        """Return the keyword arguments for the client's methods."""
        times = ("minutes", "job_seconds", "search_minutes", "seconds")
        return {name: getattr(self, name) for name in (*times, "trials", "patience", "min_gain")}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions(LimitOptions):
    """The terms of a running job that can be changed: its limits and its priority."""

    priority: Priority = None

    def terms(self) -> dict[str, Any]:
        """Return the keyword arguments for the client's methods."""
        return {**LimitOptions.terms(self), "priority": _as_priority(self.priority)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TermOptions(LimitOptions):
    """All terms of a job. `tunefarm tune --help` lists them in this order."""

    quick: Annotated[
        bool,
        typer.Option("--quick", help="One minute for the whole job: --minutes 1.", rich_help_panel=_BUDGET),
    ] = False
    target: Target = "host"
    tuner: Annotated[str, typer.Option("--tuner", help=HELP["tuner"])] = DEFAULT_TUNER
    seed: Annotated[int, typer.Option("--seed", help=HELP["seed"])] = 0
    device_key: DeviceKey = None
    priority: Priority = None
    precision: PrecisionOption = None
    max_error: MaxError = None
    other_shapes: OtherShapes = True
    baselines: BaselineNames = None

    def terms(self) -> dict[str, Any]:
        """Return the keyword arguments for the client's methods."""
        return {
            **LimitOptions.terms(self),
            "tuner": self.tuner,
            "seed": self.seed,
            **_compiled_terms(self),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions(OptionGroup):
    """The terms of a job without a search."""

    target: Target = "host"
    device_key: DeviceKey = None
    priority: Priority = None
    precision: PrecisionOption = None
    max_error: MaxError = None
    other_shapes: OtherShapes = True
    baselines: BaselineNames = None

    def terms(self) -> dict[str, Any]:
        """Return the keyword arguments for the client's methods."""
        return {**_compiled_terms(self), "search": False}


def _compiled_terms(options: TermOptions | CompileOptions) -> dict[str, Any]:
    return {
        "target": check_target(options.target),
        "device_key": options.device_key,
        "priority": _as_priority(options.priority),
        "precision": options.precision,
        "max_error": options.max_error,
        "baselines": options.baselines,
        "other_shapes": None if options.other_shapes else False,  # older servers have no such option
    }


def check_target(text: str) -> str:
    """Return a target's text; refuse a list of names, which the server would take for a misspelt CPU.

    Raises:
        InvalidInputError: several-targets; the message names the option for several.
    """
    words = text.split()
    if words and "," in words[0] and not words[0].startswith("{"):
        raise InvalidInputError(
            f"--target is a single target, not {clean(text, 60)!r}. `tunefarm tune` takes several pools of devices, and makes an "
            "artifact for each: --device-key x86,arm; `tunefarm device list` shows the pools",
            code="several-targets",
        )
    return text


def _as_priority(text: str | None) -> int | str | None:
    """Return a priority as the server takes it: a number, or a name."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return text


def check_inputs(
    paths: Sequence[Path] | None, *, precision: str | None = None, of: str = "the network"
) -> list[Path]:
    """Return the files of samples, which must exist, and be there for int8: a typo must not cost an upload.

    Args:
        paths: What the option names.
        precision: The precision, if it is one.
        of: What it would quantise, for people.

    Raises:
        InvalidInputError: no-file, samples-needed.
    """
    if precision == "int8" and not paths:
        raise InvalidInputError(
            f"--precision int8 quantises {clean(of)} on real inputs: give some with --inputs samples.npz",
            code="samples-needed",
        )
    for path in paths or ():
        if not path.is_file():
            raise InvalidInputError(f"--inputs {path}: there is no such file", code="no-file")
    return list(paths or ())


def parse_shapes(texts: Sequence[str] | None) -> dict[str, StoredShape]:
    """Read ``name=1,3,224,224`` texts; see `tunefarm_text.shape_text`.

    Raises:
        InvalidInputError: If a text is not like that, a dimension is not above zero, or a name comes twice.
    """
    shapes = read_shape_lines(texts or ())
    for name, shape in shapes.items():
        if not shape:
            raise InvalidInputError(
                f"--shape {clean(name)}= is empty: write it like x=1,3,224,224",
                code="bad-shape",
                input=clean(name),
            )
    return shapes
