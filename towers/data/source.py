"""The interface between data sources and towers: `Source`, `Request` and `Feed`."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from flags.config import Config
from flags.problem import wrong_setting
from models.model import Model, softmax_cross_entropy
from towers.data import nests, pictures
from towers.data.preprocessing import Size

# (host, its towers' devices), in tower order.
Groups = Sequence[tuple[str, Sequence[str]]]


class Batch(NamedTuple):
    """One tower's batch: consecutive examples of the stream.

    Features and labels are tensors [batch, ...], or nests (dicts, tuples) of them, of
    any dtype and static shape.
    """

    features: Any
    labels: Any  # () if there are none
    weights: tf.Tensor  # float32 [batch], of each example; 0 after the last example
    first: tf.Tensor  # int64 scalar, index in the stream of the first example

    def tensors(self) -> dict[str, tf.Tensor]:
        """The tensors by name, `features/<i>` and `labels/<i>` of nests."""
        return nests.flat(self._asdict())


class ClientShare(NamedTuple):
    """The part of the stream that the towers of one client's graph read.

    Attributes:
      index: of this client's part among the equal parts of each step.
      count: number of parts, one for each client.
      apart: whether towers take steps, and so batches, asynchronously.
      steps: number of steps after which the stream starts again; None for never.
      order: version of the order of examples (`towers.data.order`), int64 scalar; None
        for the newest.
      rows: examples of each part of a step; () if they are equal.
    """

    index: int = 0  # type: ignore[assignment]
    count: int = 1  # type: ignore[assignment]
    apart: bool = False
    steps: int | None = None
    order: tf.Tensor | None = None
    rows: tuple[int, ...] = ()

    def before(self, rows: int) -> int:
        """Examples of a step in the parts before this one, which has `rows`."""
        return sum(self.rows[: self.index]) if self.rows else self.index * rows

    def of_step(self, rows: int) -> int:
        """Examples of a step in all parts, of which this one has `rows`."""
        return sum(self.rows) if self.rows else self.count * rows


class LeftOut(NamedTuple):
    """The damaged examples of a step, which have weight 0.

    Attributes:
      most: in an epoch.
      num_examples: in an epoch.
      of_towers: bool [batch] for each tower, whether an example is damaged.
    """

    most: int
    num_examples: int
    of_towers: Sequence[tf.Tensor]


class Feed(NamedTuple):
    """The input of the towers of one graph."""

    batches: list[Batch]  # one per tower
    initializer: tf.Operation  # seeks to the position; may be run again
    refills: list[tf.Operation]  # one per tower, to be run in each of its steps
    # float32 scalar, the weight of the step's examples.  None: it is that of the
    # batches, and clients exchange theirs.
    weight: tf.Tensor | None = None
    # Whether it starts again by itself after the steps of its part.
    begins_anew: bool = False
    # For each tower the seconds that it waits at the start of a step, float64 scalars;
    # () if batches are read one step ahead, or there is nothing to wait for.
    waits: Sequence[tf.Tensor] = ()
    left_out: LeftOut | None = None  # None if no example may be damaged

    @property
    def staged(self) -> bool:
        """Whether a step reads the batch of the next one."""
        return any(op.control_inputs for op in self.refills)

    def class_weighted(self, class_weight: Sequence[float]) -> "Feed":
        """The feed with each example's weight multiplied by that of its class.

        Args:
          class_weight: of each class, at least 0; empty for no change.  Labels must be
            classes [batch].
        """
        if not class_weight:
            return self
        batches = []
        for batch in self.batches:
            # On the CPU, where a class without a weight is an error.
            with tf.device(batch.weights.device), tf.name_scope("class_weight"):
                factors = tf.gather(tf.constant(class_weight, tf.float32), batch.labels)
                batches.append(batch._replace(weights=batch.weights * factors))
        return self._replace(batches=batches, weight=None)

    def total_weights(
        self, *, joined: bool, rows: int | None = None
    ) -> list[tf.Tensor]:
        """The divisor of each tower's sum of losses, float32 scalars above 0.

        Args:
          joined: whether it is the weight of all examples of the step; if not, that of
            the tower's examples.
          rows: examples of a step of all clients, with those after the last; None for a
            single client.  If clients exchange weights, it is the divisor, and the step
            divides by `exchanged_weight`.
        """
        weights = self._weights()
        if not joined:
            return list(map(divisor, weights))
        whole = tf.add_n(weights) if self.weight is None else self.weight
        if self.weight is None and rows:
            whole = tf.constant(float(rows))
        return [divisor(whole)] * len(weights)

    def exchanged_weight(self, rows: int | None) -> tf.Tensor | None:
        """This client's part of the step's weight.

        Args:
          rows: as in `total_weights`.

        Returns:
          float32 scalar, relative to the number of the step's examples; None if every
          client knows the weight of all.
        """
        if rows is None or self.weight is not None:
            return None
        return tf.add_n(self._weights()) / float(rows)

    def _weights(self) -> list[tf.Tensor]:
        """The weight of each tower's batch."""
        weights = []
        for batch in self.batches:
            with tf.device(batch.weights.device):
                weights.append(tf.reduce_sum(batch.weights))
        return weights


