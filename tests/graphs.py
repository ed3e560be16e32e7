"""Tests that put a few operations into a graph and evaluate them."""

import tensorflow as tf
from absl.testing import parameterized

v1 = tf.compat.v1


class GraphTestCase(parameterized.TestCase):
    """A graph per test, and a session at its end."""

    def setUp(self):
        super().setUp()
        graph = tf.Graph()
        self.enter_context(graph.as_default())
        self.enter_context(v1.variable_scope("", use_resource=True))
        v1.set_random_seed(1)

    def evaluate(self, fetches):
        """Values, with the variables as they start."""
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            return session.run(fetches)
