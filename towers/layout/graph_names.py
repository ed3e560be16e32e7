"""The names of the graph's operations, as TensorBoard shows them.

    input, variables, tower_0, tower_1, ..., reduction, update, evaluation, checkpoint,
    summaries, global_step

are all that is at the top level.  TensorFlow's hooks take the last name for their tags.
A name scope that ends with a slash is absolute: what is built in several places stands
together.
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
    """Where `tf.compat.v1.get_variable` makes the variables of the graph."""
    scope = v1.VariableScope(reuse=False, name=VARIABLES.removesuffix("/"))
    with (
        v1.variable_scope(scope, use_resource=True, auxiliary_name_scope=False),
        v1.name_scope(VARIABLES),
    ):
        yield


def checkpoint_name(variable: tf.Variable) -> str:
    """The variable's name in a checkpoint: its name in the graph, less the scope."""
    return variable.op.name.removeprefix(VARIABLES)
