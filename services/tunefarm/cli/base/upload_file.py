"""The file that is uploaded for a model."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tunefarm.cli.base.output import Output

if TYPE_CHECKING:
    from tunefarm.client import Model


_SHOWN = 5


@contextmanager
def upload_file(out: Output, path: Path) -> Iterator[Path]:
    """Yield a model's file; of a model with weights in other files, a copy of the same name that holds them, until the block ends.

    Raises:
        InvalidModelError: As `check_file` and `write_single_file`.
        InvalidInputError: As `write_single_file`.
    """
    from tunefarm_convert import check_file
    from tunefarm_tuning.frontend.single_file import keeps_weights_outside, write_single_file

    check_file(path)
    if not keeps_weights_outside(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tunefarm-upload-") as folder:
        whole = Path(folder, path.name)
        names = write_single_file(path, whole)
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        out.note(
            f"{path}: its weights, which are in other files ({', '.join(names[:_SHOWN])}{more}), are uploaded with it "
            f"({whole.stat().st_size / 1e6:.0f} MB)"
        )
        yield whole


def note_other_name(out: Output, model: Model, name: str | None) -> None:
    """Say that the farm has the file already, by another name than was asked for: it is the same model."""
    if name is not None and model.name != name:
        out.note(f"the farm already has this file as {model.named}: the name {name} is not used")
