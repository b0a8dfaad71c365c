"""Fault confinement (ISO 11898-1): the limits of the error counters of a controller.

Each controller has a counter of transmit errors (TEC) and one of receive errors (REC). A frame that fails adds 8 to the
TEC of its sender, one that is sent takes 1 off.
"""

TEC_PER_FAILURE = 8
WARNING_FROM = 96
"""From here on controllers raise a warning."""
PASSIVE_ABOVE = 127
"""Above, a controller is error passive: it signals errors with recessive bits, and waits after each of its frames."""
OFF_ABOVE = 255
"""Above, a controller is off the bus."""
SUSPENSION_BITS = 8
"""How long an error passive controller waits after a frame of its own before it sends another one."""
