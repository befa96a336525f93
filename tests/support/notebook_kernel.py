"""Run notebooks in a real kernel."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

_PATIENCE_SEC = 600


def run_notebook(notebook: Any, folder: Path, environment: Mapping[str, str] | None = None) -> Any:
    """Run all cells of a notebook, which gets the outputs, and return it.

    Args:
        notebook: As `nbformat` reads it.
        folder: Where it runs.
        environment: More of the kernel's environment.

    Raises:
        nbclient.exceptions.CellExecutionError: With the traceback, if a cell fails.
    """
    config = Config()
    config.KernelManager.transport = "ipc"  # no port is taken
    with tempfile.TemporaryDirectory(prefix="kernel-") as scratch:  # a socket's path has to be short
        config.KernelManager.connection_file = f"{scratch}/kernel.json"
        client = NotebookClient(
            notebook,
            timeout=_PATIENCE_SEC,
            startup_timeout=_PATIENCE_SEC,
            iopub_timeout=_PATIENCE_SEC,  # outputs that come later are lost
            kernel_name="python3",
            config=config,
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute(env={**os.environ, "IPYTHONDIR": scratch, **(environment or {})})
    return notebook


def notebook_of(*cells: str) -> Any:
    """Return a notebook of code."""
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def outputs(notebook: Any, kind: str = "") -> list[Any]:
    """Return the outputs of the cells in order, of one kind (``stream``, ``display_data``, ``execute_result``) or all."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [output for cell in code for output in cell.outputs if not kind or output.output_type == kind]
