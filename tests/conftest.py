"""Fixtures for all tests."""

from __future__ import annotations
