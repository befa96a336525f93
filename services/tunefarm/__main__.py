"""``python -m tunefarm`` is the `tunefarm` command."""

from __future__ import annotations

from tunefarm.cli.main import main

if __name__ == "__main__":
    main()
