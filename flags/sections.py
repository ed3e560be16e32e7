"""The flags of the model, data, devices, training, evaluation and output.

A new flag is one field of a section, here or in `variables`, `stages`, `cluster`,
`optimizer` or `verify`; `common` names those that `--help` shows.
Names and meanings are those of tf_cnn_benchmarks wherever it has the flag
(`flags.tf_cnn_benchmarks` says what became of the others).  A default of None stands
for a value that the model's recipe, the device or the length of the run decides; the
flag's `unset` says which.  The docstring of a section is its heading in `--help`.
"""

import dataclasses
from typing import ClassVar

from flags.field import (
    ABOVE_0,
    ABOVE_0_UP_TO_1,
    AT_LEAST_0,
    AT_LEAST_1,
    EPOCHS,
    FROM_0_TO_1,
    FROM_0_TO_4096,
    FROM_1_TO_1024,
    UP_TO_3,
    field,
)


@dataclasses.dataclass(frozen=True)
class ModelFlags:
    """What is trained."""

    common: ClassVar[tuple[str, ...]] = ("model", "compute_dtype")

    model: str = field("lenet", "the model", user_defined=True)
    data_format: str | None = field(
        None,
        "layout of image tensors: channels last or channels first",
        unset="what the device is fast at, which on GPUs depends on the dtype",
        choices=("NHWC", "NCHW"),
    )
    compute_dtype: str = field(
        "float32",
        "dtype of activations and of weights as layers read them; variables stay "
        "float32",
    )
    use_fp16: bool = field(False, "compute in float16, as --compute_dtype=float16")
    fp16_loss_scale: float | None = field(
        None,
        "what the loss is multiplied by before it is differentiated in float16",
        unset="128",
        must=ABOVE_0,
    )
    fp16_enable_auto_loss_scale: bool = field(
        False,
        "halve the loss scale and skip the step when a gradient is not finite, and "
        "double it after enough good steps",
    )
    fp16_inc_loss_scale_every_n: int = field(
        1000, "good steps that double the loss scale", must=AT_LEAST_1
    )


@dataclasses.dataclass(frozen=True)
class DataFlags:
    """What it is trained on."""

    common: ClassVar[tuple[str, ...]] = ("data_name", "data_dir", "batch_size")

    data_name: str | None = field(
        None,
        "the data set: its TFDS name, or digits or shakespeare (which ship with the "
        "project), or the path of a plain text file or of a folder with one for each "
        "split, or synthetic; your own by path/to/file.py:function or "
        "package.module:function",
        unset="the model's own",
    )
    data_dir: str | None = field(
        None, "folder of prepared TFDS data sets", unset="TFDS's own folder"
    )
    train_split: str = field("train", "TFDS split, or slice of one, to train on")
    batch_size: int | None = field(
        None,
        "examples per tower and step",
        unset="the recipe's",
        must=AT_LEAST_1,
    )
    distortions: bool | None = field(
        None,
        "random distortions of the training images, or none",
        unset="the model's own preprocessing",
    )
    datasets_prefetch_buffer_size: int = field(
        1, "batches kept ready per tower", must=AT_LEAST_1
    )
    datasets_num_private_threads: int | None = field(
        None,
        "threads of the input pipeline; 0 shares TensorFlow's own",
        unset="automatic",
        must=FROM_0_TO_4096,
    )


@dataclasses.dataclass(frozen=True)
class DeviceFlags:
    """Where the towers run."""

    common: ClassVar[tuple[str, ...]] = ("num_gpus", "device")

    num_gpus: int = field(
        1,
        "GPUs or logical CPU devices, a tower on each; of towers of several stages or "
        "shards, as many as these devices make",
        must=FROM_1_TO_1024,
    )
    gpu_indices: tuple[int, ...] = field(
        (),
        "the GPU of each tower, in order; logical ones are counted through",
        unset="0,1,2,...",
        must=AT_LEAST_0,
    )
    logical_gpus: int = field(
        1,
        "logical GPUs that each GPU is split into: towers share its memory and time, "
        "to test or to study on fewer GPUs than towers",
        must=FROM_1_TO_1024,
    )
    device: str = field(
        "auto",
        "what the towers run on; auto is GPUs if there are any, else the CPU",
        choices=("cpu", "gpu", "auto"),
    )
    num_intra_threads: int = field(
        0,
        "CPU threads within an operation; 0 is one where there are as many CPU towers "
        "as cores, and else one per core",
        must=FROM_0_TO_4096,
    )
    num_inter_threads: int = field(
        0,
        "operations at a time on the CPU; 0 lets TensorFlow decide",
        must=FROM_0_TO_4096,
    )
    allow_growth: bool | None = field(
        None,
        "take GPU memory as it is needed, not all of it at the start",
        unset="TensorFlow decides",
    )
    gpu_memory_frac_for_testing: float = field(
        0.0,
        "fraction of each GPU's memory to take; 0 lets TensorFlow decide",
        must=FROM_0_TO_1,
    )
    tensor_float_32: bool = field(
        True,
        "multiply float32 on GPUs as TensorFloat-32, with 10 bits of each factor's "
        "fraction, as TensorFlow does; off: all 23, several times slower; to be given "
        "to every task of a cluster",
    )
    deterministic_ops: bool = field(
        False,
        "take kernels on GPUs that give the same bits in every run; slower, and some "
        "operations have none; to be given to every task of a cluster",
    )
    batchnorm_persistent: bool = field(
        True,
        "let cuDNN keep a batch on the chip while it normalises it, far faster in 16 "
        "bits; off: for activations so large that this overflows",
    )
    xla: bool = field(False, "let XLA compile what it can of the graph")
    xla_compile: bool = field(
        False, "compile each tower as a whole with XLA; what it cannot is an error"
    )


