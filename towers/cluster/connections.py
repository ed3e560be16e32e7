"""Time limits for the connections between tasks.

A host that loses its power or its network sends nothing more, not even the end of its
connections.  gRPC sets no limit on them, and TensorFlow has no setting for one.  The
kernel would send what was not acknowledged again for about 16 minutes; where only an
answer is awaited, it would wait for ever.  Until then a new session uses the old
connection, even if the task was started again at another address.

So a thread looks for the connections among this process's open files and sets limits
of the kernel on them (`man 7 tcp`: TCP_KEEPIDLE, TCP_USER_TIMEOUT).  Calls then fail
with UnavailableError, and gRPC looks up the address again.  This needs Linux.
"""

import os
import socket
import sys
import threading
import time
from collections.abc import Set

from towers.layout.cluster_spec import ClusterSpec

_FILES = "/proc/self/fd"
_LOOK_SECONDS = 1.0  # between two looks for new connections
_PROBES = 3  # of an idle connection, within the limit
# The kernel tries to connect again after 1, 3, 7, 15, 31 ... seconds.  Only the first
# of these is left; then gRPC begins anew, and so meets a host soon after it is back.
_TRIES, _CONNECTING = 1, 2  # the state, of <netinet/tcp.h>


def limit(spec: ClusterSpec, seconds: float) -> None:
    """From now on, connections to tasks end after so long without a sign of the host.

    In an elastic run, whose tasks have addresses that are not known yet, the limit is
    that of all connections of this process.

    Args:
      spec: the cluster.
      seconds: a whole number is meant, as the kernel counts so.
    """
    if sys.platform != "linux" or not os.path.isdir(_FILES):
        return
    ports = None
    if not spec.elastic:
        ports = {
            int(address.rpartition(":")[2])
            for addresses in spec.jobs.values()
            for address in addresses
        }

    def look() -> None:
        limited: Set[str] = set()
        while True:
            limited = limit_new(ports, seconds, limited)
            time.sleep(_LOOK_SECONDS)

    threading.Thread(target=look, daemon=True).start()


def limit_new(ports: Set[int] | None, seconds: float, limited: Set[str]) -> Set[str]:
    """Sets the limit on connections from or to some ports.

    Args:
      ports: of tasks; None for any.
      seconds: as in `limit`.
      limited: sockets to leave out, by the kernel's names for them.

    Returns:
      the open sockets that have the limit.
    """
    are_limited = set()
    for number in os.listdir(_FILES):
        try:
            name = os.readlink(f"{_FILES}/{number}")
            if name in limited or _limit(int(number), name, ports, seconds):
                are_limited.add(name)
        except OSError:  # closed meanwhile
            continue
    return are_limited


def _limit(number: int, name: str, ports: Set[int] | None, seconds: float) -> bool:
    """Sets the limit on an open file, if it is such a connection."""
    if not name.startswith("socket:"):
        return False
    # A copy of the descriptor: gRPC may close its own, and another file may get it.
    copy = os.dup(number)
    try:
        connection = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
    with connection:
        internet = connection.family in (socket.AF_INET, socket.AF_INET6)
        if not internet or connection.type != socket.SOCK_STREAM:
            return False
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        if state == _CONNECTING and ports is None:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, _TRIES)
            return False  # it has no other end yet
        ends = {connection.getsockname()[1], connection.getpeername()[1]}
        if ports is not None and not ends & ports:
            return False
        between = max(1, int(seconds / _PROBES))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, between),
            (socket.TCP_KEEPINTVL, between),
            (socket.TCP_USER_TIMEOUT, int(1000 * seconds)),
        ):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
    return True
