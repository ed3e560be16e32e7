"""`towers.fit`, `evaluate` and `predict` do what the command does."""

import contextlib
import ctypes
import dataclasses
import gc
import io
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import towers
from models import Inputs, Model, Recipe, Schedule
from towers import run
from towers.callbacks.base import TrainingError
from towers.data import from_arrays

_EXAMPLES = 70


def _rows(seed, count=_EXAMPLES):
    random = np.random.default_rng(seed)
    table = random.standard_normal((count, 5)).astype(np.float32)
    size = random.integers(0, 9, (count, 1))
    return {"table": table, "size": size}, (table.sum(1) + size[:, 0]).astype("f4")


def _join(x, nn):
    size = tf.cast(x["size"], nn.dtype)
    return {"all": tf.concat([x["table"], size], 1)}


def _value(x, nn):
    return {"value": nn.dense(x["all"], 1)[:, 0], "copy": x["all"]}


def _net(**inputs):
    specs = {"table": tf.TensorSpec([5]), "size": tf.TensorSpec([1], tf.int64)}
    return Model(
        name="own",
        blocks=(("join", _join), ("value", _value)),
        inputs=Inputs(features=specs, labels=tf.TensorSpec([]), **inputs),
        loss=lambda outputs, target: tf.square(outputs["value"] - target),
        metrics=lambda outputs, target: {"error": tf.abs(outputs["value"] - target)},
        recipe=Recipe(batch_size=16, schedule=Schedule(rates=(0.01,)), num_epochs=2),
    )


def _fit(data, **settings):
    settings = {"num_warmup_batches": 0, "device": "cpu", **settings}
    return towers.fit(_net(), data, **settings)


# A user's file.  On several cores one tower has more threads inside operations, and
# with AVX-512 these determine how some are rounded.
_USER_FILE = """
import sys
import numpy as np
import tensorflow as tf
import towers
from models import Inputs, Model, Recipe, Schedule
from towers.data import from_arrays

def join(x, nn):
    hidden = nn.conv(x["image"], 4, 3, activation=tf.nn.tanh)
    return tf.concat([nn.flatten(hidden), x["table"]], 1)

def net():
    return Model(
        name="own",
        blocks=(("join", join), ("value", lambda x, nn: nn.dense(x, 1)[:, 0])),
        inputs=Inputs(
            features={"image": tf.TensorSpec([8, 8, 1]), "table": tf.TensorSpec([5])},
            labels=tf.TensorSpec([]),
        ),
        loss=lambda outputs, target: tf.square(outputs - target),
        metrics=lambda outputs, target: {"error": tf.abs(outputs - target)},
        recipe=Recipe(batch_size=32, schedule=Schedule(rates=(0.003,)), num_epochs=3),
    )

def data(split):
    random = np.random.default_rng(1)
    image = random.random((300, 8, 8, 1), np.float32)
    table = random.standard_normal((300, 5)).astype(np.float32)
    target = image.mean((1, 2, 3)) + table @ np.arange(5, dtype=np.float32)
    weights = random.random(300).astype(np.float32) * 0.02
    features = {"image": image, "table": table}
    return from_arrays(features, target.astype(np.float32), weights=weights)

if __name__ == "__main__":
    for folder, count in zip(sys.argv[1:], (1, 4)):
        settings = {"num_warmup_batches": 0, "device": "cpu", "train_dir": folder}
        settings |= {"num_gpus": count, "batch_size": 32 // count}
        towers.fit(net(), data("train"), **settings)
"""


def _saved(folder):
    """The values of the newest checkpoint, by name."""
    reader = tf.train.load_checkpoint(folder)
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if reader.get_variable_to_dtype_map()[name] != tf.string
    }


class CallsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.create_tempdir().full_path

    def test_four_towers_fit_evaluate_and_predict_as_one(self):
        features, target = _rows(1)
        data, other = from_arrays(features, target), from_arrays(*_rows(2, 33))
        variables = []
        for towers_, size in ((1, 16), (4, 4)):
            folder = os.path.join(self.folder, str(towers_))
            outcome = _fit(
                data,
                validation_data=other,
                num_gpus=towers_,
                batch_size=size,
                train_dir=folder,
            )
            self.assertEqual(outcome.step, -(-2 * _EXAMPLES // 16))
            means = towers.evaluate(
                _net(), other, train_dir=folder, num_gpus=2, device="cpu"
            )
            for name in ("loss", "error"):
                self.assertAlmostEqual(means[name], outcome.metrics[name], places=4)
            variables.append(_saved(folder))
        for name, value in variables[0].items():
            np.testing.assert_allclose(variables[1][name], value, 1e-5, 1e-6, name)
        predicted = towers.predict(
            _net(), data, train_dir=folder, num_gpus=3, batch_size=4, device="cpu"
        )
        joined = np.concatenate([features["table"], features["size"]], 1)
        # each example once, in order
        np.testing.assert_array_equal(predicted["copy"], joined)
        kernel, bias = (
            variables[1][f"value/dense/{name}"] for name in ("kernel", "bias")
        )
        wanted = joined @ kernel[:, 0] + bias
        np.testing.assert_allclose(predicted["value"], wanted, 1e-4, 1e-4)

    @parameterized.parameters(
        ({"num_gpus": 0}, "num_gpus=0: "),
        ({"num_gpu": 2}, "num_gpu: no such"),
        ({"save_model_steps": 2}, "save_model_steps=2: needs train_dir"),
        ({"shard_classifier": 3, "num_gpus": 4}, "num_gpus=4: is not a multiple"),
    )
    def test_a_wrong_setting_is_named_as_python_has_it(self, settings, sentence):
        with self.assertRaisesRegex(ValueError, f"^{sentence}"):
            _fit(from_arrays(*_rows(1)), **settings)

    @parameterized.parameters(
        ((_net, None), "model is a function; give a models.Model"),
        ((_net(), _rows(1)), "data is a tuple; give the result of"),
        ((_net(), "digits", _rows(1)), "validation_data is a tuple; give"),
    )
    def test_an_argument_of_another_kind(self, arguments, sentence):
        names = ("model", "data", "validation_data")
        with self.assertRaisesRegex(ValueError, sentence):
            towers.fit(**dict(zip(names, arguments)))

    @parameterized.parameters(
        ({"trace_file": "t"}, "trace_file=t: does not go with {}, which takes no"),
        (
            {"eval_during_training_every_n_steps": 3},
            "{}: does not go with eval_during_training_every_n_steps=3; give one",
        ),
    )
    def test_a_setting_that_only_trains(self, settings, sentence):
        for call in (towers.evaluate, towers.predict):
            wanted = sentence.format(f"towers.{call.__name__}")
            with self.assertRaisesRegex(ValueError, f"^{wanted}"):
                call(_net(), from_arrays(*_rows(1)), train_dir=self.folder, **settings)

    def test_a_run_that_cannot_go_on_names_settings_as_python_has_them(self):
        data = from_arrays(*_rows(1))
        with self.assertRaisesRegex(
            TrainingError, r"loss .*; lower init_learning_rate; nothing was saved$"
        ) as caught:
            _fit(data, init_learning_rate=1e30)
        self.assertRegex(caught.exception.sentence, "; lower --init_learning_rate; not")

    def test_an_operation_that_fails_names_settings_as_python_has_them(self):
        data, full = from_arrays(*_rows(1)), tf.errors.ResourceExhaustedError
        error = full(None, None, "OOM when allocating tensor with shape[9,9]")
        with mock.patch.object(run, "train", side_effect=error):
            with self.assertRaisesRegex(ValueError, r"\); lower batch_size$"):
                _fit(data)

    def test_lines_name_settings_as_python_has_them(self):
        def summing(x, nn):
            tf.compat.v1.summary.scalar("sum", tf.reduce_sum(x["table"]))
            return _join(x, nn)

        net = dataclasses.replace(_net(), blocks=(("join", summing), ("value", _value)))
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            towers.fit(
                net,
                from_arrays(*_rows(1)),
                train_dir=self.folder,
                summary_verbosity=1,
                save_summaries_steps=5,
                accumulate_steps=2,
                device="cpu",
            )
        self.assertIn("micro-batches, accumulate_steps or xla_compile", out.getvalue())

    def test_data_that_do_not_fit(self):
        features, target = _rows(1)
        with self.assertRaisesRegex(
            ValueError, "features\\['size'\\] is missing, the model reads int64"
        ):
            _fit(from_arrays({"table": features["table"]}, target))

    def test_no_checkpoint(self):
        data = from_arrays(*_rows(1))
        for call in (towers.evaluate, towers.predict):
            with self.assertRaisesRegex(ValueError, "train_dir=.*: there is no check"):
                call(_net(), data, train_dir=self.folder, device="cpu")

    @parameterized.parameters(
        lambda seen: [seen],
        lambda seen: lambda: seen,
        lambda seen: lambda train: (seen,),
    )
    def test_callbacks(self, make):
        seen = []

        class Sees(tf.compat.v1.train.SessionRunHook):
            def after_evaluation(self, run_context, step, metrics):
                seen.append((step, metrics["error"]))

        data = from_arrays(*_rows(1))
        outcome = _fit(data, validation_data=data, callbacks=make(Sees()))
        self.assertEqual(seen, [(outcome.step, outcome.metrics["error"])])

    def test_a_callback_that_fails_is_a_value_error(self):
        class Fails(tf.compat.v1.train.SessionRunHook):
            def after_run(self, run_context, run_values):
                raise KeyError("this")

        data = from_arrays(*_rows(1))
        with self.assertRaisesRegex(
            ValueError, r"^Fails.after_run failed: KeyError: 'this' \(.*api_test.py:\d+"
        ) as caught:
            _fit(data, train_dir=self.folder, callbacks=[Fails()])
        self.assertIsInstance(caught.exception.__cause__, KeyError)
        self.assertEqual(_saved(self.folder)["global_step"], 1)
        _fit(data, train_dir=self.folder)  # resumes

    def test_an_interrupt_saves_and_the_same_call_goes_on(self):
        data = from_arrays(*_rows(1))
        settings = {"train_dir": pathlib.Path(self.folder), "batch_size": 16}

        def interrupt(number, before):
            while tf.train.latest_checkpoint(self.folder) == before:
                time.sleep(0.02)
            os.kill(os.getpid(), number)

        for number, kind in (
            (signal.SIGINT, KeyboardInterrupt),
            (signal.SIGTERM, SystemExit),
        ):
            given = (number, tf.train.latest_checkpoint(self.folder))
            thread = threading.Thread(target=interrupt, args=given, daemon=True)
            thread.start()
            with self.assertRaises(kind) as caught:
                _fit(data, num_batches=10**6, save_model_steps=3, **settings)
            thread.join()
            # Python ends with 130 only after KeyboardInterrupt itself.
            self.assertIs(type(caught.exception), kind)
        self.assertEqual(caught.exception.code, 143)
        step = _saved(self.folder)["global_step"]
        self.assertGreaterEqual(step, 3)
        self.assertEqual(_fit(data, num_batches=step + 2, **settings).step, step + 2)

    def test_many_calls_leave_nothing_behind(self):
        """Neither threads, nor files, nor memory that is not freed."""
        data = from_arrays(*_rows(1))
        counts, held = [], []
        settings = {"train_dir": self.folder, "device": "cpu"}
        for number in range(12):
            _fit(data, num_epochs=1.0 + number, **settings)
            for call in (towers.evaluate, towers.predict):
                call(_net(), data, **settings)
            gc.collect()
            files = os.listdir("/proc/self/fd") if os.path.isdir("/proc") else []
            counts.append((threading.active_count(), len(files)))
            held.append(_allocated_bytes())
        self.assertEqual(counts[1], counts[-1])
        # TensorFlow's own caches grow at the first calls.
        self.assertLess(held[-1] - held[5], 6 * 50_000)

    def test_calls_give_the_bits_of_commands_whatever_ran_before(self):
        alone, called, trained = (self.create_tempdir().full_path for _ in range(3))
        file = self.create_tempfile("user_file.py", _USER_FILE).full_path
        flags = [f"--model={file}:net", f"--data_name={file}:data", "--num_gpus=4"]
        flags += ["--batch_size=8", "--num_warmup_batches=0", "--device=cpu"]
        train = ["-m", "towers.train", *flags, f"--train_dir={trained}"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        environment.pop("TF_OVERRIDE_GLOBAL_THREADPOOL", None)  # of other tests
        for arguments in (train, [file, alone, called]):
            command = [sys.executable, *arguments]
            subprocess.run(command, check=True, capture_output=True, env=environment)
        expected, saved = _saved(trained), _saved(called)
        self.assertSameElements(expected, saved)
        for name, value in expected.items():
            np.testing.assert_array_equal(saved[name], value, name)


def _allocated_bytes():
    """What malloc has given out in this process; 0 where that is not known."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_info"):  # glibc has it
        return 0
    libc.fdopen.restype = ctypes.c_void_p
    with tempfile.TemporaryFile() as file:
        stream = ctypes.c_void_p(libc.fdopen(os.dup(file.fileno()), b"w"))
        libc.malloc_info(0, stream)
        libc.fclose(stream)
        file.seek(0)
        total = file.read().decode().rpartition("</heap>")[2]
    sizes = {
        kind: int(size)
        for kind, size in re.findall(r'type="(\w+)".* size="(\d+)"', total)
    }
    return sizes["current"] + sizes["mmap"] - sizes["fast"] - sizes["rest"]
