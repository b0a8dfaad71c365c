"""A node: the middleware of one participant, as protocol code without I/O."""
