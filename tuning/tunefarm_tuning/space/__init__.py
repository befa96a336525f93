"""Config spaces: knobs, their decisions, and configs as points."""
