"""Traffic monitoring: a city's loops on CAN segments, their events in a lake, and speeds and counts from both.

It is the application of the attribute-filtering paper (its section 5), with truth to check it against.
"""
