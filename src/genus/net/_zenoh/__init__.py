"""`zenoh:`: the transport over zenoh; the only modules that import it."""
