"""Loads and runs a tunefarm artifact. Needs Python 3.11, apache-tvm and numpy; nothing of tunefarm.

This file is also inside every artifact::

    import sys
    sys.path.insert(0, "resnet18.tunefarm")
    from loader import load

    model = load("resnet18.tunefarm")
    outputs = model(x)            # or model(**{"input.1": x}); a dict of outputs by name

An artifact is native code: load only one whose source you trust.
"""

from __future__ import annotations

if __package__:
    from tunefarm_tuning.artifact.arrays import ArtifactInputError, aligned_empty
    from tunefarm_tuning.artifact.container import ArtifactError, extract_library, read_manifest
    from tunefarm_tuning.artifact.machine_check import KNOWN_CPU_FEATURES, cpu_flags
    from tunefarm_tuning.artifact.model import TunedModel, load
    from tunefarm_tuning.artifact.session import InferenceSession
    from tunefarm_tuning.artifact.threads import ThreadsWarning
else:  # beside this file, in the zip
    from container import (  # type: ignore[import-not-found,no-redef]
        ArtifactError,
        extract_library,
        read_manifest,
    )
    from tunefarm_arrays import ArtifactInputError, aligned_empty  # type: ignore[import-not-found,no-redef]
    from tunefarm_machine_check import KNOWN_CPU_FEATURES, cpu_flags  # type: ignore[import-not-found,no-redef]
    from tunefarm_model import TunedModel, load  # type: ignore[import-not-found,no-redef]
    from tunefarm_session import InferenceSession  # type: ignore[import-not-found,no-redef]
    from tunefarm_threads import ThreadsWarning  # type: ignore[import-not-found,no-redef]

__all__ = [
    "KNOWN_CPU_FEATURES", "ArtifactError", "ArtifactInputError", "InferenceSession", "ThreadsWarning",
    "TunedModel", "aligned_empty", "cpu_flags", "extract_library", "load", "read_manifest",
]  # fmt: skip
