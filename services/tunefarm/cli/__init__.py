"""The `tunefarm` command. Only `main` is imported at start; each command imports what it needs when it runs."""
