"""Turns TensorFlow's errors into sentences that say what to do."""

import re
import textwrap
from collections.abc import Iterable

import tensorflow as tf

from flags.problem import Problem
from towers.errors.collected import sentences

_LENGTH = 200  # characters of TensorFlow's own words

# Lines before the one with the reason: the number of errors, and their task.
_NOTHING_YET = re.compile(
    r".*(root error\(s\) found\.|Graph execution error:)|From /job:\S+:|=+"
)

_FROM_TASK = re.compile(r"\bFrom /job:")

# Errors of an operation about its inputs, or about other conditions.
_OF_OPERATIONS = (tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError)
_IN_TOWER = re.compile(
    r"\{\{node ((?:evaluation/)?tower_\d+)/(?!read/)([^}/]+/[^}]+)\}\}"
)
# The passes of stages are functions; errors of their operations do not name the tower.
_IN_PASS = re.compile(r"\{\{node (import(?:_\d+)?)/([^}/]+/[^}]+)\}\}")
_IN_STAGE = re.compile(r"\{\{node ((?:evaluation/)?tower_\d+)/stage_\d+/")

# On CPUs only oneDNN computes channels first, and it lacks some kernels: on most CPUs
# those in float16.
_CHANNELS_LAST = re.compile(r"only supports (?:the )?NHWC")

_WITHOUT_XLA = "write the model without, or leave out `xla_compile`"


def sentence(error: tf.errors.OpError) -> str | None:
    """`operation_error` in a sentence that names flags."""
    problem = operation_error(error)
    return problem.sentence() if problem else None


def operation_error(error: tf.errors.OpError) -> Problem | None:
    """What went wrong and what to do; None if the user cannot fix it.

    Args:
      error: from a session call.
    """
    text = error.message or ""
    placed = re.search(
        r"Cannot assign a device for operation ([\w./-]+):?(.*)", text, re.DOTALL
    )
    if placed:
        name, why = placed.group(1), reason(placed.group(2)).rstrip(".")
        tower, _, inner = name.partition("/")
        where = f"{tower}, block {inner.partition('/')[0]}" if inner else name
        return _problem(
            f"operation {name} ({where}) has no kernel for its device: {why}",
            "write the block with operations that the device has, or `device=cpu`",
        )
    if "Detected unsupported operations when trying to compile" in text:
        return _not_compilable(text)
    if "tf2xla conversion failed" in text:
        return _problem(f"XLA cannot compile the model ({reason(text)})", _WITHOUT_XLA)
    if "Could not find callback with key=pyfunc_" in text:
        calls = "a tf.numpy_function of the model calls a function that"
        if _FROM_TASK.search(text):
            return _problem(
                f"{calls} the task which runs it does not have",
                "on a cluster write it with TensorFlow's own operations",
            )
        return _problem(
            f"{calls} is gone with the graph it was made in",
            "define it at the top of a module",
        )
    if "No space left on device" in text:
        return _problem(f"the disk is full ({reason(text)})", "make room")
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return _problem(f"out of memory ({reason(text)})", "lower `batch_size`")
    if isinstance(error, _OF_OPERATIONS):
        return _model_failed(text)
    if isinstance(error, tf.errors.CancelledError) and (
        in_stage := _IN_STAGE.search(text)
    ):
        return _problem(
            "an operation of a stage failed, and TensorFlow names only one that waited "
            f"for it, of {in_stage.group(1)}",
            "leave out `num_stages` and `num_micro_batches` to see which",
        )
    return None


def _problem(message: str, remedy: str) -> Problem:
    return Problem("", None, message, remedy)


def cause(error: Exception) -> str:
    """The line of an error that gives the reason."""
    words = sentences(error)[0] if isinstance(error, ValueError) else str(error)
    return reason(words or type(error).__name__)


def _model_failed(text: str) -> Problem | None:
    """Names the block whose operation failed; None if no block's did."""
    if "assertion failed:" in text:
        return _problem(f"an assertion of the model does not hold: {reason(text)}", "")
    match = _IN_TOWER.search(text) or _IN_PASS.search(text)
    if not match:
        return None
    tower, operation = match.groups()
    block = operation.removeprefix("gradients/").partition("/")[0]
    places = [] if match.re is _IN_PASS else [tower]
    places += [] if block == "look_up" else [f"block {block}"]
    where, remedy = ", ".join(places), "mend the block, or what it is given"
    if _CHANNELS_LAST.search(text):
        remedy = "write `data_format=NHWC`"
    return _problem(
        f"operation {operation} ({where}) failed: {reason(text).rstrip('.')}", remedy
    )


def _not_compilable(text: str) -> Problem:
    """Names the operation types that XLA lacks, each with its nodes."""
    types: dict[str, set[str]] = {}
    # `Dilation2D (No registered ...){{node block/Dilation2D}}, Other (...)...`
    pattern = (
        r"(\w+) \((?:No registered|[^()]*unsupported)[^()]*\)\s*\{\{node ([^}]*)\}\}"
    )
    for kind, node in re.findall(pattern, text):
        types.setdefault(kind, set()).add(node)
    named = [f"{kind} ({', '.join(sorted(types[kind]))})" for kind in sorted(types)]
    what = ", ".join(named) or reason(text)
    return _problem(f"XLA cannot compile {what}", _WITHOUT_XLA)


def reason(text: str) -> str:
    """The line that gives the reason in the message of an error of a graph.

    TensorFlow puts other lines before it: where the node was made, and how many
    errors were found.
    """
    body = re.split(r"(?m)^Node: .*\n", text)[-1]
    lines = [
        re.sub(r"^\(\d+\) [A-Z_]+: ", "", line.strip()) for line in body.splitlines()
    ]
    reasons = [entry for entry in lines if entry and not _NOTHING_YET.fullmatch(entry)]
    beginning, *rest = textwrap.wrap((reasons or ["no reason given"])[0], _LENGTH)
    return f"{beginning} ..." if rest else beginning


def first_few(names: Iterable[str], most: int = 5) -> str:
    """Names in a sentence: no more than so many, and dots for those left out."""
    names = list(names)
    return ", ".join(names[:most]) + (" ..." if len(names) > most else "")
