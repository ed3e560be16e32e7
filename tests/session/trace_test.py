"""A Chrome trace of a real step."""

import json

import tensorflow as tf

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