@dataclasses.dataclass(frozen=True)
class TrainingFlags:
    """How long, and from which seed."""

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
        "first steps, which train but are not timed",
        unset="10",
        must=AT_LEAST_0,
    )
    steps_per_loop: int = field(
        1,
        "most steps that run inside the graph per session call; fewer, where so many "
        "take more than 3 seconds",
        must=AT_LEAST_1,
    )
    tf_random_seed: int = field(
        1234,
        "seed of the initial values, of shuffling, augmentation and dropout",
        must=AT_LEAST_0,
    )


@dataclasses.dataclass(frozen=True)
class EvaluationFlags:
    """When and on how much the accuracy is measured."""

    common: ClassVar[tuple[str, ...]] = ("eval", "eval_during_training_every_n_epochs")

    eval: bool = field(False, "evaluate the checkpoints of train_dir, train nothing")
    eval_interval_secs: int = field(
        0,
        "seconds between evaluations with --eval, where 0 evaluates once, or by the "
        "evaluator of a cluster, where it means 5; until the step at which a run with "
        "these --num_batches or --num_epochs ends",
        must=AT_LEAST_0,
    )
    eval_during_training_every_n_steps: int | None = field(
        None,
        "steps between evaluations, those of the warm-up counted",
        unset="never",
        must=AT_LEAST_1,
    )
    eval_during_training_every_n_epochs: float | None = field(
        None, "epochs between evaluations", unset="never", must=EPOCHS
    )
    eval_during_training_at_specified_steps: tuple[int, ...] = field(
        (),
        "global steps, those of the warm-up counted, after which to evaluate",
        unset="none",
        must=AT_LEAST_1,
    )
    eval_during_training_at_specified_epochs: tuple[float, ...] = field(
        (), "epochs after which to evaluate", unset="none", must=EPOCHS
    )
    eval_at_end: bool | None = field(
        None,
        "evaluate when training ends",
        unset="if the data is real and the length is in epochs or the recipe's",
    )
    stop_at_top_1_accuracy: float | None = field(
        None,
        "end training once an evaluation during it reaches this top-1 accuracy",
        unset="never",
        must=ABOVE_0_UP_TO_1,
    )
    eval_batch_size: int | None = field(
        None,
        "examples per tower and evaluation step",
        unset="batch_size",
        must=AT_LEAST_1,
    )
    num_eval_batches: int | None = field(
        None,
        "steps per evaluation",
        unset="the whole split, once",
        must=AT_LEAST_1,
    )
    num_eval_epochs: float | None = field(
        None,
        "passes over the split per evaluation",
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


@dataclasses.dataclass(frozen=True)
class OutputFlags:
    """What is printed, saved and logged."""

    common: ClassVar[tuple[str, ...]] = ("train_dir", "save_model_steps", "check_flags")

    check_flags: bool = field(
        False,
        "say whether this command line is legal or why not, and train nothing; a data "
        "set that is not there is prepared",
    )
    display_every: int = field(
        10,
        "steps between step lines, for which a progress bar stands on a terminal",
        must=AT_LEAST_1,
    )
    print_training_accuracy: bool = field(
        False, "top-1 and top-5 accuracy of the batch in the step line or the bar"
    )
    loss_type_to_report: str = field(
        "total_loss",
        "the loss in the step line and metric.log, with or without weight decay; "
        "summaries have both",
        choices=("total_loss", "base_loss"),
    )
    train_dir: str | None = field(
        None,
        "folder for checkpoints and summaries, of one run at a time",
        unset="nothing is saved",
    )
    save_model_secs: int = field(
        0, "seconds between checkpoints; 0 saves only at the end", must=AT_LEAST_0
    )
    save_model_steps: int | None = field(
        None,
        "steps between checkpoints, those of the warm-up counted",
        unset="only at the end",
        must=AT_LEAST_1,
    )
    save_retry_secs: float | None = field(
        None,
        "seconds for which a checkpoint that cannot be written is tried again, while "
        "training goes on, before the run ends",
        unset="to its end",
        must=AT_LEAST_0,
    )
    max_ckpts_to_keep: int = field(
        5, "newest checkpoints to keep; 0 keeps all", must=AT_LEAST_0
    )
    summary_verbosity: int = field(
        0,
        "0 writes no summaries, 1 scalars and what the model makes by "
        "tf.compat.v1.summary, 2 also a histogram of all gradients, 3 also "
        "images and a histogram of each gradient and variable",
        must=UP_TO_3,
    )
    save_summaries_steps: int = field(
        0, "steps between summaries; 0 writes none", must=AT_LEAST_0
    )
    trace_file: str | None = field(
        None, "file for a Chrome trace of one step", unset="none"
    )
    graph_file: str | None = field(
        None,
        "file for the graph; text if its name ends in txt, and if in svg a picture of "
        "what lies on each device and what crosses between them in a step",
        unset="none",
    )
    benchmark_log_dir: str | None = field(
        None, "folder for the run's description and measurements as JSON", unset="none"
    )
    benchmark_test_id: str | None = field(
        None, "label of the run in benchmark_log_dir", unset="none"
    )
