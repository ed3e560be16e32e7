"""Bare connections to the ports of tasks: whether one listens, and when it ends.

Of a task that none of a session's calls reaches, nobody hears that it is gone: a
follower sends its part of a step to ps tasks, and there the chief waits for it.  So the
chief keeps a connection to each follower's server, which says nothing, and which the
kernel closes when the process ends, however it ends.
"""

import errno
import socket
import struct
import threading
from collections.abc import Sequence

_CONNECT_SECONDS = 2.0
_LOOK_SECONDS = 2.0  # between two looks whether a connection is still wanted
_AGAIN_SECONDS = 0.5  # from one connection to the next


def refusal(address: str, seconds: float = 2 * _CONNECT_SECONDS) -> str | None:
    """None if a task may be there, else why not.

    Args:
      address: host:port.
      seconds: to wait for the connection and for the first word, each half of it.
    """
    try:
        connection = _connect(address, min(_CONNECT_SECONDS, seconds / 2))
    except OSError as error:
        return error.strerror or str(error)
    with connection:
        try:
            # TensorFlow's server speaks first.  A tunnel accepts whoever comes, and
            # closes the connection when there is no task behind it.
            spoken = connection.recv(1)
        except TimeoutError:  # a frozen task, or something else
            return None
        except OSError:
            spoken = b""
    return None if spoken else "the connection was closed at once"


def obstacle(address: str) -> str | None:
    """None if this process may listen on the port of an address, else why not."""
    with socket.socket() as probe:
        # As a server does, so that what has ended is in nobody's way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", int(address.rpartition(":")[2])))
        except OSError as error:
            return error.strerror or str(error)
    return None


class Lifelines:
    """A connection to each of some tasks, as long as the `with` statement lasts.

    Args:
      addresses: of the tasks, which listened just now.
    """

    def __init__(self, addresses: Sequence[str]):
        self._addresses = addresses
        self._over = threading.Event()
        self._broken = threading.Event()

    def __enter__(self) -> "Lifelines":
        for address in self._addresses:
            threading.Thread(target=self._hold, args=(address,), daemon=True).start()
        return self

    def __exit__(self, kind, error, trace) -> None:
        self._over.set()

    def broken(self) -> bool:
        """Whether a task was found gone since the last time this was asked."""
        found = self._broken.is_set()
        if found:
            self._broken.clear()
        return found

    def _hold(self, address: str) -> None:
        while not self._over.is_set():
            self._wait_for_end(address)
            # TensorFlow's server closes a connection that says nothing for a minute.
            if not self._over.is_set() and refusal(address):
                self._broken.set()
            self._over.wait(_AGAIN_SECONDS)

    def _wait_for_end(self, address: str) -> None:
        """Returns when the connection ends, or is not wanted any more."""
        try:
            with _connect(address) as connection:
                connection.settimeout(_LOOK_SECONDS)
                while not self._over.is_set():
                    try:
                        if not connection.recv(2**12):
                            return
                    except TimeoutError:
                        pass
        except OSError:
            return


def _connect(address: str, seconds: float = _CONNECT_SECONDS) -> socket.socket:
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host.strip("[]"), int(port)), seconds)
    if connection.getsockname() == connection.getpeername():
        # Nobody listens, and of the ports that it gives to clients the kernel chose
        # this one for our end.  Given back at once, the task can have it.
        linger = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    return connection
