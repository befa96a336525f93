"""The import contracts of pyproject.toml: they hold, and each is broken by an import that it is meant to forbid."""

from __future__ import annotations

import sys
from copy import deepcopy

import grimp
import pytest
from importlinter import Contract
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract
from importlinter.contracts.protected import ProtectedContract
from repository import ROOT

TYPES = {
    "layers": LayersContract,
    "forbidden": ForbiddenContract,
    "protected": ProtectedContract,
    "acyclic_siblings": AcyclicSiblingsContract,
}

FORBIDDEN = {
    "No circles": [
        ("tunefarm_api.paths", "tunefarm_api.web.front"),
        ("tunefarm_db.states.device", "tunefarm_db.values.jobs"),
    ],
    "Direct imports of TVM": [
        ("tunefarm_workers.drain", "tvm"),
        ("tunefarm_tuning.frontend.onnx.binding", "tvm"),
        ("tunefarm_tuning.artifact.pack", "tvm"),
        ("tunefarm_workers.device.agent", "tvm_ffi"),
        ("tunefarm_convert.onnx_writer", "tvm"),
    ],
    "Direct imports of ONNX:": [
        ("tunefarm_tuning.artifact.pack", "onnx"),
        ("tunefarm_tuning.tvm.base.tir", "onnx"),
        ("tunefarm_app.models.submit", "onnx"),
    ],
    "Direct imports of tvm/": [
        ("tunefarm_tuning.cost_model.xgb", "tunefarm_tuning.tvm.base.tir"),
        ("tunefarm_tuning.artifact.pack", "tunefarm_tuning.tvm.base.tir"),
        ("tunefarm_workers.drain", "tunefarm_tuning.tvm.children"),
        ("tunefarm_tuning.testing.records", "tunefarm_tuning.tvm.children"),
    ],
    "Direct imports of frontend/onnx": [
        ("tunefarm_tuning.frontend.importing", "tunefarm_tuning.frontend.onnx.rules"),
        ("tunefarm_workers.drain", "tunefarm_tuning.frontend.onnx.rules"),
    ],
    "Layers of tvm/": [("tunefarm_tuning.tvm.base.tir", "tunefarm_tuning.tvm.kernels")],
    "Layers of the engine": [
        ("tunefarm_tuning.tuner.xgb", "tunefarm_tuning.tvm"),
        ("tunefarm_tuning.search.tune", "tunefarm_tuning.testing"),
        ("tunefarm_tuning.core.errors", "tunefarm_tuning.process"),
    ],
    "Servers, workers' steps": [
        ("tunefarm_tuning.compiler.report", "tunefarm_tuning.artifact.loader"),
        ("tunefarm_app.settings", "tunefarm_workers.device.hardened_server.tvm_private"),
    ],
    "Direct imports of ONNX Runtime": [("tunefarm_tuning.frontend.onnx.rules", "onnxruntime")],
    "Direct imports of PyTorch": [("tunefarm_tuning.frontend.importing", "torch")],
    "Direct imports of XGBoost": [("tunefarm_tuning.tvm.base.tir", "xgboost")],
    "Direct imports of TFLite's schema": [("tunefarm_tuning.frontend.conversion", "tflite")],
    "Direct imports of LiteRT": [
        ("tunefarm_tuning.frontend.conversion", "ai_edge_litert"),
        ("tunefarm_tuning.measure.baselines.child", "ai_edge_litert"),
    ],
    "Direct imports of OpenVINO": [
        ("tunefarm_tuning.measure.baselines.child", "openvino"),
        ("tunefarm_tuning.compiler.baselines", "openvino"),
    ],
    "Direct imports of baselines' runtimes": [
        ("tunefarm_tuning.compiler.baselines", "tunefarm_tuning.measure.baselines.openvino"),
        ("tunefarm_tuning.measure.baselines.child", "tunefarm_tuning.measure.baselines.litert"),
    ],
    "Direct imports of XLA and MLIR": [("tunefarm_convert.tflite.convert", "jaxlib")],
    "Direct imports of SQLAlchemy": [("tunefarm_app.jobs.submit", "sqlalchemy")],
    "Direct imports of FastAPI": [("tunefarm_app.jobs.submit", "starlette")],
    "Direct imports of cryptography": [
        ("tunefarm_app.devices.register", "cryptography"),
        ("tunefarm_workers.device.agent", "cryptography"),
        ("tunefarm_workers.gateway.server", "cryptography"),
    ],
    "Direct imports of in-toto's and DSSE's libraries": [
        ("tunefarm_app.steps.attestation", "in_toto_attestation"),
        ("tunefarm_tuning.artifact.model", "securesystemslib"),
    ],
    "The gateway reaches nothing": [
        ("tunefarm_workers.gateway.server", "tunefarm_db.values"),
        ("tunefarm_workers.gateway.admissions", "tunefarm_app.runtime.composition"),
    ],
    "Direct imports of Celery": [("tunefarm_app.jobs.submit", "celery"), ("tunefarm_workers.drain", "kombu")],
    "The readers of other formats reach": [("tunefarm_convert.onnx_writer", "tunefarm_tuning.process")],
    "Direct imports of the readers": [
        ("tunefarm_tuning.core.errors", "tunefarm_convert"),
        ("tunefarm_workers.drain", "tunefarm_convert"),
    ],
    "Direct imports of the inner modules": [("tunefarm_tuning.frontend.conversion", "tunefarm_convert.signatures")],
    "Direct imports of what is for tests": [("tunefarm_workers.drain", "tunefarm_tuning.testing")],
    "The engine reaches no service": [("tunefarm_tuning.core.errors", "httpx")],
    "The database reaches no service": [("tunefarm_db.engine", "onnx")],
    "The device agent": [("tunefarm_workers.device.agent", "tunefarm_app.settings")],
    "The client reaches nothing": [("tunefarm.client.client", "tunefarm_tuning.core.errors")],
    "Layers: api": [("tunefarm_convert.onnx_writer", "tunefarm_db"), ("tunefarm_text.quantities", "tunefarm_convert")],
    "Layers of the app": [("tunefarm_app.settings", "tunefarm_app.runtime")],
    "The life of a trial": [("tunefarm_app.tuning.plan", "tunefarm_app.tuning.round")],
}  # fmt: skip
"""Imports that must break the contract whose name begins so."""


