"""Planning a bus: from a description of a system to a calendar, and a verdict for every channel."""
