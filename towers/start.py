"""How a main begins: `import tensorflow` as a command wants it.

What TensorFlow reads from the environment as it is imported is set by mains alone:
a library leaves its process as it is.
"""

import importlib
import os
import signal
import sys

_LEGACY = "TF_USE_LEGACY_KERAS"


def import_tensorflow() -> None:
    """Imports TensorFlow without its notes on each trace, and without Keras.

    TensorFlow loads Keras with itself, which takes a quarter of the time and 40 MB, and
    nothing here needs it.  Where the Keras of before is asked for, it loads that, if it
    is installed.  A model that uses `tf.keras` still gets the one of today: which it is
    to be, TensorFlow looks up when it is first used.

    Until `take_interrupts` is called, Ctrl-C ends the process without a traceback.
    """
    _open_streams()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    asked = _LEGACY in os.environ
    os.environ.setdefault(_LEGACY, "1")
    importlib.import_module("tensorflow")
    if not asked:
        del os.environ[_LEGACY]


def _open_streams() -> None:
    """Opens what the process was started without, as `>&-` does, to nowhere.

    The next file to be opened would take its place, a checkpoint perhaps, and what is
    printed would be written into that.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))


def take_interrupts() -> None:
    """Ctrl-C is a KeyboardInterrupt again, now that somebody catches it."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number, frame) -> None:
    del frame
    os.write(2, b"error: interrupted before anything was done\n")
    os._exit(128 + number)