def sizes_of(groups: Groups, batch_size: int | Sequence[int]) -> list[list[int]]:
    """The batch size of each tower of each host."""
    counts = [len(devices) for _, devices in groups]
    if isinstance(batch_size, int):
        return [[batch_size] * count for count in counts]
    sizes = iter(batch_size)
    return [list(itertools.islice(sizes, count)) for count in counts]


def divisor(weight: tf.Tensor) -> tf.Tensor:
    """The divisor that makes a mean of a sum over examples of this weight.

    It is not 0, also if all examples of a step are after the last; their sum is 0.
    """
    return tf.where(weight > 0, weight, 1.0)


def refilled(fetched: Any, refills: Sequence[tf.Operation]) -> Any:
    """The same tensors; fetching them also runs the refills.

    Otherwise, with staged batches, the next fetch would wait forever for its batch.
    The tensors are copies, because a control input has no effect on an existing tensor.
    """
    if not any(op.control_inputs for op in refills):
        return fetched
    with tf.control_dependencies(refills):
        return tf.nest.map_structure(tf.identity, fetched)


class Source(Protocol):
    """The interface of a source of batches; your own class may implement it.

    Two attributes are optional.  `vocabulary`, the word of each token, is saved in
    checkpoints.  `num_classes` means labels in [0, num_classes), or (users, items) of
    pairs; without it, the model's inputs name the number.

    Attributes:
      num_examples: in an epoch.
    """

    num_examples: int

    def feed(
        self,
        groups: Groups,
        *,
        batch_size: int | Sequence[int],
        position: tf.Tensor,
        limit: int | None = None,
        part: ClientShare = ClientShare(),  # noqa: B008 - a tuple
    ) -> Feed:
        """Adds the towers' input to the current graph.

        The batches of a step are the next examples of one stream, which never ends.
        They depend on the position in the stream, and not on the number of towers.

        Args:
          groups: the hosts, with the devices of the towers that each feeds.
          batch_size: of each tower; one number for each if they differ.
          position: int64 scalar, of the next example when the feed is initialized.
          limit: examples from this index on have weight 0; None if there are none.
          part: of the stream; other clients read the rest.
        """


@dataclasses.dataclass(frozen=True)
class Request:
    """The examples that a network needs.

    Attributes:
      shape: (height, width, channels) of the features, (length,) of windows of tokens,
        or (2,) of pairs; with `preprocessing="scale"` the data set's own size is used
        instead.
      num_classes: of synthetic data, and the largest vocabulary of a text; of pairs
        (users, items).  Other real data has its own number.
      features, labels: nests of `tf.TensorSpec`s of one example, without the batch
        dimension, of data of the kind `examples`.
      num_examples: in an epoch of synthetic data.
      classes: whether labels are in [0, num_classes).
      kind: of data, a row of `inputs.KINDS`.
      preprocessing: a row of `preprocessing.PREPROCESSING` that is for this kind.
      num_outputs: of a classifier, if more than the data has classes; or None.
      unscaled: whether synthetic pixels are not scaled to [-1, 1].
      image_options: (name, value) of settings of the preprocessing; None is unset.
      background_class: whether ImageNet's labels are from 1, and 0 is no class.
      max_damaged: examples in an epoch that may be damaged.
      augment: whether training images are distorted as the preprocessing defines; if
        not, they are prepared like those of evaluation.
      seed: of order, augmentation and synthetic data.
      data_dir: TFDS's data folder; empty for TFDS's default.
      vocabulary: of the text that is trained on; another text is encoded with it.
      prefetch: batches to prefetch for each tower.
      threads: of the input pipeline; 0 or None to share those of the session.
      repeated: whether each training example is the first one of the data.
    """

    shape: Size
    num_classes: int | tuple[int, int] = 1000
    features: Any = ()
    labels: Any = ()
    num_examples: int = 1_281_167
    kind: str = "images"
    classes: bool = False
    preprocessing: str = "scale"
    num_outputs: int | None = None
    unscaled: bool = False
    image_options: tuple[tuple[str, Any], ...] = ()
    background_class: bool = False
    max_damaged: int = 0
    augment: bool = True
    seed: int = 1234
    data_dir: str | None = None
    vocabulary: tuple[bytes, ...] = ()
    prefetch: int = 1
    threads: int | None = None
    repeated: bool = False

    @classmethod
    def of(cls, config: Config, model: Model) -> "Request":
        """The request of a model with these settings."""
        wanted, data, images = model.inputs, config.data, config.images
        row = images.input_preprocessor if wanted.kind == "images" else None
        options = pictures.PictureOptions._fields
        return cls(
            shape=wanted.shape,
            num_classes=wanted.num_classes,
            features=wanted.features,
            labels=wanted.labels,
            num_examples=wanted.num_examples,
            kind=wanted.kind,
            classes=wanted.kind == "images"
            or model.loss is softmax_cross_entropy
            or bool(config.training.class_weight),
            num_outputs=config.model.num_classes,
            unscaled=data.synthetic_pixels == "unscaled",
            preprocessing=row or wanted.preprocessing,
            image_options=tuple((name, getattr(images, name)) for name in options),
            background_class=images.background_class,
            max_damaged=images.max_damaged_examples,
            augment=data.augment is not False,
            seed=config.training.tf_random_seed,
            data_dir=data.data_dir,
            prefetch=data.datasets_prefetch_buffer_size,
            threads=data.datasets_num_private_threads,
            repeated=config.training.datasets_repeat_cached_sample,
        )


