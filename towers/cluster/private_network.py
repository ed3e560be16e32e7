"""A private network namespace of Linux, for this process and its children.

TensorFlow's server listens on every interface without authentication.  So a cluster on
one machine should run in a network that nothing outside can reach.  Only the standard
library is used, because a process must have a single thread to enter a namespace.
"""

import ctypes
import errno
import os
import socket
import struct
import sys

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000  # of <linux/sched.h>
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 0x1, 0x40  # of <linux/if.h>
_SIOCGIFADDR = 0x8915  # of <linux/sockios.h>


def enter() -> None:
    """Moves this process into a new network namespace, with the loopback device up.

    Users other than root also get a user namespace, with the same ids.

    Raises:
      OSError: the system does not allow it.
    """
    if not _is_linux():
        raise OSError("only Linux has them")
    user, group = os.getuid(), os.getgid()
    try:
        _unshare(_CLONE_NEWNET)
    except OSError:
        _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    request = struct.pack("16sH14x", b"lo", _IFF_UP | _IFF_RUNNING)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def interfaces() -> dict[str, list[str]]:
    """Interface -> addresses, IPv4 before IPv6, as this process sees them.

    On systems other than Linux: the host's name -> its addresses.
    """
    if not _is_linux():
        return {socket.gethostname(): _named_addresses()}
    addresses: dict[str, list[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
                addresses[name] = [socket.inet_ntoa(answer[20:24])]
            except OSError:  # it has none
                addresses[name] = []
    for line in _lines("/proc/net/if_inet6"):
        address, *_, name = line.split()
        packed = bytes.fromhex(address)
        addresses.setdefault(name, []).append(socket.inet_ntop(socket.AF_INET6, packed))
    return addresses


def _is_linux() -> bool:
    return sys.platform == "linux" and fcntl is not None


def _named_addresses() -> list[str]:
    """IPv4 addresses of this host's name; 0.0.0.0 if it has none."""
    try:
        return socket.gethostbyname_ex(socket.gethostname())[2]
    except OSError:
        return ["0.0.0.0"]


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().splitlines()
    except OSError:  # a system without it
        return []


def _unshare(what: int) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(what):
        number = ctypes.get_errno()
        reason = os.strerror(number)
        if number == errno.ENOSPC:  # whose usual text is about a full disk
            reason = "no more namespaces are allowed, see /proc/sys/user/max_*"
        raise OSError(number, reason)
