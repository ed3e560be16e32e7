"""TensorFlow's profile of a run's first steps."""

import os

from absl.testing import parameterized
from tensorflow.core.profiler import tfprof_log_pb2

from tests import trainer
from towers.errors.side_outputs import SideOutputs
from towers.session import op_profile


class ProfileOperationsTest(parameterized.TestCase):
    @parameterized.parameters(
        dict(after=2, last=20, count=10),
        dict(after=2, last=20, count=10, steps_per_loop=4),
        dict(after=2, last=5, count=3),
        dict(after=2, last=20, count=10, begin=5),
        dict(after=3, last=3, count=0),
    )
    def test_profiles_the_first_steps(
        self, after, last, count, begin=0, steps_per_loop=1
    ):
        training = trainer.Trainer(towers=2, batch_size=4).add_loop().start()
        training.steps(begin)
        path, said = os.path.join(self.create_tempdir(), "new", "profile"), []
        hook = op_profile.ProfileOperations(
            training.train, path, after=after, console=said.append, side=SideOutputs()
        )
        self.assertEqual(training.run([hook], last, steps_per_loop), last)
        if not count:
            words = "it is about the steps from 4 on, which this run did not take"
            self.assertEqual(said, [f"{path} is not written: {words}"])
            return
        self.assertEmpty(said)
        with open(path, "rb") as file:
            profile = tfprof_log_pb2.ProfileProto.FromString(file.read())
        self.assertEqual(list(profile.steps), list(range(count)))
        nodes = {node.name: node for node in profile.nodes.values()}
        for tower in range(2):
            product = nodes[f"tower_{tower}/hidden/dense/MatMul"]
            self.assertIn(f"cpu:{tower}", product.canonical_device.lower())
            self.assertLen(product.execs, count)
