"""Parts that all commands use: options, output, errors, exit codes.

`commands` registers a command, with its `options` (`option_group`, `completion`); `connect` finds its server, and `local_farm` starts one;
`references` finds what an argument means; `output` writes the result. An error goes through `edge`, which knows the `exit_codes` and
`extras`. `upload_file` is what is uploaded for a model.
"""
