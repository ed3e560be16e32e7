"""A lock on the folder in which a run trains: of the kernel, or else a note.

The kernel releases a lock when its process ends in any way.  Many network file systems
have no locks on folders, and some platforms have none at all.  There a note is used
instead: a file with host, process and time, which the run touches repeatedly.
"""

import contextlib
import datetime
import json
import os
import socket
import tempfile
import threading
import time

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NOTE = "training"  # the file's name

_BEAT_SECONDS = 10.0  # between two touches of a note
_STALE_SECONDS = 60.0  # a note that was not touched for so long is ignored

# `is_held` takes a lock for an instant, which must not refuse a run.
_TRIES, _TRY_SECONDS = 5, 0.05


class HeldError(RuntimeError):
    """Another run trains in the folder."""


class Lock:
    """The right to train in a folder, for this process alone, until `release`.

    Args:
      directory: an existing folder.

    Raises:
      HeldError: another run trains there.
      OSError: it cannot be opened, or no note can be written.
    """

    def __init__(self, directory: str):
        self._directory = directory
        self._identity = _identity(directory)
        self._handle = _open(directory)
        self._note = None
        try:
            if not _locked(self._handle):
                self._note = _Note(directory)
        except BaseException:
            _close(self._handle)
            raise

    def renew(self) -> bool:
        """Locks the folder at the path, if that is not the locked one any more.

        Returns:
          whether it is another folder, because the first was moved or removed.

        Raises:
          HeldError: another run uses it.
          OSError: as for a new lock.
        """
        os.makedirs(self._directory, exist_ok=True)
        moved = _identity(self._directory) != self._identity
        if moved or (self._note and not self._note.is_mine()):
            new = Lock(self._directory)
            self.release()
            vars(self).update(vars(new))
        return moved

    def release(self) -> None:
        """Releases the folder."""
        _close(self._handle)
        self._handle = None
        if self._note:
            self._note.remove()


def is_held(directory: str) -> bool:
    """Whether a run on any host trains in a folder; False if there is no folder."""
    try:
        handle = _open(directory)
    except OSError:
        return False
    try:
        return not _locked(handle) and _holder(directory) is not None
    except HeldError:
        return True
    finally:
        _close(handle)


def _identity(directory: str) -> tuple[int, int]:
    status = os.stat(directory)
    return status.st_dev, status.st_ino


def _open(directory: str) -> int | None:
    """Opens a folder, so that its inode number is not used again meanwhile."""
    return os.open(directory, os.O_RDONLY) if os.name == "posix" else None


def _close(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


def _locked(handle: int | None) -> bool:
    """Takes the kernel's lock; returns False if there are no locks.

    Raises:
      HeldError: another process has it.
    """
    if handle is None or fcntl is None:
        return False
    for _ in range(_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_TRY_SECONDS)
        except OSError:  # of the file system; NFS needs a file open for writing
            return False
        else:
            return True
    raise HeldError("another run is training there")


class _Note:
    """The note, which a thread touches.

    Raises:
      HeldError: there is a valid note of another run.
      OSError: it cannot be written.
    """

    def __init__(self, directory: str):
        self._path = os.path.join(directory, NOTE)
        who = {"host": socket.gethostname(), "process": os.getpid()}
        now = datetime.datetime.now(datetime.timezone.utc)
        self._text = json.dumps({**who, "time": now.isoformat(timespec="microseconds")})
        if (holder := _holder(directory)) is not None:
            raise HeldError(
                f"another run is training there ({holder or 'unknown'}, says "
                f"{self._path}, which counts until it was not touched for "
                f"{_STALE_SECONDS:.0f} s)"
            )
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._path)  # of a run that has ended
        try:
            with open(self._path, "x", encoding="utf-8") as file:
                file.write(self._text)
        except FileExistsError:
            raise HeldError("another run has just begun to train there") from None
        self._over = threading.Event()
        self._beat = threading.Thread(target=self._touch, daemon=True)
        self._beat.start()

    def _touch(self) -> None:
        while not self._over.wait(_BEAT_SECONDS):
            with contextlib.suppress(OSError):  # removed; `renew` handles that
                if self.is_mine():
                    os.utime(self._path)

    def is_mine(self) -> bool:
        """Whether the note is still this run's."""
        return _text(self._path) == self._text

    def remove(self) -> None:
        """Removes the note."""
        self._over.set()
        self._beat.join()
        with contextlib.suppress(OSError):
            if self.is_mine():
                os.remove(self._path)


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1000)
    except OSError:
        return None


def _holder(directory: str) -> str | None:
    """The run with a valid note in a folder, in words that may be empty; else None.

    On this host the note is valid while its process exists.  The processes of other
    hosts are not visible, so there the age of the note decides.
    """
    path = os.path.join(directory, NOTE)
    text = _text(path)
    if text is None or _age(path) > _STALE_SECONDS:
        return None
    try:
        note = json.loads(text)
        host, process, begun = note["host"], int(note["process"]), note["time"]
    except (ValueError, KeyError, TypeError):  # a full disk left it empty
        return ""
    if host == socket.gethostname() and _is_gone(process):
        return None
    return f"process {process} on {host} since {begun}"


def _age(path: str) -> float:
    """Seconds since a file was touched, by the clock of the disk's host."""
    try:
        touched = os.stat(path).st_mtime
    except OSError:
        return float("inf")
    try:
        with tempfile.TemporaryFile(dir=os.path.dirname(path)) as probe:
            return os.fstat(probe.fileno()).st_mtime - touched
    except OSError:  # this process may not write there
        return time.time() - touched


def _is_gone(process: int) -> bool:
    """Whether a process of this host has ended; False if that is not known."""
    if os.name != "posix":
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # of another user
        pass
    return False
