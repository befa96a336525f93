"""The real server for these tests."""

from __future__ import annotations

from replay_fixtures import client, farm

__all__ = ["client", "farm"]
