"""Schemas: what goes over the wire, and how it is described in OpenAPI. Output schemas have no defaults."""
