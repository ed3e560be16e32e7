"""The variables of a model that are sharded over a tower's devices; plain data.

`--shard_classifier` shards the last layer by its classes, `--shard_embeddings` the
embedding tables by their rows.  If the last layer's weights are an embedding table
(tied), either flag shards it for both uses: its rows are the classes, and each device
looks up its own rows and computes the logits of its own classes.

A model does not declare this.  Its layers record their products and tables while the
model is traced, and `splits` finds the variables among these.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from flags.problem import wrong_setting
from flags.stages import StagesFlags
from models.layers import Layers
from models.logits import Product
from towers.layout.parts import Split


class Shards(NamedTuple):
    """Over how many devices the last layer and the embedding tables are sharded.

    Attributes:
      classifier: devices for the classes of the last layer; 1 if it is not sharded.
      embeddings: devices for the rows of each table; 1 if they are not sharded.
      elsewhere: whether the tables are on ps tasks, not on the towers' devices.
    """

    classifier: int = 1
    embeddings: int = 1
    elsewhere: bool = False

    @classmethod
    def of(cls, flags: StagesFlags) -> "Shards | None":
        """Those that settings ask for; None for none."""
        shards = cls(flags.shard_classifier, flags.shard_embeddings)
        return shards if shards != cls() else None

    @property
    def devices(self) -> int:
        """Devices of each tower."""
        return max(self.classifier, 1 if self.elsewhere else self.embeddings)


def splits(shards: Shards, nn: Layers, outputs: Any, model: str) -> dict[str, Split]:
    """How the variables of a model are sharded.

    Args:
      shards: the layers to shard.
      nn: the layers, after the model was traced with them.
      outputs: of the model's last block.
      model: its name.

    Returns:
      name of a variable -> its split.

    Raises:
      ValueError: the model has no such layer or table, or fewer classes or rows than
        devices; the message says which.
    """
    by_name: dict[str, Split] = {}
    if shards.embeddings > 1:
        by_name |= _tables(shards.embeddings, nn.tables, model)
    ends = classifiers(nn.products, outputs)
    if shards.classifier > 1:
        _check_one(shards.classifier, len(ends), model)
        by_name |= _classifier(shards.classifier, ends[0], model)
    elif shards.embeddings > 1 and not shards.elsewhere and len(ends) == 1:
        if _is_tied(ends[0], nn.tables):
            by_name |= _classifier(shards.embeddings, ends[0], model)
    return by_name


def classifiers(products: Sequence[Product], outputs: Any) -> list[Product]:
    """The dense layers whose outputs a model's last block returns.

    Args:
      products: that the layers recorded.
      outputs: of the block.
    """
    returned = {id(y) for y in tf.nest.flatten(outputs)}
    return [product for product in products if id(product.y) in returned]


def _check_one(devices: int, count: int, model: str) -> None:
    if count > 1:
        raise wrong_setting(
            "shard_classifier",
            devices,
            f"the last block of {model} returns what {count} dense layers made, and "
            "one can be spread",
            "return one, or leave it out",
        )
    if not count:
        raise wrong_setting(
            "shard_classifier",
            devices,
            f"the last block of {model} does not end with a dense layer",
            "what nn.dense returned, with no activation, must be its outputs or one of "
            "them, or leave it out",
        )


def _is_tied(last: Product, tables: Sequence[tf.Tensor]) -> bool:
    """Whether the last layer's weights are an embedding table, transposed."""
    return last.transposed and any(table is last.kernel for table in tables)


def _classifier(count: int, last: Product, model: str) -> dict[str, Split]:
    flag, classes = "shard_classifier", last.y.shape[-1]
    _check_count(flag, count, classes, f"{model} tells {classes} classes apart")
    axis = 0 if last.transposed else 1
    by_name = {_name(flag, count, last.kernel): Split(count, axis, fetched=True)}
    if last.bias is not None:
        by_name[_name(flag, count, last.bias)] = Split(count, fetched=True)
    return by_name


def _tables(count: int, tables: Sequence[tf.Tensor], model: str) -> dict[str, Split]:
    flag = "shard_embeddings"
    if not tables:
        words = f"no block of {model} looks up rows by nn.embedding"
        raise wrong_setting(flag, count, words, "leave it out")
    by_name = {}
    for table in tables:
        name, rows = _name(flag, count, table), table.shape[0]
        _check_count(flag, count, rows, f"{name} has {rows} rows")
        by_name[name] = Split(count)
    return by_name


def _check_count(flag: str, count: int, length: int, what: str) -> None:
    if count > length:
        words = f"{what}, fewer than devices"
        raise wrong_setting(flag, count, words, f"write `{flag}={length}` or fewer")


def _name(flag: str, count: int, tensor: tf.Tensor) -> str:
    """Name of the variable whose value a tensor is."""
    name = tensor.op.name
    if tensor.op.type != "Placeholder" or not name.startswith("read/"):
        words = f"{name!r} is computed from variables, not one itself, and cannot be "
        raise wrong_setting(flag, count, words + "spread", "leave it out")
    return name.removeprefix("read/")
