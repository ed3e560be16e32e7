"""A base class for tests that put a few operations into a graph and evaluate them."""

import tensorflow as tf
from absl.testing import parameterized

from towers.layout import placement

v1 = tf.compat.v1


class GraphTestCase(parameterized.TestCase):
    """Each test has a default graph of its own, with resource variables."""

    def setUp(self):
        super().setUp()
        graph = tf.Graph()
        self.enter_context(graph.as_default())
        self.enter_context(v1.variable_scope("", use_resource=True))
        v1.set_random_seed(1)

    def evaluate(self, fetches):
        """The values of fetches, with all variables at their initial values."""
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            return session.run(fetches)


def crossing(graph: tf.Graph) -> dict[str, int]:
    """Bytes that come to each task from others."""
    received: dict[str, int] = {}
    seen = set()
    for op in graph.get_operations():
        for tensor in op.inputs:
            here, there = (tf.DeviceSpec.from_string(x.device) for x in (op, tensor))
            task = f"{here.job}/{here.task}"
            if (here.job, here.task) == (there.job, there.task) or not tensor.device:
                continue
            if (tensor.name, op.device) not in seen:
                seen.add((tensor.name, op.device))
                size = tensor.shape.num_elements() * tensor.dtype.size
                received[task] = received.get(task, 0) + size
    return received


def run_on_cpus(fetches, num_devices=8):
    """The values of fetches in a session with so many logical CPU devices."""
    config = placement.session_config(placement.local(num_devices, kind="cpu"))
    with v1.Session(config=config) as session:
        return session.run(fetches)
