"""The command line of each system for a case."""

from absl.testing import parameterized

import models
from benchmarks.lib import cases
from benchmarks.lib.cases import BenchmarkCase, Length
from benchmarks.peers import keras_peer, peer, systems
from benchmarks.peers.systems import SYSTEMS, Places
from flags import config, parse, tf_cnn_models, tf_cnn_translation

PLACES = Places(
    python="python",
    torch_python="python-torch",
    tf_cnn_benchmarks="/checkout",
    tf_cnn_python="python-tf",
)
LENGTH = Length(steps=200, warmup=20)


def _command(name: str, case: str):
    return SYSTEMS[name].command(BenchmarkCase.parse(case), LENGTH, PLACES)


class SystemsTest(parameterized.TestCase):
    def test_ours_is_a_legal_command_line(self):
        program, _, *arguments = _command("towers", "lenet:4x8").argv
        settings = parse.parse([program, *arguments[1:]], {})
        self.assertEqual(arguments[0], "towers.train")
        self.assertEqual(settings.model.model, "lenet")
        self.assertEqual(settings.devices.num_gpus, 4)
        self.assertEqual(settings.data.batch_size, 8)
        self.assertEqual(settings.training.num_batches, 200)
        self.assertEqual(settings.training.num_warmup_batches, 20)
        self.assertEqual(settings.output.display_every, 20)
        self.assertEqual(settings.optimizer.weight_decay, 0.0)

    def test_lenet_on_its_own_data(self):
        command = _command("towers", "lenet_digits:4x8").argv
        self.assertContainsSubset(["--model=lenet", "--data_name=digits"], command)
        command = _command("keras_mirrored", "lenet_digits:4x8").argv
        self.assertIn("--model=lenet_digits", command)
        self.assertIsNone(_command("tf_cnn_benchmarks", "lenet_digits:4x8"))

    @parameterized.parameters("keras", "keras_no_xla", "keras_mirrored", "torch")
    def test_peers_programs_know_their_flags(self, name):
        towers = 4 if name == "keras_mirrored" else 1
        _, _, module, *arguments = _command(name, f"lenet:{towers}x8").argv
        self.assertStartsWith(module, "benchmarks.")
        options, rest = peer.parser(
            "lenet_peer", "", systems.PEER_MODELS
        ).parse_known_args(arguments)
        self.assertEqual((options.num_devices, options.batch_size), (towers, 8))
        self.assertEqual((options.num_batches, options.num_warmup_batches), (200, 20))
        self.assertEqual(rest, ["--no-xla"] if name == "keras_no_xla" else [])

    def test_sixteen_bits_where_a_system_has_them(self):
        case = "resnet50:1x8/bfloat16"
        for name, flag in (
            ("towers", "--compute_dtype=bfloat16"),
            ("bare", "--compute_dtype=bfloat16"),
            ("torch", "--autocast"),
        ):
            self.assertIn(flag, _command(name, case).argv)
        for name in ("keras", "keras_no_xla", "tf_cnn_benchmarks"):
            self.assertIsNone(_command(name, case))
        self.assertNotIn("--autocast", _command("torch", "resnet50:1x8").argv)

    def test_keras_is_mirrored_on_several_devices_and_only_there(self):
        self.assertIsNone(_command("keras_mirrored", "lenet:1x8"))
        self.assertIsNone(_command("keras", "lenet:4x8"))
        self.assertIsNone(_command("keras_no_xla", "lenet:4x8"))

    @parameterized.parameters(
        *("bare", "keras", "keras_no_xla", "torch"),
        *("tf_cnn_benchmarks", "tf_cnn_benchmarks_onednn"),
    )
    def test_no_command_for_a_model_that_a_peer_lacks(self, name):
        self.assertIsNone(_command(name, "mine:net:1x8"))

    def test_tf_cnn_benchmarks(self):
        command = _command("tf_cnn_benchmarks", "resnet20:4x32")
        self.assertContainsSubset(
            ["--model=resnet20", "--data_name=cifar10", "--device=cpu"], command.argv
        )
        self.assertEqual(command.env["TF_USE_LEGACY_KERAS"], "1")
        self.assertEqual(command.cwd, "/checkout")
        same = _command("tf_cnn_benchmarks_onednn", "resnet20:4x32")
        self.assertEqual(same.argv, command.argv)
        self.assertEqual(same.env, {**command.env, "TF_ENABLE_ONEDNN_OPTS": "1"})

    def test_one_command_line_for_both(self):
        for name in cases.IMAGE_MODELS:
            ours = _command("towers.tf_cnn_benchmarks", f"{name}:4x8")
            theirs = _command("tf_cnn_benchmarks", f"{name}:4x8")
            self.assertEqual(ours.argv[3:], theirs.argv[2:])
            flags = config.flat(
                parse.parse(ours.argv[2:], {}, config.TfCnnBenchmarksConfig)
            )
            settings = tf_cnn_translation.translate(
                flags, models=models.MODELS, gpus=False
            ).settings
            self.assertEqual(settings["model"], name)

    def test_the_image_models_are_those_that_it_trains(self):
        shared = {
            row.here
            for rows in tf_cnn_models.MODELS.values()
            for row in rows.values()
            if not row.here.startswith(tuple(systems.TF_CNN_LACKS))
        }
        self.assertCountEqual(cases.IMAGE_MODELS, shared)
        for lacking in systems.TF_CNN_LACKS:
            names = [name for name in models.MODELS if name.startswith(lacking)]
            self.assertNotEmpty(names)
            for name in names:
                self.assertIsNone(_command("tf_cnn_benchmarks", f"{name}:1x8"))

    def test_names_of_models(self):
        self.assertCountEqual(systems.PEER_MODELS, keras_peer.MODELS)
        ours = {systems.OUR_MODELS.get(m, (m,))[0] for m in systems.PEER_MODELS}
        self.assertContainsSubset(ours, models.MODELS)
        self.assertContainsSubset(systems.TF_CNN_MODELS, models.MODELS)

    def test_missing(self):
        self.assertEqual(systems.missing("towers", PLACES, {"tensorflow": "2"}), "")
        self.assertEqual(
            systems.missing("torch", PLACES, {}), "python-torch has no torch"
        )
        needs = ("tensorflow", "keras")
        for versions, words in (
            ({"keras": "3", "tensorflow": "2"}, ""),
            ({"tensorflow": "2"}, "/py has no keras"),
            ({}, "/py has no tensorflow or keras"),
        ):
            self.assertEqual(systems.lacking("/py", needs, versions), words)

    def test_missing_checkout(self):
        versions = {"tensorflow": "2", "tf-keras": "2"}
        nowhere = Places("python", "python", "", "python")
        for name in ("tf_cnn_benchmarks", "tf_cnn_benchmarks_onednn"):
            self.assertIn(
                "--tf_cnn_benchmarks", systems.missing(name, nowhere, versions)
            )
            self.assertEqual(systems.missing(name, PLACES, versions), "")
            self.assertIn("tf-keras", systems.missing(name, PLACES, {}))
