"""Towers whose stages lie on different workers train as they do in one process."""

import tensorflow as tf
from absl.testing import absltest

from models.model import Model
from tests import in_process_cluster, trainer
from towers import graph
from towers.layout import placement
from towers.layout.stages import Pipeline
from towers.session import loop

v1 = tf.compat.v1

_STEPS = 4
_CUT = (2, 4)

# Name -> towers, mode, pipeline.  A tower's stages are on one worker or on both.
CASES = {
    "over both workers": (1, "parameter_server", Pipeline(2, 4, cut=_CUT)),
    "recomputed": (1, "replicated", Pipeline(2, 2, cut=_CUT, recompute="block")),
    "interleaved": (
        1,
        "parameter_server",
        Pipeline(2, 2, "interleaved", 2, cut=(1, 2, 3, 4)),
    ),
    "two towers": (2, "replicated", Pipeline(2, 4, "gpipe", cut=_CUT)),
}


def _table(nn):
    """A variable that two blocks share: its name has no block in it."""
    scope = v1.VariableScope(
        reuse=v1.AUTO_REUSE, custom_getter=v1.get_variable_scope().custom_getter
    )
    with v1.variable_scope(scope, auxiliary_name_scope=False):
        return v1.get_variable("table", [10, 6])


def _embed(x, nn):
    which = tf.cast(tf.abs(x[:, :, 0, 0]) * 4, tf.int32) % 10
    return tf.gather(_table(nn), which)


def _normal(x, nn):
    return nn.batch_norm(tf.reshape(x, [x.shape[0], 4, 1, 6]))


def _hidden(x, nn):
    return nn.dropout(nn.dense(nn.flatten(x), 6, activation=tf.nn.tanh), 0.5)


def _unembed(x, nn):
    return nn.dense(x @ tf.transpose(_table(nn)), nn.num_classes)


def _model() -> Model:
    """With tied blocks on different stages, batch norm and dropout."""
    return trainer.model_of(
        ("embed", _embed),
        ("normal", _normal),
        ("hidden", _hidden),
        ("unembed", _unembed),
        name="tied",
    )


def _values(where: placement.Placement, name: str, target: str) -> dict:
    """The saved variables after some steps."""
    count, mode, how = CASES[name]
    train = graph.build(
        _model(),
        trainer.random_source(),
        trainer.MOMENTUM,
        placement=where,
        options=graph.Options(
            batch_size=16 // count, variable_update=mode, pipeline=how
        ),
    )
    config = placement.session_config(where)
    with v1.Session(target, graph=train.graph, config=config) as session:
        loop.start(train, session, lambda session: None)
        loop.run(train, session, (), last_step=_STEPS)
        return session.run(train.saved)


def inside() -> None:
    """Prints how far each case is from the same without a cluster, and ends."""
    spec, target = in_process_cluster.serve(ps=1, devices=2)
    results = {}
    for name, (count, _, _) in CASES.items():
        there = placement.on_cluster(spec, count, kind="cpu", num_stages=2)
        here = placement.local(2 * count, kind="cpu", num_stages=2)
        alone = _values(here, name, "")
        other = _values(there, name, target)
        over = {
            device.partition("/device:")[0]
            for device in (there.stages[0] if count == 1 else there.towers)
        }
        results[name] = [trainer.difference(alone, other), len(over)]
    in_process_cluster.tell(results)


class ClusterTest(absltest.TestCase):
    def test_equal_to_one_process(self):
        printed = in_process_cluster.found_inside(
            "from tests.cluster import stages_cluster_test as this; this.inside()"
        )
        self.assertEqual(set(printed), set(CASES))
        for name, (difference, over) in printed.items():
            self.assertLess(difference, 1e-5, name)
            self.assertEqual(over, 2, name)
