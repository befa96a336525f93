"""The agent's side of the farm's gateway: it dials out, so that the device needs no open port."""
