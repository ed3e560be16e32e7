"""A state is read between two steps, and goes on in a graph with other towers."""

from absl.testing import parameterized

from tests import stateful_models, trainer
from towers import run_state
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update

_RATE = Piecewise((0.01,))


def _begun(towers: int, mode: str) -> trainer.Trainer:
    return trainer.Trainer(
        towers=towers, batch_size=12 // towers, variable_update=mode, elastic=True
    ).start()


class RunStateTest(parameterized.TestCase):
    @parameterized.parameters(
        "parameter_server", "replicated", "distributed_replicated", "relaxed"
    )
    def test_it_goes_on_with_other_towers(self, mode):
        calm = _begun(4, mode).steps(6)
        before = _begun(4, mode)
        values = before.steps(3)
        state = run_state.read(before.train, before.session)
        self.assertEqual(state.step, 3)
        trainer.assert_same_bits(values, state.values)
        after = _begun(3, mode)
        run_state.load(after.train, after.session, state)
        after.session.run(after.train.sync)
        after.session.run(after.train.feed.initializer)
        self.assertLess(trainer.difference(calm, after.steps(6)), 1e-5)

    def test_the_states_of_rows_go_on_with_other_towers(self):
        def begun(*sizes: int) -> trainer.Trainer:
            model, source = stateful_models.two(), stateful_models.source()
            sizes = {"batch_size": max(sizes), "tower_batch_sizes": sizes}
            towers, update = len(sizes["tower_batch_sizes"]), Update("sgd", _RATE)
            return trainer.Trainer(
                model, source, update=update, towers=towers, elastic=True, **sizes
            ).start()

        calm, before, after = begun(2, 2, 2, 2).steps(9), begun(8), begun(3, 3, 2)
        before.steps(5)
        state = run_state.read(before.train, before.session)
        run_state.load(after.train, after.session, state)
        after.session.run(after.train.sync)
        after.session.run(after.train.feed.initializer)
        self.assertLess(trainer.difference(calm, after.steps(9)), 1e-5)

    def test_a_step_that_is_half_done_has_no_state(self):
        training = _begun(2, "parameter_server")
        training.steps(1)
        with training.train.graph.as_default():
            training.session.run(training.train.marks.begun.assign_add(1))
        self.assertIsNone(run_state.read(training.train, training.session))

    def test_a_session_that_is_lost_has_none(self):
        training = _begun(1, "parameter_server")
        training.session.close()
        self.assertIsNone(run_state.read(training.train, training.session))
