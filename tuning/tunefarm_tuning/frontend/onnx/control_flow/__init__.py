"""Resolve `If`, `Loop` and `Scan` where shapes, constants and bound values decide them: the compiler takes graphs without inner graphs."""
