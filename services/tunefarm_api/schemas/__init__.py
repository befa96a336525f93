"""Schemas of requests and responses, and their OpenAPI descriptions. Output schemas have no defaults."""
