"""Networks that people have, against every runtime that they could pick."""
