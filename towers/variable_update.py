"""How variables and gradients meet: one class per mode.

A mode says where variables are created, what a tower reads, and how the towers'
gradients become one update.  The towers do not know the mode, and the mode does not
know how a tower came about.
"""

import zlib
from collections.abc import Callable, Sequence

import tensorflow as tf

from towers import reduction
from towers.optimizer import OPTIMIZERS, Update
from towers.placement import Placement
from towers.tower import Tower

v1 = tf.compat.v1


class ParameterServer:
    """One copy of every variable, read by all towers, updated once per step.

    Variables lie on the placement's parameter devices, each on the one that holds the
    fewest bytes when it is made.  Every tower's gradient travels to the variable's
    device; their mean is formed and applied there.
    """

    def __init__(self, placement: Placement, *, seed: int = 0, algorithm: str = ""):
        self._placement = placement
        self._seed = seed
        self._reduce = reduction.REDUCTIONS[algorithm or "pscpu"]
        self._graph = v1.get_default_graph()
        self._load = dict.fromkeys(placement.parameters, 0)
        self._reads: dict[str, tf.Tensor] = {}
        self.variables: dict[str, tf.Variable] = {}

    def create(
        self,
        name: str,
        shape: tf.TensorShape,
        initializer: Callable | None,
        *,
        trainable: bool,
    ) -> None:
        """Makes a float32 variable unless there is one of this name."""
        if name in self.variables:
            return
        where = min(self._load, key=self._load.__getitem__)
        self._load[where] += 4 * shape.num_elements()
        with (
            self._graph.as_default(),
            tf.device(where),
            v1.variable_scope(v1.VariableScope(reuse=False), use_resource=True),
        ):
            self.variables[name] = v1.get_variable(
                name,
                shape,
                tf.float32,
                seeded(initializer, name, self._seed),
                trainable=trainable,
            )

    def read(self, name: str, tower: int) -> tf.Tensor:
        """The variable's value as the tower reads it: once a step for all towers."""
        del tower
        if name not in self._reads:
            variable = self.variables[name]
            with tf.name_scope("read/"), tf.device(variable.device):
                self._reads[name] = variable.read_value()
        return self._reads[name]

    def apply(
        self, towers: Sequence[Tower], names: Sequence[str], update: Update, rate
    ) -> list[tf.Operation]:
        """The updates of all variables from the towers' gradients.

        Args:
          towers: with gradients in the order of `names`.
          names: of the trainable variables.
          update: optimizer, weight decay.
          rate: float32 scalar, the learning rate of this step.

        Returns:
          operations that, run once, make one step.
        """
        variables = [self.variables[name] for name in names]
        with tf.name_scope("reduction"):
            means = reduction.mean(
                [tower.gradients for tower in towers],
                [[variable.device] for variable in variables],
                reduce=self._reduce,
            )
        with tf.name_scope("update"):
            gradients = update.decay([copies[0] for copies in means], variables)
            optimizer = OPTIMIZERS[update.optimizer].make(rate, update.settings)
            pairs = [(g, v) for g, v in zip(gradients, variables) if g is not None]
            # A gradient need not depend on its variable's value, yet the variable
            # must not change before every tower has read it.
            with tf.control_dependencies([tf.group(*self._reads.values())]):
                return [optimizer.apply_gradients(pairs)]

    def sync(self) -> tf.Operation:
        """What must run after initialisation or restore: nothing, with one copy."""
        return tf.no_op()

    def saved(self, variables: Sequence[tf.Variable]) -> dict[str, tf.Variable]:
        """Checkpoint name -> variable, of all global variables of the graph."""
        return {variable.op.name: variable for variable in variables}


VARIABLE_UPDATES = {"parameter_server": ParameterServer}


def seeded(initializer: Callable | None, name: str, seed: int) -> Callable:
    """The initializer with a seed made from the run's seed and the variable's name.

    TensorFlow would take it from the number of operations made before, and so from
    the number of towers and the mode.

    Args:
      initializer: of `tf.compat.v1` or Keras, or any callable of (shape, dtype).
        Glorot uniform when None, as `get_variable` has it.
      name: of the variable.
      seed: of the run.
    """
    initializer = initializer or v1.glorot_uniform_initializer()
    if isinstance(initializer, type):
        initializer = initializer()
    config = getattr(initializer, "get_config", dict)()
    if "seed" in config and config["seed"] is None:
        own = zlib.crc32(f"{seed}/{name}".encode()) & 0x7FFFFFFF
        # The constructor's dtype is deprecated; get_variable passes it on the call.
        config = {k: v for k, v in config.items() if k != "dtype"}
        return type(initializer).from_config({**config, "seed": own})
    return initializer
