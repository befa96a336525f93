"""List the GPUs of this machine that the driver knows; none without a driver."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.gpu.nvml import NOT_INSTALLED, Nvml, NvmlError, Question
from tunefarm_tuning.measure.gpu.nvml_recorded import open_nvml
from tunefarm_tuning.measure.gpu.reading import answer_or_none

log = logging.getLogger("tunefarm.device")

_PATIENCE_SEC = 60.0
"""Time limit: a driver without persistence mode wakes up its GPUs one after the other, seconds each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, as its driver describes it.

    Attributes:
        index: Its number among the machine's, in the driver's order.
        uuid: CUDA's identifier, independent of the order of GPUs: ``GPU-…``.
        arch: ``sm_90``; empty if the driver does not say.
        memory_bytes: None if the driver does not say (memory that is shared with the CPU, say).
        mig: Whether it is cut into slices; None if the driver does not say.
    """

    index: int
    uuid: str
    name: str
    arch: str
    driver: str
    memory_bytes: int | None
    clock_max_mhz: float | None = None
    memory_clock_max_mhz: float | None = None
    power_limit_watts: float | None = None
    mig: bool | None = None

    @property
    def model(self) -> str:
        """Return the device model, which is made from its name."""
        return re.sub(r"[^a-z0-9._-]+", "-", self.name.lower()).strip("-._")[:100] or "gpu"

    def to_json(self) -> dict[str, Any]:
        """Return its description for people."""
        facts = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in facts.items() if value not in (None, "")}


def find(nvml: Nvml | None = None) -> list[Gpu]:
    """Return the GPUs of this machine that answer, in the driver's order.

    Raises:
        InvalidInputError: ``no-nvml`` if the package that asks the driver is not installed.
    """
    library = nvml or open_nvml()
    gpus: list[Gpu] = []
    missing: list[NvmlError] = []

    def look() -> None:
        try:
            gpus.extend(_find(library))
        except NvmlError as error:
            log.debug("no GPUs: %s", error.message)
            if error.name == NOT_INSTALLED:
                missing.append(error)

    looking = threading.Thread(target=look, name="gpus", daemon=True)
    looking.start()
    looking.join(_PATIENCE_SEC)
    if looking.is_alive():
        log.warning("the GPUs' driver does not answer")
        return []
    if missing:
        raise InvalidInputError(missing[0].message, code="no-nvml")
    return gpus


def _find(nvml: Nvml) -> list[Gpu]:
    driver = nvml.driver()
    gpus = []
    for index, uuid in enumerate(nvml.uuids()):
        try:
            if isinstance(uuid, NvmlError):
                raise uuid
            name = clean(str(nvml.ask(uuid, Question.NAME)), 100)
        except NvmlError as error:
            log.warning("GPU %d does not answer and is omitted: %s", index, error.message)
            continue
        gpus.append(
            Gpu(
                index=index,
                uuid=uuid,
                name=name,
                arch=answer_or_none(
                    nvml, uuid, Question.COMPUTE_CAPABILITY, lambda pair: f"sm_{pair[0]}{pair[1]}"
                )
                or "",
                driver=driver,
                memory_bytes=answer_or_none(nvml, uuid, Question.MEMORY, lambda pair: int(pair[0])),
                clock_max_mhz=answer_or_none(nvml, uuid, Question.CLOCK_MAX, float),
                memory_clock_max_mhz=answer_or_none(nvml, uuid, Question.MEMORY_CLOCK_MAX, float),
                power_limit_watts=answer_or_none(
                    nvml, uuid, Question.POWER_LIMIT, lambda milliwatts: milliwatts / 1e3
                ),
                mig=answer_or_none(nvml, uuid, Question.MIG, bool),
            )
        )
    return gpus


def choose(gpus: Sequence[Gpu], selection: str) -> list[Gpu]:
    """Return the GPUs that a list like ``0,2`` names, in the driver's order.

    Args:
        gpus: All GPUs of the machine.
        selection: ``all``, or numbers and UUIDs (or how these begin) with commas between.

    Raises:
        InvalidInputError: ``no-such-gpu``; the message lists what there is.
    """
    if selection == "all":
        return list(gpus)
    chosen: set[str] = set()
    for word in filter(None, (part.strip() for part in selection.split(","))):
        meant = [
            gpu for gpu in gpus if word == str(gpu.index) or (len(word) > 3 and gpu.uuid.startswith(word))
        ]
        if len(meant) != 1:
            there = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in gpus)
            raise InvalidInputError(
                f"this machine has no GPU '{word[:80]}'; "
                + (f"its driver lists {there}" if there else "its driver lists none"),
                code="no-such-gpu",
            )
        chosen.add(meant[0].uuid)
    return [gpu for gpu in gpus if gpu.uuid in chosen]
