"""What all commands stand on: options, output, errors, exit codes."""
