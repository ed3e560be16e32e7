"""A warm start: variables of a new run get the values that a checkpoint has of them."""

from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

from flags.problem import wrong_setting
from towers.checkpoints import checkpoint, contents, loading, tf_cnn_names
from towers.errors.explain import cause, first_few
from towers.layout import parts

v1 = tf.compat.v1

_SETTING = "init_checkpoint"


class WarmStart:
    """Those variables of a model whose names and shapes a checkpoint has.

    The names may be those of tf_cnn_benchmarks, whose networks have the same layers.
    The optimizer's slots, the global step and the input position are not read.  Moving
    averages start at the values of their variables.

    Args:
      given: the checkpoint, or a folder whose newest one is meant.
      variables: name -> variable.
      averages: name of a variable or part -> its moving average, where it has one.

    Raises:
      ValueError: there is no such checkpoint, none of the variables is in it, or it is
        one of tf_cnn_benchmarks of another network or in an unknown data format.
    """

    def __init__(
        self,
        given: str,
        variables: Mapping[str, tf.Variable | parts.Parts],
        averages: Mapping[str, tf.Variable],
    ):
        self._path = find(given)
        there = _contents(given, self._path)
        self._theirs, self._format = _of_tf_cnn(given, self._path, variables, there)
        stored = {name: there[theirs] for name, theirs in self._theirs.items()} or there
        shapes = {name: held.shape.as_list() for name, held in variables.items()}
        missing = [name for name in shapes if name not in stored]
        self._differ = [
            f"{name} is {stored[name]} in it and {shape} in this run"
            for name, shape in shapes.items()
            if name in stored and list(stored[name]) != shape
        ]
        self._missing = missing
        self._pairs = {
            name: [held, *_averages(name, held, averages)]
            for name, held in variables.items()
            if list(stored.get(name, ())) == shapes[name] and name in stored
        }
        self._count = len(variables)
        if not self._pairs:
            raise wrong_setting(
                _SETTING,
                given,
                f"no variable of the model is in {self._path} with the same name and "
                f"shape ({self._rest or 'the model has none'})",
                "give a checkpoint of a model with such variables",
            )

    def load(self, session: v1.Session, log: Callable[[str], None]) -> None:
        """Sets the variables, and logs which were in the checkpoint."""
        reader = tf.train.load_checkpoint(self._path)
        for name, targets in self._pairs.items():
            theirs = self._theirs.get(name, name)
            value = tf_cnn_names.in_our_order(
                theirs, reader.get_tensor(theirs), self._format
            )
            for target in targets:
                loading.put(session, target, value)
        rest = f"; {self._rest}" if self._rest else ""
        log(
            f"Starting from {self._path}: {len(self._pairs)} of {self._count} "
            f"variables are in it{rest}"
        )

    @property
    def _rest(self) -> str:
        """The variables that keep their initial values."""
        lists = ("not in it", self._missing), ("of another shape", self._differ)
        return "; ".join(
            f"{title}: {first_few(names)}" for title, names in lists if names
        )


def of(
    given: str | None,
    variables: Mapping[str, tf.Variable | parts.Parts],
    averages: Mapping[str, tf.Variable],
) -> WarmStart | None:
    """The warm start of a run; None if no checkpoint is given."""
    return WarmStart(given, variables, averages) if given else None


def find(given: str) -> str:
    """The path of a checkpoint.

    Args:
      given: that path, or a folder.

    Raises:
      ValueError: there is none.
    """
    if tf.io.gfile.isdir(given):
        path = checkpoint.latest(given) or tf.train.latest_checkpoint(given)
        if path is None:
            raise wrong_setting(_SETTING, given, "there is no checkpoint in it")
        return path
    if not tf.io.gfile.exists(f"{given}.index"):
        raise wrong_setting(
            _SETTING,
            given,
            "there is no such checkpoint",
            "name its folder, or its files up to the step, as run/model.ckpt-100",
        )
    return given


def _averages(
    name: str, held: tf.Variable | parts.Parts, averages: Mapping[str, tf.Variable]
) -> list[tf.Variable | parts.Parts]:
    """The moving average of a variable, if it has one."""
    if not isinstance(held, parts.Parts):
        return [averages[name]] if name in averages else []
    names = [parts.name_of(name, k) for k in range(len(held))]
    pieces = [averages[part] for part in names if part in averages]
    return [parts.Parts(pieces, held.axis)] if pieces else []


def _of_tf_cnn(
    given: str, path: str, names: Iterable[str], there: Mapping[str, list[int]]
) -> tuple[dict[str, str], str]:
    """Our names -> those of tf_cnn_benchmarks, if it wrote the checkpoint.

    Args:
      given, path: the checkpoint, as the user named it, and its path.
      names: of the model's variables, in the order of its blocks.
      there: name -> shape of what it holds.

    Returns:
      The names, none for a checkpoint of this project, and the data format that the
      order of its rows is of.

    Raises:
      ValueError: it is of another network, or its data format is needed and unknown.
    """
    if not tf_cnn_names.are_theirs(there):
        return {}, "NHWC"
    try:
        pairs = tf_cnn_names.pairs(names, there)
    except ValueError as error:
        raise wrong_setting(
            _SETTING, given, str(error), "choose the `model` that it is of"
        ) from error
    ordered = [n for n in pairs.values() if tf_cnn_names.reads_images(n, there[n])]
    if not ordered:
        return pairs, "NHWC"
    try:
        return pairs, tf_cnn_names.data_format(path)
    except ValueError as error:
        raise wrong_setting(
            _SETTING,
            given,
            f"the order of the rows of {ordered[0]} is that of the --data_format with "
            f"which tf_cnn_benchmarks wrote it, and {error}",
            "put the .meta file of the checkpoint beside it",
        ) from error


def _contents(given: str, path: str) -> dict[str, list[int]]:
    """Name -> shape of what a checkpoint holds.

    Raises:
      ValueError: it cannot be read.
    """
    try:
        return contents.of(path)
    except (tf.errors.OpError, ValueError) as error:
        words = f"{path} cannot be read ({cause(error)})"
        raise wrong_setting(_SETTING, given, words, "give another") from error
