"""The protocols of the middleware: numbers for nodes, event tags for subjects, catalog questions, time. No I/O."""
