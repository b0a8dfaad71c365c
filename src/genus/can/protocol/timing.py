"""How long the protocols wait, in nanoseconds. `docs/can-protocols.md` says what follows from each."""

MILLISECOND = 1_000_000

STAGE_TIMEOUT = 50 * MILLISECOND
"""The broker gives up on a configuration when no node answers a stage for this long."""

RETRY = 100 * MILLISECOND
"""A node without a number asks again after this long without a word of configuration, then after twice that, ..."""

LONGEST_RETRY = 1_000 * MILLISECOND
"""... up to this; and for this long a node keeps still that was told that all numbers are taken."""

CLAIM_PERIOD = 1_000 * MILLISECOND
"""Claims and the broker's heartbeat come at least this often."""

CLAIM_JITTER = 200 * MILLISECOND
"""Each period is shorter by a random part of this, so that two senders do not stay in step."""

LEASE = 5 * CLAIM_PERIOD
"""The number of a node that was silent for this long may be given to another."""

DEFENCE_PAUSE = 100 * MILLISECOND
"""At most one claim in this time is an answer to a conflict, and announcements are repeated once in it."""

ROLL_CALL_SPREAD = 10 * MILLISECOND
"""A roll call is answered within this time, each node at a random moment."""

ROLL_CALL_WAIT = 12 * MILLISECOND
"""How long the broker listens after a roll call before it lets a frame follow that all answers go before."""

FAILURES_BEFORE_PAUSE = 3
"""So many failures in a row look like another node that sends the same identifier at the same moment, ..."""

COLLISION_PAUSE = 16 * MILLISECOND
"""... and are answered with a pause of a random part of this."""

BROKER_SILENCE = 3 * CLAIM_PERIOD
"""A standby takes over when the broker was not heard for this long."""

CONFIGURATION_PAUSE = 5 * MILLISECOND
"""A node that has just got its number asks for tags when nobody sent nibbles for this long, ..."""

LONGEST_POLITENESS = 1_000 * MILLISECOND
"""... but waits no longer than this."""

BIND_RETRY = 50 * MILLISECOND
"""First wait for the reply to a binding request; each further wait is twice the one before."""

BIND_ATTEMPTS = 4
"""A binding request is sent once and repeated three times."""

ANSWER_RETRY = 500 * MILLISECOND
"""A catalog question is repeated when no answer at all was heard for this long, to anybody."""

ANSWER_PATIENCE = 10_000 * MILLISECOND
"""... and when answers to others took this long."""

ANSWER_ATTEMPTS = 4
"""A catalog question is sent once and repeated three times."""

ANSWER_PACE = MILLISECOND // 2
"""Time between two frames of an answer, so that slow receivers keep up and others get the bus."""
