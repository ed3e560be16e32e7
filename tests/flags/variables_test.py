"""Tests of flags.variables: the flags' defaults are those of the settings they make."""

from absl.testing import absltest

from flags import config, variables
from towers.gradients.exchange import GradientExchange
from towers.variable_update import modes

_TABLES = {"variable_update": modes.VARIABLE_UPDATES}


class ModesTest(absltest.TestCase):
    def test_the_defaults_are_those_of_the_python_api(self):
        flags = variables.VariablesFlags()
        self.assertEqual(flags.variable_update, modes.DEFAULT)
        self.assertEqual(flags.local_parameter_device, "cpu")
        self.assertEqual(
            flags.agg_small_grads_max_bytes, GradientExchange.agg_small_grads_max_bytes
        )
        self.assertEqual(
            flags.agg_small_grads_max_group, GradientExchange.agg_small_grads_max_group
        )
        self.assertEqual(flags.gradient_repacking, GradientExchange.gradient_repacking)
        self.assertEqual(flags.max_staleness, GradientExchange.max_staleness)
        self.assertEqual(flags.staleness_lr, GradientExchange.staleness_lr)
        self.assertEqual(flags.variable_placement, GradientExchange.variable_placement)

    def test_switches_of_tf_cnn_benchmarks_name_modes(self):
        for settings, mode in (
            ({}, "parameter_server"),
            ({"cross_replica_sync": False}, "asynchronous"),
            ({"staged_vars": True}, "staged"),
            (
                {"variable_update": "replicated", "variable_consistency": "relaxed"},
                "relaxed",
            ),
            ({"variable_update": "replicated"}, "replicated"),
            ({"variable_update": "staged"}, "staged"),
        ):
            with self.subTest(settings=settings):
                config_made = config.make(**settings)
                self.assertEqual(config.check(config_made, _TABLES), [])
                self.assertEqual(modes.mode_of(config_made.variables), mode)
