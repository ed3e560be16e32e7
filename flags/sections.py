"""The flags of the model, data, training and evaluation.

To add a flag, add a field to a section, here or in `devices`, `output`, `variables`,
`stages`, `cluster`, `optimizer` or `verify`.  A section's docstring is its heading in
`--help`; its `common` names the flags that the short `--help` shows.

Names and meanings are those of tf_cnn_benchmarks where it has the flag; the table of
its flags that are refused is `flags.tf_cnn_benchmarks`.  A default of None means that
the model's recipe, the device or the length of the run decides, as `unset` says.
"""

import dataclasses
from typing import ClassVar

from flags.field import (
    ABOVE_0,
    ABOVE_0_UP_TO_1,
    AT_LEAST_0,
    AT_LEAST_1,
    EPOCHS,
    FROM_0_TO_4096,
    field,
)


@dataclasses.dataclass(frozen=True)
class ModelFlags:
    """What is trained."""

    common: ClassVar[tuple[str, ...]] = ("model", "compute_dtype")

    model: str = field("lenet", "the model", user_defined=True)
    num_classes: int | None = field(
        None,
        "outputs of a classifier, if it is to have more than the data has classes",
        unset="as many",
        must=AT_LEAST_1,
    )
    data_format: str | None = field(
        None,
        "layout of image tensors: channels last or channels first",
        unset="what the device is fast at, which on GPUs depends on the dtype",
        choices=("NHWC", "NCHW"),
    )
    compute_dtype: str = field(
        "float32",
        "dtype of activations, and of weights in the layers' products; variables stay "
        "float32",
    )
    use_fp16: bool = field(False, "the same as --compute_dtype=float16")
    fp16_loss_scale: float | None = field(
        None,
        "factor of the loss in float16, so that small gradients do not become 0; the "
        "gradients are divided by it",
        unset="128",
        must=ABOVE_0,
    )
    fp16_enable_auto_loss_scale: bool = field(
        False,
        "when a gradient is not finite, halve the loss scale and skip the step; double "
        "the scale after --fp16_inc_loss_scale_every_n steps without that",
    )
    fp16_inc_loss_scale_every_n: int = field(
        1000,
        "steps with finite gradients after which the loss scale is doubled",
        must=AT_LEAST_1,
    )


@dataclasses.dataclass(frozen=True)
class DataFlags:
    """What it is trained on."""

    common: ClassVar[tuple[str, ...]] = ("data_name", "data_dir", "batch_size")

    data_name: str | None = field(
        None,
        "the data set: digits or shakespeare, which ship with the project; a TFDS "
        "name; imagenet, cifar10 or cifar100, whose downloaded files are in "
        "--data_dir; the path of a folder of images, ratings or texts, or of a text "
        "file; synthetic; or your own, as path/to/file.py:function or "
        "package.module:function",
        unset="the model's own",
    )
    data_dir: str | None = field(
        None,
        "folder of the data set's files, or of the data sets that TFDS prepares",
        unset="TFDS's own folder",
    )
    train_split: str = field("train", "TFDS split, or slice of one, to train on")
    batch_size: int | None = field(
        None,
        "examples per tower and step",
        unset="the recipe's",
        must=AT_LEAST_1,
    )
    augment: bool | None = field(
        None,
        "crop, flip and change the colours of training images at random",
        unset="as the model's preprocessing does",
    )
    synthetic_pixels: str = field(
        "scaled",
        "pixels of synthetic images: scaled to [-1, 1] like those of prepared images, "
        "or unscaled, from 7 to 247",
        choices=("scaled", "unscaled"),
    )
    datasets_prefetch_buffer_size: int = field(
        1, "batches kept ready per tower", must=AT_LEAST_1
    )
    datasets_num_private_threads: int | None = field(
        None,
        "threads of the input pipeline; 0 shares the threads of TensorFlow's session",
        unset="automatic",
        must=FROM_0_TO_4096,
    )


