"""Builders: from a config to a kernel.

`local` distributes a batch (`build_pool`) over long-lived children (`worker`), and reuses kernels of equal code (`kernel_cache`); `replay`
builds nothing.

To add a builder, write a class that implements `Builder` in a module of its own, list it in `BUILDERS`, and let a subclass of
`tunefarm_tuning.testing.builder_contract.BuilderContract` test it in tests/contract/tuning/test_builders.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from tunefarm_tuning.measure.builder.local import LocalBuilder
from tunefarm_tuning.measure.builder.replay import ReplayBuilder
from tunefarm_tuning.measure.interfaces import Builder

__all__ = ["BUILDERS", "LocalBuilder", "ReplayBuilder"]

BUILDERS: Mapping[str, type[Builder]] = {
    "local": LocalBuilder,  # compiles in child processes of this machine
    "replay": ReplayBuilder,  # compiles nothing: for tests, demonstrations and the comparison of tuners
}
"""All builders by name."""
