"""The phases of a compile, in the order of `request.PHASES`: each takes earlier results and returns a frozen one."""