@dataclasses.dataclass(frozen=True)
class TrainingFlags:
    """How long, from which values, and with which weights of classes."""

    common: ClassVar[tuple[str, ...]] = ("num_batches", "num_epochs")

    num_batches: int | None = field(
        None,
        "steps to train after the warm-up steps",
        unset="num_epochs decides",
        must=AT_LEAST_1,
    )
    num_epochs: float | None = field(
        None,
        "passes over the training data, warm-up steps included",
        unset="the recipe's",
        must=EPOCHS,
    )
    num_warmup_batches: int | None = field(
        None,
        "steps at the start that train but are not timed",
        unset="10",
        must=AT_LEAST_0,
    )
    steps_per_loop: int = field(
        1,
        "steps that run inside the graph per session call; fewer if they would take "
        "more than 3 seconds",
        must=AT_LEAST_1,
    )
    forward_only: bool = field(
        False,
        "time the forward pass alone, as in evaluation (no dropout, batch norm by its "
        "moving averages) but on training data; nothing is trained or saved",
    )
    freeze_when_forward_only: bool = field(
        False, "make the variables constants of the graph before the forward pass"
    )
    input_only: bool = field(
        False,
        "time the input alone: read, prepare and batch the training data, and split it "
        "over the towers, which compute nothing",
    )
    init_checkpoint: str | None = field(
        None,
        "checkpoint, or folder with one, to start from: the values of the variables "
        "whose names and shapes are in it; a checkpoint in train_dir is continued from "
        "instead",
        unset="random initial values",
    )
    datasets_repeat_cached_sample: bool = field(
        False,
        "read one training example, and train on it again and again, so that reading "
        "takes no time; it is decoded and prepared each time",
    )
    tf_random_seed: int = field(
        1234,
        "seed of the initial values, of shuffling, augmentation and dropout",
        must=AT_LEAST_0,
    )
    conv_initializer: str = field(
        "he_normal",
        "initial kernels of convolutions for which the model has none of its own: "
        "truncated normal of variance 2 / fan-in (he_normal) or 1 / fan-in",
    )
    dense_initializer: str = field(
        "variance_scaling",
        "initial kernels of such dense layers: normal of variance 2 / fan-in before an "
        "activation, else 1 / fan-in, cut off at two deviations; variance_scaling has "
        "that variance after the cut, truncated_normal before it",
    )
    zero_gamma: bool | None = field(
        None,
        "start the scale of the last batch norm of each residual unit at 0, so that "
        "units start as the identity",
        unset="as the model does",
    )
    class_weight: tuple[float, ...] = field(
        (),
        "weight of each class, in the order of the classes; training multiplies the "
        "weight of an example by that of its class",
        unset="1 for each class",
        must=AT_LEAST_0,
    )
    stop_on_nan: bool = field(
        True,
        "end the run at the first loss that is not finite; --nostop_on_nan goes on, to "
        "measure speed, but saves no variables that are not finite",
    )
    callbacks: str | None = field(
        None,
        "your function that returns a list of callbacks, each a "
        "tf.compat.v1.train.SessionRunHook: path/to/file.py:function or "
        "package.module:function; --eval, which takes no steps, does not call it",
        unset="none",
    )

    @property
    def trains_nothing(self) -> bool:
        """Whether steps leave the variables as they are."""
        return self.forward_only or self.input_only


@dataclasses.dataclass(frozen=True)
class EvaluationFlags:
    """When and on how much the accuracy is measured."""

    common: ClassVar[tuple[str, ...]] = ("eval", "eval_during_training_every_n_epochs")

    eval: bool = field(False, "evaluate the checkpoints of train_dir, train nothing")
    eval_interval_secs: int = field(
        0,
        "seconds between evaluations with --eval or by the evaluator of a cluster, "
        "until the checkpoint of the last step of --num_batches or --num_epochs; 0 "
        "evaluates once with --eval, and every 5 seconds in an evaluator",
        must=AT_LEAST_0,
    )
    eval_during_training_every_n_steps: int | None = field(
        None,
        "steps between evaluations, warm-up steps included",
        unset="never",
        must=AT_LEAST_1,
    )
    eval_during_training_every_n_epochs: float | None = field(
        None, "epochs between evaluations", unset="never", must=EPOCHS
    )
    eval_during_training_at_specified_steps: tuple[int, ...] = field(
        (),
        "global steps after which to evaluate, warm-up steps included",
        unset="none",
        must=AT_LEAST_1,
    )
    eval_during_training_at_specified_epochs: tuple[float, ...] = field(
        (), "epochs after which to evaluate", unset="none", must=EPOCHS
    )
    eval_at_end: bool | None = field(
        None,
        "evaluate when training ends",
        unset="yes, unless the data is synthetic or --num_batches sets the length",
    )
    stop_at_top_1_accuracy: float | None = field(
        None,
        "end training when an evaluation during it reaches this top-1 accuracy",
        unset="never",
        must=ABOVE_0_UP_TO_1,
    )
    eval_batch_size: int | None = field(
        None,
        "examples per tower and evaluation step",
        unset="--batch_size",
        must=AT_LEAST_1,
    )
    num_eval_batches: int | None = field(
        None,
        "steps of an evaluation",
        unset="the whole split, once",
        must=AT_LEAST_1,
    )
    num_eval_epochs: float | None = field(
        None,
        "passes over the split in an evaluation",
        unset="the whole split, once",
        must=EPOCHS,
    )
    eval_split: str | None = field(
        None,
        "TFDS split, or slice of one, to evaluate on",
        unset="validation, or test where there is none",
    )
    eval_dir: str | None = field(
        None, "folder for the summaries of evaluation", unset="eval in train_dir"
    )
