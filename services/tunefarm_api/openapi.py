"""The OpenAPI document: FastAPI's, corrected where it differs from what the API answers."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from tunefarm_api.errors.problems import MEDIA_TYPE, problem_of

Document = dict[str, Any]


def describe(app: FastAPI) -> Document:
    """Return the document; it is made once."""
    if not hasattr(app.state, "openapi_document"):
        document: Document = app.openapi()
        for item in document["paths"].values():
            for method, operation in item.items():
                _add_what_layers_answer(method, operation)
                _keep_problems_only(operation)
        schemas = document["components"]["schemas"]
        for schema in schemas.values():
            for example in schema.get("examples", []):
                _restore_nulls(schema, example, schemas)
        app.state.openapi_document = document
    return dict(app.state.openapi_document)


def _add_what_layers_answer(method: str, operation: Document) -> None:
    # Routes declare their own errors; these come from the layers around them and from the database.
    statuses = (
        {421} | ({413} if "requestBody" in operation else set()) | ({507} if method != "get" else set())
    )
    responses: Document = operation["responses"]
    for status in statuses:
        responses.setdefault(str(status), problem_of(status))
    operation["responses"] = dict(sorted(responses.items()))


def _keep_problems_only(operation: Document) -> None:
    # A response with a model is also declared as application/json; errors are never that.
    for response in operation["responses"].values():
        content = response.get("content", {})
        if MEDIA_TYPE in content:
            content.pop("application/json", None)


def _restore_nulls(schema: Document, example: Any, schemas: Document) -> None:
    # FastAPI leaves null members out of examples, but our answers always have them.
    for name, member in schema.get("properties", {}).items():
        if name not in example:
            if name in schema.get("required", []):
                example[name] = None
            continue
        reference = member.get("$ref", "").rpartition("/")[2]
        if reference in schemas and isinstance(example[name], dict):
            _restore_nulls(schemas[reference], example[name], schemas)