def specs(request: Request) -> tuple[Any, Any]:
    """Nests of the specs of a requested example's features and labels."""
    if request.kind == "examples":
        return request.features, request.labels
    dtype = tf.float32 if request.kind == "images" else tf.int32
    lengths = {"images": (), "tokens": request.shape, "pairs": request.shape[:-1]}
    labels = tf.TensorSpec(lengths[request.kind], tf.int32)
    return tf.TensorSpec(request.shape, dtype), labels


def classes(source: Source, model: Model) -> int | tuple[int, int]:
    """The number of classes, or (users, items), of a model's outputs.

    Args:
      source: of the data.
      model: a `models.Model`, which names the number if the source does not.
    """
    number = getattr(source, "num_classes", None)
    return model.inputs.num_classes if number is None else number


def set_classes(source: Any, request: Request) -> None:
    """Gives classifiers the number of outputs that `request.num_outputs` asks for.

    Args:
      source: of the data, by a name.
      request: what the network needs.

    Raises:
      ValueError: the data has more classes, or no classes.
    """
    wanted, number = request.num_outputs, source.num_classes
    if not request.classes or request.kind not in ("images", "examples"):
        words, remedy = "the model does not tell classes apart", "leave it out"
    elif number and number > wanted:
        words = f"data set {source.name} has {number} classes"
        remedy = "write that many or more"
    else:
        source.num_classes = wanted
        return
    raise wrong_setting("num_classes", wanted, words, remedy)


def weighted(
    features: Any,
    labels: Any,
    indices: tf.Tensor,
    weights: tf.Tensor | None = None,
    *,
    limit: int | None,
) -> Batch:
    """A batch whose examples have weight 0 from `limit` on.

    Args:
      features: nest of [batch, ...].
      labels: nest of [batch, ...].
      indices: int64 [batch], of the examples in the stream.
      weights: float32 [batch], before that; None if each is 1.
      limit: None if there is no limit.
    """
    if weights is None:
        weights = tf.ones(indices.shape)
    if limit is not None:
        # Not a product: after the limit, weights may be anything, also infinite.
        weights = tf.where(indices < limit, weights, tf.zeros_like(weights))
    return Batch(features, labels, weights, indices[0])


def weight_of_all(
    first: tf.Tensor, part: ClientShare, rows: int, limit: int | None
) -> tf.Tensor | None:
    """The total weight of a step's examples, including those of other clients.

    Args:
      first: int64 scalar, index in the stream of this client's first example.
      part: of the step that this client reads.
      rows: examples in that part.
      limit: as in `weighted`.

    Returns:
      float32 scalar, or None if this client reads all.
    """
    if part.count == 1:
        return None
    total = part.of_step(rows)
    if limit is None:
        return tf.constant(float(total))
    left = limit - (first - part.before(rows))
    return tf.cast(tf.clip_by_value(left, 0, total), tf.float32)
