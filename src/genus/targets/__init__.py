"""One module per place a subscription compiles to, each of the same shape; see docs/targets.md."""
