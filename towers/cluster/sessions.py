"""Where sessions come from: this process alone, or the controller of a cluster.

A run asks for sessions and hands over what it does with them,

    sessions.keep(attempt, stop)

so that on a cluster (`controller.Controller`) the attempt can be made again.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Protocol

import tensorflow as tf

from flags.sections import DeviceFlags
from towers.layout import placement

v1 = tf.compat.v1

_PERSISTENT = "TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT"  # read on first use


class Stop(Protocol):
    """What a signal leaves behind."""

    received: int | None
    insisted: bool


class Sessions(Protocol):
    """What a run needs of them."""

    def open(
        self, graph: tf.Graph, config: v1.ConfigProto
    ) -> contextlib.AbstractContextManager[v1.Session]:
        """A session on the graph, closed at the end."""

    def keep(
        self, attempt: Callable[[], int], stop: Stop, *, resumes: bool
    ) -> int | None:
        """Makes the attempt until it succeeds; None if a signal came first.

        Args:
          attempt: to be made; goes on from the last checkpoint if there is one.
          stop: what signals set.
          resumes: whether it leaves checkpoints behind.
        """


class Local:
    """Sessions in this process; what fails has failed."""

    @contextlib.contextmanager
    def open(self, graph: tf.Graph, config: v1.ConfigProto) -> Iterator[v1.Session]:
        """A session on the graph, closed at the end."""
        with v1.Session(graph=graph, config=config) as session:
            yield session

    def keep(self, attempt: Callable[[], int], stop: Stop, *, resumes: bool) -> int:
        """Makes the attempt once."""
        del stop, resumes
        return attempt()


def settle_process(where: placement.Placement, devices: DeviceFlags) -> None:
    """Settles what TensorFlow decides once per process, as settings ask for it.

    The first session makes the threads inside operations, whoever opens it.  TFDS opens
    one to prepare a data set, and so does tf.data to trace a function; results with
    other threads differ in rounding, and `--num_intra_threads` would be in vain.  What
    first uses a GPU decides how its memory is taken: what TFDS runs eagerly must not
    see any, and sessions that only measure would else take all that `--allow_growth`
    leaves.  Nothing of this can be taken back in the same process.

    Args:
      where: the graph lies.
      devices: the settings.
    """
    with contextlib.suppress(RuntimeError):  # GPUs are in use, by the caller say
        tf.config.set_visible_devices([], "GPU")
    tf.config.experimental.enable_tensor_float_32_execution(devices.tensor_float_32)
    if not devices.tensor_float_32:  # cuDNN may otherwise take it all the same
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    if devices.deterministic_ops:
        tf.config.experimental.enable_op_determinism()
        # cuBLAS repeats itself on several streams (logical GPUs) only with this.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if not devices.batchnorm_persistent:
        os.environ[_PERSISTENT] = "0"
    os.environ.setdefault(_PERSISTENT, "1")  # the environment may say otherwise
    if devices.allow_growth:
        os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    config = session_config(where, devices)
    config.device_count["GPU"] = 0
    del config.device_filters[:]
    v1.Session(graph=tf.Graph(), config=config).close()


def session_config(where: placement.Placement, devices: DeviceFlags) -> v1.ConfigProto:
    """The session's options that settings ask for.

    Args:
      where: the graph lies.
      devices: the settings.
    """
    return placement.session_config(
        where,
        intra_threads=devices.num_intra_threads,
        inter_threads=devices.num_inter_threads,
        allow_growth=devices.allow_growth,
        auto_jit=devices.xla,
    )
