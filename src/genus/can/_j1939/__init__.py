"""J1939 and NMEA 2000: identifiers, messages longer than a frame, and the names of controllers. Sans I/O.

`identifier` splits 29-bit identifiers, `reassembly` puts the parts of long messages together as any listener can,
`transfer` sends and receives long messages as a node does, `fast_packet` has the packets of NMEA 2000, and `name` the
64-bit NAME with which a controller claims its address. Nothing here reads a file or a bus: `_dbc` and drivers use it.
"""
