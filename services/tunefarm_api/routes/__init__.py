"""Routes: parse, call one use case (or read from one unit of work), map to a schema."""
