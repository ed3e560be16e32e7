"""A Chrome trace of a real step."""

import json
import os

import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers.errors.side_outputs import SideOutputs
from towers.session import trace

v1 = tf.compat.v1


class TraceTest(tf.test.TestCase):
    def _metadata(self):
        metadata = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        with tf.Graph().as_default():
            with tf.device("/device:CPU:1"):
                product = tf.matmul(tf.ones([64, 64]), tf.ones([64, 64]), name="mine")
            config = v1.ConfigProto(device_count={"CPU": 2})
            config.graph_options.rewrite_options.disable_meta_optimizer = True
            config.graph_options.optimizer_options.opt_level = -1
            with v1.Session(config=config) as session:
                session.run(product, options=options, run_metadata=metadata)
        return metadata

    def test_events_name_operations_and_devices_and_do_not_overlap_in_a_lane(self):
        events = json.loads(trace.text(self._metadata()))["traceEvents"]
        devices = [e["args"]["name"] for e in events if e["ph"] == "M"]
        self.assertTrue(any("CPU:1" in device for device in devices))
        spans = [e for e in events if e["ph"] == "X"]
        mine = [e for e in spans if e["args"]["name"] == "mine"]
        self.assertLen(mine, 1)
        self.assertEndsWith(mine[0]["name"], "MatMul")  # oneDNN renames it
        lanes = {}
        for event in spans:
            self.assertGreaterEqual(
                event["ts"], lanes.get((event["pid"], event["tid"]), 0)
            )
            lanes[event["pid"], event["tid"]] = event["ts"] + event["dur"]

    def test_no_events(self):
        self.assertEqual(trace.events(v1.RunMetadata()), [])


def _looping():
    return trainer.Trainer(towers=2, batch_size=4).add_loop().start()


class TraceStepTest(parameterized.TestCase):
    @parameterized.parameters((0, 1, 1), (0, 4, 1), (0, 4, 50), (3, 5, 50))
    def test_a_chrome_trace_of_the_step(self, begin, step, steps_per_loop):
        training = _looping()
        training.steps(begin)
        path = os.path.join(self.create_tempdir(), "new", "trace.json")
        written = []

        class Look(v1.train.SessionRunHook):
            def after_run(self, run_context, run_values):
                done = run_context.session.run(training.train.global_step)
                if os.path.exists(path) and not written:
                    written.append(done)

        said = []
        hook = trace.TraceStep(
            training.train, path, step=step, console=said.append, side=SideOutputs()
        )
        around = [hook, *([Look()] if steps_per_loop == 1 else [])]
        self.assertEqual(training.run(around, 6, steps_per_loop), 6)
        if steps_per_loop == 1:
            self.assertEqual(written, [step])
        self.assertEmpty(said)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
        processes = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
        products = {
            (processes[event["pid"]].split("device:")[-1], event["args"]["name"])
            for event in events
            if event["ph"] == "X" and "/MatMul" in event["args"]["name"]
        }
        towers = {(device, name.split("/")[0]) for device, name in products}
        self.assertEqual(towers, {("CPU:0", "tower_0"), ("CPU:1", "tower_1")})

    def test_a_step_that_is_past_is_not_traced(self):
        training = _looping()
        training.steps(3)
        path = os.path.join(self.create_tempdir(), "trace.json")
        said = []
        hook = trace.TraceStep(
            training.train, path, step=2, console=said.append, side=SideOutputs()
        )
        training.run([hook], 6)
        self.assertFalse(os.path.exists(path))
        self.assertEqual(
            said,
            [f"{path} is not written: it is about step 2, which this run did not take"],
        )
