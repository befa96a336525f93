"""Which devices this machine lends: itself, or each of its GPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.target.parse import parse_target
from tunefarm_workers.device.gpu import driver as gpu
from tunefarm_workers.device.gpu.driver import Gpu
from tunefarm_workers.device.settings import AgentSettings, as_device

_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True, kw_only=True)
class LentDevice:
    """A device of this machine.

    Attributes:
        settings: Its own: its name, its folder, its target.
        gpu: The GPU that it is; None for the machine's CPU, and for a GPU of which the driver tells nothing.
    """

    settings: AgentSettings
    gpu: Gpu | None = None


def devices_of(settings: AgentSettings, environment: Mapping[str, str] = os.environ) -> list[LentDevice]:
    """Return the devices that this machine is to lend, one or more.

    Without ``--gpu`` a CUDA target means all GPUs that ``CUDA_VISIBLE_DEVICES`` leaves. A GPU has ``-gpu`` and its number
    after its name where the machine has others, and nobody chose the name for it alone.

    Raises:
        InvalidInputError: ``no-such-gpu``, ``no-nvml``, ``gpus-differ`` if those chosen cannot be one pool, ``invalid-device`` or
            ``no-api-key``.
        UnknownTargetError: If the target means nothing.
    """
    if settings.gpu is None and not _is_cuda(settings.target):
        return [LentDevice(settings=as_device(settings, settings.name, environment=environment))]
    visible = environment.get(_VISIBLE)
    if not settings.gpu and visible is not None and not visible.strip():
        raise InvalidInputError(f"{_VISIBLE} is empty: no GPU is to be seen", code="no-such-gpu")
    found = gpu.find()
    if not found and settings.gpu is None:
        # No driver that could be asked. The target has to be complete then.
        parse_target(settings.target)
        return [LentDevice(settings=as_device(settings, settings.name, environment=environment))]
    chosen = gpu.choose(found, settings.gpu or visible or "all")
    if not chosen:
        raise InvalidInputError("the driver lists no GPU on this machine", code="no-such-gpu")
    _check_alike(chosen)
    target = _target(settings, chosen[0])
    if len(chosen) == 1:
        alone = settings.name_given or len(found) == 1
        name = settings.name if alone else f"{settings.name}-gpu{chosen[0].index}"
        own = as_device(settings, name, environment=environment)
        return [LentDevice(settings=replace(own, target=target, gpu=chosen[0].uuid), gpu=chosen[0])]
    return [
        LentDevice(
            settings=replace(
                as_device(
                    settings,
                    f"{settings.name}-gpu{one.index}",
                    part=f"gpu{one.index}",
                    environment=environment,
                ),
                target=target,
                gpu=one.uuid,
                port=settings.port + number if settings.port else 0,
            ),
            gpu=one,
        )
        for number, one in enumerate(chosen)
    ]


def _is_cuda(target: str) -> bool:
    if target == "host":
        return False  # to look at it would ask the compiler
    return target == "cuda" or parse_target(target).kind == "cuda"


def _target(settings: AgentSettings, one: Gpu) -> str:
    if settings.target in ("host", "cuda"):
        if not one.arch:
            raise InvalidInputError(
                f"the driver does not say what architecture the {one.name} has: give --target cuda/sm_NN",
                code="invalid-device",
                field="target",
            )
        return f"cuda/{one.arch}"
    target = parse_target(settings.target)
    if target.kind != "cuda":
        raise InvalidInputError(
            f"--gpu lends GPUs, and --target says {target.kind}: leave it out, or give a cuda target",
            code="invalid-device",
            field="target",
        )
    asked = str(target.get("arch"))
    if one.arch and _number(asked) != _number(one.arch):
        # Libraries hold machine code, and nothing that a driver could translate.
        raise InvalidInputError(
            f"code for {asked} does not run on the {one.name}, which is {one.arch}: "
            f"give --target cuda, or cuda/{one.arch}",
            code="invalid-device",
            field="target",
        )
    return settings.target


def _number(arch: str) -> int:
    return int("".join(letter for letter in arch if letter.isdigit()) or 0)


def _check_alike(chosen: Sequence[Gpu]) -> None:
    kinds = {(one.name, one.arch) for one in chosen}
    if len(kinds) > 1:
        there = ", ".join(f"{one.index} is a {one.name}" for one in chosen)
        raise InvalidInputError(
            f"the GPUs differ ({there}), and devices of one key must be alike: join each kind by itself, with --gpu and "
            "a --device-key of its own",
            code="gpus-differ",
        )
