"""The `tunefarm` command. Only `main` is imported at start; each command imports what it needs when it runs.

`main` lists the commands; a module or folder has the name of its group (`models`, `records`, `sweeps`, `jobs`, `devices`, `farm`). Without
a group: `tune` (also ``compile``; several files at once: `sweep_run`), with its `progress_view` and the `report` at its end;
`artifact_run`, `verify`, and `top` with its `farm_snapshot`. What all of them use is in `base`.
"""
