"""The values of one step, held until a thread has written them.

To hold a value takes no time: TensorFlow copies a variable that is updated while its
value is held.  So the next step copies each variable in memory, and on a GPU the values
are copied to the host.  They are held on the host of their variable, and released once
they are written.
"""

import copy

import tensorflow as tf

v1 = tf.compat.v1

_NAME = "towers/held_values"  # of the area that holds them, on each host


class HeldValues:
    """Makes the operations that hold values and write what is held.

    Args:
      saver: whose checkpoints are to be the same, but of held values.

    Attributes:
      saver: writes what is held.
    """

    def __init__(self, saver: v1.train.Saver):
        definition = copy.deepcopy(saver.as_saver_def())  # the saver keeps its own
        graph = v1.get_default_graph()
        done = graph.get_tensor_by_name(definition.save_tensor_name)
        (save,) = (op for op in done.op.control_inputs if op.type == "SaveV2")
        path, names, slices, *values = save.inputs
        by_host: dict[str, list[int]] = {}
        for number, value in enumerate(values):
            by_host.setdefault(value.device, []).append(number)
        holds: list[tf.Operation] = []
        releases, held = [], list(values)
        for host, numbers in by_host.items():
            of_host = [values[number] for number in numbers]
            name = f"{_NAME}/{len(holds)}"  # two names of a device may mean the same
            area = dict(dtypes=[x.dtype for x in of_host], shared_name=name)
            with tf.device(host):
                releases.append(tf.raw_ops.StageClear(**area))
                # What a lost session has left there is not written.
                with tf.control_dependencies([tf.raw_ops.StageClear(**area)]):
                    holds.append(tf.raw_ops.Stage(values=of_host, shared_name=name))
                peeked = tf.raw_ops.StagePeek(index=0, **area)
            for number, value in zip(numbers, peeked):
                held[number] = value
        self._hold, self._release = tf.group(*holds), tf.group(*releases)
        self._finite: list[tuple[bytes, tf.Tensor]] = []
        for name, value, like in zip(tf.get_static_value(names), held, values):
            if like.dtype.is_floating:
                with tf.device(like.device):
                    finite = tf.reduce_all(tf.math.is_finite(value))
                    self._finite.append((name, finite))
        with tf.device(save.device):
            written = tf.raw_ops.SaveV2(
                prefix=path, tensor_names=names, shape_and_slices=slices, tensors=held
            )
            with tf.control_dependencies([written]):
                definition.save_tensor_name = tf.identity(path).name
        self.saver = v1.train.Saver(saver_def=definition, save_relative_paths=True)

    def hold(self, session: v1.Session) -> None:
        """Holds the current values in place of those before."""
        session.run(self._hold)

    def release(self, session: v1.Session) -> None:
        """Frees their memory."""
        session.run(self._release)

    def broken(self, session: v1.Session) -> str | None:
        """As `FiniteCheck` has it, of what is held."""
        fine = session.run([finite for _, finite in self._finite])
        broken = (name for (name, _), is_fine in zip(self._finite, fine) if not is_fine)
        return next((name.decode() for name in broken), None)
