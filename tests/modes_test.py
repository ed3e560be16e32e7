"""Tests of flags.modes: the flags' defaults are those of the settings they make."""

from absl.testing import absltest

from flags import config, modes, pairs
from towers import planning
from towers.gradients.exchange import Exchange
from towers.updates import variable_update

_TABLES = {"variable_update": variable_update.VARIABLE_UPDATES}


class ModesTest(absltest.TestCase):
    def test_the_defaults_are_those_of_the_python_api(self):
        flags = modes.Variables()
        self.assertEqual(flags.variable_update, variable_update.DEFAULT)
        self.assertEqual(flags.local_parameter_device, "cpu")
        self.assertEqual(flags.agg_small_grads_max_bytes, Exchange.small_bytes)
        self.assertEqual(flags.agg_small_grads_max_group, Exchange.small_group)
        self.assertEqual(flags.gradient_repacking, Exchange.gradient_repacking)
        self.assertEqual(flags.max_staleness, Exchange.max_staleness)
        self.assertEqual(flags.staleness_lr, Exchange.staleness_lr)
        self.assertEqual(flags.variable_placement, Exchange.variable_placement)

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
                made = config.make(**settings)
                self.assertEqual(config.check(made, _TABLES), [])
                self.assertEqual(planning.mode_of(made.variables), mode)

    def test_the_pairs_name_the_modes_that_they_are_about(self):
        table = variable_update.VARIABLE_UPDATES
        for terms, wanted in (
            (
                pairs.ALL_REDUCE,
                [n for n, mode in table.items() if "all_reduce_spec" in mode.reads],
            ),
            (
                pairs._ASYNCHRONOUS,
                [n for n, mode in table.items() if not mode.together],
            ),
            (
                pairs._LATE,
                [
                    n
                    for n, mode in table.items()
                    if not mode.exact and (mode.joined or not mode.together)
                ],
            ),
        ):
            named = map(pairs.Term.parse, terms)
            found = {term.value for term in named if term.name == "variable_update"}
            self.assertEqual(found, set(wanted))

    def test_switches_without_effect_are_refused(self):
        for settings, sentence in (
            (
                {"variable_update": "replicated", "staged_vars": True},
                "--staged_vars: needs --variable_update=parameter_server",
            ),
            (
                {"variable_consistency": "relaxed"},
                "--variable_consistency=relaxed: needs --variable_update=replicated",
            ),
            (
                {"variable_update": "independent", "cross_replica_sync": False},
                "--nocross_replica_sync: needs --variable_update=parameter_server",
            ),
            (
                {"max_staleness": 3},
                "--max_staleness=3: needs --nocross_replica_sync or "
                "--variable_update=asynchronous",
            ),
            (
                {"staleness_lr": True},
                "--staleness_lr: needs --nocross_replica_sync or "
                "--variable_update=asynchronous",
            ),
            (
                {"cross_replica_sync": False, "staged_vars": True},
                "--staged_vars: does not go with --nocross_replica_sync",
            ),
        ):
            with self.subTest(settings=settings):
                self.assertEqual(
                    config.check(config.make(**settings), _TABLES), [sentence]
                )


if __name__ == "__main__":
    absltest.main()
