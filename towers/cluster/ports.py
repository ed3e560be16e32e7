"""Bare TCP connections to tasks: whether a task listens, and when its process ends.

TensorFlow reports a lost task only to sessions whose calls reach it.  The chief's calls
do not reach followers: a follower sends its part of a step to the ps tasks, and the
chief waits for it there.  So the chief keeps an idle connection to each follower's
server; the kernel closes it when the process ends in any way.
"""

import errno
import socket
import struct
import threading
from collections.abc import Sequence

from flags.problem import wrong_setting
from towers.layout.cluster_spec import address_fault

_CONNECT_SECONDS = 2.0
_LOOK_SECONDS = 2.0  # between checks whether the connection is still needed
_AGAIN_SECONDS = 0.5  # before reconnecting


def refusal(address: str, seconds: float = 2 * _CONNECT_SECONDS) -> str | None:
    """Why no task listens at an address; None if one may.

    Args:
      address: host:port.
      seconds: half to wait for the connection, half for the first byte.
    """
    try:
        connection = _connect(address, min(_CONNECT_SECONDS, seconds / 2))
    except OSError as error:
        return error.strerror or str(error)
    with connection:
        try:
            # TensorFlow's server sends first.  A tunnel accepts every connection, and
            # closes it if no task listens behind it.
            spoken = connection.recv(1)
        except TimeoutError:  # a frozen task, or another kind of server
            return None
        except OSError:
            spoken = b""
    return None if spoken else "the connection was closed at once"


def obstacle(address: str) -> str | None:
    """Why this process cannot listen on the port of an address; None if it can."""
    with socket.socket() as probe:
        # As servers do, so that closed connections in TIME_WAIT do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", int(address.rpartition(":")[2])))
        except OSError as error:
            return error.strerror or str(error)
    return None


def own_address(other: str) -> str:
    """An address of this host, with a free port, at which another host may reach it.

    Args:
      other: host:port of that host.

    Raises:
      ValueError: it is no address, or no route leads there.
    """
    if fault := address_fault(other):
        raise wrong_setting("join", other, fault)
    host, _, port = other.rpartition(":")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # sends nothing
            this_host = probe.getsockname()[0]
    except OSError as error:
        words = f"cannot be reached ({error.strerror})"
        raise wrong_setting("join", other, words) from None
    with socket.socket() as probe:
        probe.bind(("", 0))
        free = probe.getsockname()[1]
    return f"[{this_host}]:{free}" if ":" in this_host else f"{this_host}:{free}"


class Lifelines:
    """Idle connections to tasks, kept for the duration of a `with` statement.

    Args:
      addresses: host:port of each task; all of them listen.
    """

    def __init__(self, addresses: Sequence[str]):
        self._addresses = addresses
        self._over = threading.Event()
        self._broken = threading.Event()

    def __enter__(self) -> "Lifelines":
        for address in self._addresses:
            threading.Thread(target=self._hold, args=(address,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()

    def broken(self) -> bool:
        """Whether a task was found to be gone since the last call."""
        gone = self._broken.is_set()
        if gone:
            self._broken.clear()
        return gone

    def _hold(self, address: str) -> None:
        while not self._over.is_set():
            self._wait_for_end(address)
            # TensorFlow's server also closes a connection that is idle for a minute.
            if not self._over.is_set() and refusal(address):
                self._broken.set()
            self._over.wait(_AGAIN_SECONDS)

    def _wait_for_end(self, address: str) -> None:
        """Returns when the connection ends or is no longer needed."""
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
        # A TCP self-connect: no process listens, and the kernel chose the same port for
        # our end.  It is released at once, so that the task can bind.
        linger = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    return connection
