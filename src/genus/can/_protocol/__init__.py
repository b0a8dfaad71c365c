"""The middleware's own messages: numbers for nodes, event tags for subjects, catalog questions, time. No I/O."""
