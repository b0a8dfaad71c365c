"""Small devices: C for micro-controllers."""
