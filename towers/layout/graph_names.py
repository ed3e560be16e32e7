"""The names of the graph's operations, as TensorBoard shows them.

    input, variables, tower_0, tower_1, ..., reduction, update, evaluation, checkpoint,
    summaries, global_step

are the only names at the top level.  TensorFlow's hooks use the last one in their tags.
A name scope that ends with a slash is absolute, so that operations which are built in
several places are in one scope.
"""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

v1 = tf.compat.v1

INPUT = "input/"
VARIABLES = "variables/"
READ = "variables/read/"
SYNC = "variables/sync/"
REDUCTION = "reduction/"
UPDATE = "update/"
LOOP = "update/loop/"
EVALUATION = "evaluation/"
CHECKPOINT = "checkpoint/"
SUMMARIES = "summaries/"


@contextlib.contextmanager
def variable_scope() -> Iterator[None]:
    """The variable scope of the graph's variables."""
    scope = v1.VariableScope(reuse=False, name=VARIABLES.removesuffix("/"))
    with (
        v1.variable_scope(scope, use_resource=True, auxiliary_name_scope=False),
        v1.name_scope(VARIABLES),
    ):
        yield


def checkpoint_name(variable: tf.Variable) -> str:
    """The variable's name in a checkpoint: its name in the graph without the scope."""
    return variable.op.name.removeprefix(VARIABLES)
