"""A relay between TVM's RPC client in a child and a device: what the device sends reaches the client if it is an answer.

The relay is a process of its own, started by the child before its sandbox. It parses frames in Python, finds the device at its
tracker, and connects to nothing else; the child may connect to the relay alone.

`client` starts it; it finds the device by `tracker`, or proves to the gateway with its `key` that a ticket is its own, and passes on the
`frames` that are answers.
"""
