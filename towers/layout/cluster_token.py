"""The secret that all tasks of a cluster have, and what proves that a task has it."""

import hashlib
import hmac
import json
import os
import stat

from flags.problem import wrong_setting

_LEAST, _MOST = 16, 4096  # bytes
_FLAG = "cluster_token_file"


def read(path: str | None) -> bytes:
    """The token in a file, without spaces around it; empty if there is no path.

    Args:
      path: the value of `--cluster_token_file`.

    Raises:
      ValueError: there is no such file, it has no token, or others can read it.
    """
    if not path:
        return b""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise wrong_setting(_FLAG, path, "is no file")
        with open(path, "rb") as file:
            token = file.read(_MOST + 1).strip()
    except OSError as error:
        raise wrong_setting(_FLAG, path, f"cannot be read ({error.strerror})") from None
    if _is_open(status):
        mode = stat.S_IMODE(status.st_mode)
        message = f"may be read or changed by others (its mode is {mode:04o})"
        raise wrong_setting(_FLAG, path, message, f"chmod 600 {path}")
    if not _LEAST <= len(token) <= _MOST:
        raise wrong_setting(
            _FLAG,
            path,
            f"must hold {_LEAST} to {_MOST} bytes",
            f"openssl rand -hex 32 > {path}",
        )
    return token


def _is_open(status: os.stat_result) -> bool:
    """Whether others than the owner can read or change a file."""
    if not hasattr(os, "geteuid"):  # Windows has no such modes
        return False
    wide = stat.S_IRWXO | stat.S_IWGRP
    if status.st_uid == os.geteuid():  # else we may be the group, as with Kubernetes
        wide |= stat.S_IRGRP
    return bool(status.st_mode & wide)


def proof(token: bytes, *words: str) -> str:
    """What only a task that has the token can compute, of some words; in hex digits."""
    return hmac.new(token, json.dumps(words).encode(), hashlib.sha256).hexdigest()


def is_proof(given: bytes, token: bytes, *words: str) -> bool:
    """Whether `given` is the `proof` of these words, in a time that tells nothing."""
    expected = proof(token, *words).encode()
    return bool(token) and hmac.compare_digest(given, expected)
