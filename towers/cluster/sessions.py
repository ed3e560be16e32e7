"""Opens sessions: in this process, or on a cluster.

A run passes a function that trains in a session,

    sessions.keep(attempt, stop)

so that on a cluster (`controller.Controller`) it can be called again after a loss.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Protocol

import tensorflow as tf

from flags.devices import DeviceFlags
from towers.layout import placement
from towers.layout.cluster_spec import ClusterSpec

v1 = tf.compat.v1

_PERSISTENT = "TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT"  # read on first use


class Stop(Protocol):
    """Whether a signal came."""

    received: int | None
    insisted: bool


class MembersChangedError(Exception):
    """The last step has ended with these workers; the message says why."""


class Sessions(Protocol):
    """The interface: opens sessions and repeats attempts.

    Attributes:
      members: the tasks of the next session, of an elastic run; None for others, whose
        tasks are always the same.
    """

    members: ClusterSpec | None

    def change(self) -> str:
        """Why another session is to be opened, with other members; "" for no reason."""

    def open(
        self, graph: tf.Graph, config: v1.ConfigProto
    ) -> contextlib.AbstractContextManager[v1.Session]:
        """A session on the graph, closed at the end."""

    def keep(self, attempt: Callable[[], int], stop: Stop, *, resumes: bool) -> int:
        """Repeats the attempt until it succeeds; returns its result.

        Args:
          attempt: to be called; it continues from the last checkpoint, if any.
          stop: set by signals.
          resumes: whether the attempt saves checkpoints.

        Raises:
          Interrupted: a signal came, and no attempt is under way; if one was lost, it
            says why its steps are not saved.
        """


class Local:
    """Sessions in this process; a failure is final."""

    members: ClusterSpec | None = None

    def change(self) -> str:
        """As in `Sessions`."""
        return ""

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
    """Sets what TensorFlow sets once per process.

    The first session of a process determines the threads inside operations.  TFDS opens
    a session to prepare a data set, and tf.data to trace a function.  Without this
    call, `--num_intra_threads` would have no effect, and results would differ by
    rounding.  The first use of a GPU determines how its memory is allocated; so GPUs
    are hidden from TFDS's eager code, and `--allow_growth` is set for all sessions.
    None of this can be changed later in the same process.

    Args:
      where: placement of the graph.
      devices: the settings.
    """
    with contextlib.suppress(RuntimeError):  # the caller uses GPUs already
        tf.config.set_visible_devices([], "GPU")
    tf.config.experimental.enable_tensor_float_32_execution(devices.tensor_float_32)
    if not devices.tensor_float_32:  # cuDNN may use it otherwise
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    if devices.deterministic_ops:
        tf.config.experimental.enable_op_determinism()
        # cuBLAS on several streams (logical GPUs) is deterministic only with this.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if not devices.batchnorm_persistent:
        os.environ[_PERSISTENT] = "0"
    os.environ.setdefault(_PERSISTENT, "1")  # unless the environment sets it
    if devices.allow_growth:
        os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    config = session_config(where, devices)
    config.device_count["GPU"] = 0
    del config.device_filters[:]
    v1.Session(graph=tf.Graph(), config=config).close()


def session_config(where: placement.Placement, devices: DeviceFlags) -> v1.ConfigProto:
    """The options of a session, from settings.

    Args:
      where: placement of the graph.
      devices: the settings.
    """
    return placement.session_config(
        where,
        intra_threads=devices.num_intra_threads,
        inter_threads=devices.num_inter_threads,
        allow_growth=devices.allow_growth,
        auto_jit=devices.xla,
    )
