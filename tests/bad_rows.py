"""Sources of bad data, which worker processes read: this file imports no TensorFlow."""

import os
import signal

import numpy as np

X = np.arange(120, dtype=np.float32).reshape(40, 3) / 100
Y = (np.arange(40) % 3).astype(np.int32)


class Rows:
    """(X[i], Y[i]), but one that is as `change(i)` has it."""

    def __init__(self, change=None, lengths=(), changed=33):
        self._change, self._lengths, self._changed = change, list(lengths), changed

    def __len__(self):
        return self._lengths.pop(0) if self._lengths else 40

    def __getitem__(self, i):
        return self._change(i) if i == self._changed else (X[i], Y[i])


def raise_error(i):
    raise KeyError(f"no row {i}")


def leave(i):
    raise SystemExit(i)


def kill(i):
    os.kill(os.getpid(), signal.SIGKILL)
