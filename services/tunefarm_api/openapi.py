"""The OpenAPI document: FastAPI's, put right where it says less or other than what we answer."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from tunefarm_api.problems import MEDIA_TYPE

Document = dict[str, Any]


def describe(app: FastAPI) -> Document:
    """Return the document; it is made once."""
    if not hasattr(app.state, "openapi_document"):
        document: Document = app.openapi()
        for item in document["paths"].values():
            for operation in item.values():
                _keep_problems_only(operation)
        schemas = document["components"]["schemas"]
        for schema in schemas.values():
            for example in schema.get("examples", []):
                _restore_nulls(schema, example, schemas)
        app.state.openapi_document = document
    return dict(app.state.openapi_document)


def _keep_problems_only(operation: Document) -> None:
    # A response with a model is also declared as application/json; errors are never that.
    for response in operation["responses"].values():
        content = response.get("content", {})
        if MEDIA_TYPE in content:
            content.pop("application/json", None)


def _restore_nulls(schema: Document, example: Any, schemas: Document) -> None:
    # FastAPI leaves members that are null out of examples; ours are always there.
    for name, member in schema.get("properties", {}).items():
        if name not in example:
            if name in schema.get("required", []):
                example[name] = None
            continue
        reference = member.get("$ref", "").rpartition("/")[2]
        if reference in schemas and isinstance(example[name], dict):
            _restore_nulls(schemas[reference], example[name], schemas)
