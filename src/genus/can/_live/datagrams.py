"""The socket of an interface that sends frames in datagrams: room for bursts, and a count of what it lost.

A socket holds datagrams until the program reads them, and drops more than fit. With the system's usual size that is
after some 200 frames: 50 ms at 5,000 frames a second, for which a busy computer may well not run a program. Linux
counts the dropped datagrams of each socket (`drops` in `/proc/net/udp`).
"""

import os
import socket
from pathlib import Path

DATAGRAM_INTERFACES = frozenset({"udp_multicast"})
BUFFER_BYTES = 4 << 20
"""The size that is asked for: some 10,000 frames. The system may allow less (`net.core.rmem_max`)."""
_TABLES = (Path("/proc/net/udp"), Path("/proc/net/udp6"))
_INODE, _DROPS = 9, 12


def enlarge_buffer(descriptor: int) -> int:
    """Ask for more room in the socket of a descriptor; returns how many bytes it has then.

    >>> with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
    ...     enlarge_buffer(made.fileno()) == made.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    True
    """
    with socket.socket(fileno=os.dup(descriptor)) as same:
        if same.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) < BUFFER_BYTES:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        return same.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def lost_datagrams(descriptor: int) -> int:
    """How many datagrams a socket has dropped; 0 where the system does not count them.

    >>> with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
    ...     made.bind(("127.0.0.1", 0))
    ...     lost_datagrams(made.fileno())
    0
    """
    try:
        inode = str(os.fstat(descriptor).st_ino)
        rows = [line.split() for table in _TABLES if table.exists() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return 0
    return next((int(row[_DROPS]) for row in rows if len(row) > _DROPS and row[_INODE] == inode), 0)
