"""Parts that all commands use: options, output, errors, exit codes."""