CONFIGURATION = read_configuration(str(ROOT / "pyproject.toml"))


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Return who imports what, libraries included."""
    roots = CONFIGURATION["session_options"]["root_packages"]
    return grimp.build_graph(*roots, include_external_packages=True, cache_dir=None)


def contract_named(beginning: str) -> Contract:
    (options,) = [
        options for options in CONFIGURATION["contracts_options"] if options["name"].startswith(beginning)
    ]
    return TYPES[options["type"]](
        name=options["name"],
        session_options=CONFIGURATION["session_options"],
        contract_options={key: value for key, value in options.items() if key not in ("name", "type")},
    )


def test_every_contract_has_imports_that_break_it() -> None:
    names = [options["name"] for options in CONFIGURATION["contracts_options"]]
    assert [name for name in names if not name.startswith(tuple(FORBIDDEN))] == []


@pytest.mark.parametrize("beginning", FORBIDDEN)
def test_forbidden_imports_break_their_contract(graph: grimp.ImportGraph, beginning: str) -> None:
    contract = contract_named(beginning)
    assert contract.check(deepcopy(graph), verbose=False).kept
    for importer, imported in FORBIDDEN[beginning]:
        changed = deepcopy(graph)
        assert importer in changed.modules
        assert imported in changed.modules
        changed.add_import(importer=importer, imported=imported)
        assert not contract.check(changed, verbose=False).kept, f"{importer} may import {imported}"


def test_the_text_package_imports_the_standard_library_alone(graph: grimp.ImportGraph) -> None:
    modules = {"tunefarm_text"} | graph.find_descendants("tunefarm_text")
    imported = {
        module for importer in modules for module in graph.find_modules_directly_imported_by(importer)
    }
    assert {module for module in imported - modules if module not in sys.stdlib_module_names} == set()
