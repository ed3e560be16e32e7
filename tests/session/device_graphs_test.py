"""The graph of each device, as TensorFlow cuts it."""

import os
import re

import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers.errors.side_outputs import SideOutputs
from towers.session import device_graphs

v1 = tf.compat.v1


class WriteDeviceGraphsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("graph.txt", "graph{}.txt", True),
        ("graph.pb", "graph{}.pb", False),
        ("a.b.pbtxt", "a.b{}.pbtxt", True),
        ("graph", "graph{}", False),
    )
    def test_a_file_per_device(self, prefix, name, is_text):
        training = trainer.Trainer(towers=2, batch_size=4).add_loop().start()
        folder = os.path.join(self.create_tempdir(), "new")
        said = []
        hook = device_graphs.WriteDeviceGraphs(
            training.train,
            os.path.join(folder, prefix),
            step=2,
            console=said.append,
            side=SideOutputs(),
        )
        training.run([hook], 6, 4)
        self.assertEmpty(said)
        device = "_job_localhost_replica_0_task_0_device_CPU_{}"
        files = [name.format(device.format(tower)) for tower in range(2)]
        self.assertCountEqual(os.listdir(folder), files)
        for tower, file_name in enumerate(files):
            with open(os.path.join(folder, file_name), "rb") as file:
                content = file.read()
            node = f"tower_{tower}/hidden/dense/MatMul"
            if is_text:
                devices = set(
                    re.findall(r'^  device: ".*(device:.*)"', content.decode(), re.M)
                )
                self.assertIn(f'name: "{node}"', content.decode())
            else:
                nodes = v1.GraphDef.FromString(content).node
                devices = {other.device.rpartition("/")[2] for other in nodes}
                self.assertIn(node, {other.name for other in nodes})
            self.assertEqual(devices, {f"device:CPU:{tower}"})

    def test_a_step_that_is_not_taken(self):
        training, said = trainer.Trainer(towers=1).start(), []
        path = os.path.join(self.create_tempdir(), "graph.txt")
        hook = device_graphs.WriteDeviceGraphs(
            training.train, path, step=9, console=said.append, side=SideOutputs()
        )
        training.run([hook], 2)
        self.assertRegex(said[0], "is not written: it is about step 9")
        self.assertFalse(os.path.exists(path))
