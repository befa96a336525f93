"""Choose the devices of this machine: the machine itself, or each of its GPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.target.parse import parse_target
from tunefarm_workers.device.gpu import driver
from tunefarm_workers.device.gpu.driver import Gpu
from tunefarm_workers.device.settings import AgentSettings, as_device

_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True, kw_only=True)
class LentDevice:
    """A device of this machine.

    Attributes:
        settings: Its own: its name, its folder, its target.
        gpu: The GPU; None for the machine's CPU, and for a GPU that the driver says nothing about.
    """

    settings: AgentSettings
    gpu: Gpu | None = None


def devices_of(settings: AgentSettings, environment: Mapping[str, str] = os.environ) -> list[LentDevice]:
    """Return the devices that this machine offers, at least one.

    Without ``--gpu`` a CUDA target means all GPUs that ``CUDA_VISIBLE_DEVICES`` leaves. A GPU's name ends with
    ``-gpu`` and its number if the machine has several and no name was given.

    Raises:
        InvalidInputError: ``no-such-gpu``, ``no-nvml``, ``gpus-differ`` if those chosen cannot be one pool, ``invalid-device`` or
            ``no-api-key``.
        UnknownTargetError: If the target is unknown.
    """
    if settings.gpu is None and not _is_cuda(settings.target):
        return [LentDevice(settings=as_device(settings, settings.name, environment=environment))]
    visible = environment.get(_VISIBLE)
    if not settings.gpu and visible is not None and not visible.strip():
        raise InvalidInputError(f"{_VISIBLE} is empty, so no GPU is visible", code="no-such-gpu")
    gpus = driver.find()
    if not gpus and settings.gpu is None:
        if settings.target == "cuda":
            raise InvalidInputError(
                "no GPU was found on this machine: its driver lists no GPU, or there is no driver. Install NVIDIA's driver (in a "
                "container: --gpus all), or give --target cuda/sm_NN if the driver cannot be asked",
                code="no-such-gpu",
            )
        # There is no driver to ask, so the target must be complete.
        parse_target(settings.target)
        return [LentDevice(settings=as_device(settings, settings.name, environment=environment))]
    chosen = driver.choose(gpus, settings.gpu or visible or "all")
    if not chosen:
        raise InvalidInputError("the driver lists no GPU on this machine", code="no-such-gpu")
    _check_alike(chosen)
    target = _target(settings, chosen[0])
    if len(chosen) == 1:
        alone = settings.name_given or len(gpus) == 1
        name = settings.name if alone else f"{settings.name}-gpu{chosen[0].index}"
        own = as_device(settings, name, environment=environment)
        return [LentDevice(settings=replace(own, target=target, gpu=chosen[0].uuid), gpu=chosen[0])]
    return [
        LentDevice(
            settings=replace(
                as_device(
                    settings,
                    f"{settings.name}-gpu{gpu.index}",
                    part=f"gpu{gpu.index}",
                    environment=environment,
                ),
                target=target,
                gpu=gpu.uuid,
            ),
            gpu=gpu,
        )
        for gpu in chosen
    ]


def _is_cuda(target: str) -> bool:
    if target == "host":
        return False  # parsing it would start the compiler
    return target == "cuda" or parse_target(target).kind == "cuda"


def _target(settings: AgentSettings, gpu: Gpu) -> str:
    if settings.target in ("host", "cuda"):
        if not gpu.arch:
            raise InvalidInputError(
                f"the driver does not report the architecture of the {gpu.name}: give --target cuda/sm_NN",
                code="invalid-device",
                field="target",
            )
        return f"cuda/{gpu.arch}"
    target = parse_target(settings.target)
    if target.kind != "cuda":
        raise InvalidInputError(
            f"--gpu lends GPUs, but --target is {target.kind}: omit it, or give a cuda target",
            code="invalid-device",
            field="target",
        )
    arch = str(target.get("arch"))
    if gpu.arch and _number(arch) != _number(gpu.arch):
        # Libraries hold machine code only, which no driver can translate.
        raise InvalidInputError(
            f"code for {arch} does not run on the {gpu.name}, which is {gpu.arch}: "
            f"give --target cuda, or cuda/{gpu.arch}",
            code="invalid-device",
            field="target",
        )
    return settings.target


def _number(arch: str) -> int:
    return int("".join(letter for letter in arch if letter.isdigit()) or 0)


def _check_alike(chosen: Sequence[Gpu]) -> None:
    kinds = {(gpu.name, gpu.arch) for gpu in chosen}
    if len(kinds) > 1:
        there = ", ".join(f"{gpu.index} is a {gpu.name}" for gpu in chosen)
        raise InvalidInputError(
            f"the GPUs differ ({there}), but devices of a pool must be identical: join each kind "
            "separately, with --gpu and its own --device-key",
            code="gpus-differ",
        )
