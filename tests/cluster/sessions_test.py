"""Sessions of this process alone."""

import os
import subprocess
import sys
import types
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from flags import config
from towers.cluster import sessions
from towers.layout import placement

v1 = tf.compat.v1


_THREADS = """
import os, sys
import tensorflow as tf
from flags import config
from towers.layout import cluster_spec, placement
from towers.cluster import sessions

def count():
    return len(os.listdir("/proc/self/task"))
where = placement.on_cluster(cluster_spec.local({"worker": 1}), 2, kind="cpu")
before = count()
sessions.settle_process(where, config.make(num_intra_threads=40).devices)
taken = count()
tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(intra_op_parallelism_threads=80))
print(before, taken, count())
"""


class SettleTest(tf.test.TestCase, parameterized.TestCase):
    def test_the_first_session_decides(self):
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        # Calls of `towers.fit` in other tests of this process may have set it.
        environment.pop("TF_OVERRIDE_GLOBAL_THREADPOOL", None)
        finished = subprocess.run(
            [sys.executable, "-c", _THREADS],
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        before, taken, after = map(int, finished.stdout.split())
        self.assertBetween(taken - before, 40, 79)
        self.assertLess(after - taken, 40)

    def test_memory_of_gpus_grows_if_that_is_asked_for(self):
        where, name = placement.local(2, kind="cpu"), "TF_FORCE_GPU_ALLOW_GROWTH"
        for asked, wanted in ((None, None), (False, None), (True, "true")):
            with mock.patch.dict(os.environ):
                os.environ.pop(name, None)
                sessions.settle_process(where, config.make(allow_growth=asked).devices)
                self.assertEqual(os.environ.get(name), wanted)

    @parameterized.parameters(None, RuntimeError("in use"))
    def test_what_runs_eagerly_takes_no_gpu(self, late):
        with mock.patch.object(
            tf.config, "set_visible_devices", side_effect=late
        ) as visible:
            sessions.settle_process(
                placement.local(2, kind="cpu"), config.make().devices
            )
        self.assertEqual(visible.mock_calls, [mock.call([], "GPU")])

    @parameterized.parameters(
        (True, None, "1"), (True, "0", "0"), (False, None, "0"), (False, "1", "0")
    )
    def test_how_cudnn_normalises(self, asked, mode_set, wanted):
        name = "TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT"
        settings = config.make(batchnorm_persistent=asked).devices
        with mock.patch.dict(os.environ, {} if mode_set is None else {name: mode_set}):
            if mode_set is None:
                os.environ.pop(name, None)
            sessions.settle_process(placement.local(2, kind="cpu"), settings)
            self.assertEqual(os.environ[name], wanted)

    @parameterized.parameters(True, False)
    def test_how_exact_and_how_repeatable_gpus_are(self, asked):
        exact = tf.config.experimental.tensor_float_32_execution_enabled()
        self.addCleanup(tf.config.experimental.enable_tensor_float_32_execution, exact)
        settings = config.make(tensor_float_32=asked, deterministic_ops=asked).devices
        with (
            mock.patch.dict(os.environ),
            mock.patch.object(tf.config.experimental, "enable_op_determinism") as same,
        ):
            os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
            sessions.settle_process(placement.local(2, kind="cpu"), settings)
            override = os.environ.get("NVIDIA_TF32_OVERRIDE")
        self.assertEqual(override, None if asked else "0")
        self.assertEqual(same.call_count, int(asked))
        now = tf.config.experimental.tensor_float_32_execution_enabled()
        self.assertEqual(now, asked)


class LocalTest(tf.test.TestCase):
    def test_opens_a_session_and_closes_it(self):
        with tf.Graph().as_default() as graph:
            constant = tf.constant(1)
        config = v1.ConfigProto(device_count={"CPU": 3})
        with sessions.Local().open(graph, config) as session:
            self.assertEqual(session.run(constant), 1)
            self.assertLen(session.list_devices(), 3)
        with self.assertRaisesRegex(RuntimeError, "closed"):
            session.run(constant)

    def test_makes_an_attempt_once(self):
        stop = types.SimpleNamespace(received=None, insisted=False)
        keep = sessions.Local().keep
        self.assertEqual(keep(lambda: 7, stop, resumes=True), 7)
        with self.assertRaises(ZeroDivisionError):
            keep(lambda: 1 // 0, stop, resumes=True)

    def test_the_config_is_that_of_the_settings(self):
        settings = {"num_intra_threads": 2, "num_inter_threads": 3, "xla": True}
        session_config = sessions.session_config(
            placement.local(4, kind="cpu"), config.make(**settings).devices
        )
        self.assertEqual(session_config.intra_op_parallelism_threads, 2)
        self.assertEqual(session_config.inter_op_parallelism_threads, 3)
        self.assertEqual(session_config.device_count["CPU"], 4)
        options = session_config.graph_options.optimizer_options
        self.assertEqual(options.global_jit_level, options.ON_1)
