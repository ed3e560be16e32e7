"""How one task asks another whether it has the same cluster token.

The question is a random number, with a proof that the asker has the token; the answer
proves that the other task has it.  So the token itself is never sent.  The question
goes through a queue on the task that is asked.  The answer is put into a table there,
as several tasks may ask at once.  The asker looks into the table again and again: an
operation that waits for an entry (`MapUnstage`) would hold one of the threads on which
that task runs everything, and as many askers as it has cores would stop it for ever.

This keeps out tasks that were started by mistake or for another run.  It does not keep
out who can reach a port: TensorFlow's servers do what anyone tells them.
"""

import json
import re
import secrets
from typing import NamedTuple

import tensorflow as tf

from towers.layout import cluster_token
from towers.layout.cluster_spec import Task

v1 = tf.compat.v1

_QUESTIONS, _ANSWERS = "towers_token_questions", "towers_token_answers"
_KEY_DIGITS = 15  # in hex, of a key with 63 bits; no table has keys that are text
_NO_PROOF = "none"  # the answer to a task with another token


class Question(NamedTuple):
    """A question.

    Attributes:
      number: random, in hex digits.
      asker: task that asks, as in "chief 0".
      proof: that it has the token; empty if it has none.
    """

    number: str
    asker: str
    proof: str

    @property
    def key(self) -> int:
        """Of the answer, in the table."""
        return int(self.number[:_KEY_DIGITS], 16)


def question(token: bytes, asker: Task) -> Question:
    """A new question of a task; without a token, one without a proof."""
    number = secrets.token_hex(16)
    proof = cluster_token.proof(token, "question", number) if token else ""
    return Question(number, str(asker), proof)


def send(asked: Question) -> tf.Operation:
    """Adds what sends a question; the current device is of the task that is asked."""
    return _questions().enqueue(json.dumps(asked))


def take_answer(asked: Question) -> tf.Tensor:
    """Adds what takes the answer out of the table on the current device's task.

    Returns:
      the answer, a string scalar; empty while there is none.
    """
    table, key = _answers(), tf.constant(asked.key, tf.int64)
    answer = tf.raw_ops.LookupTableFindV2(
        table_handle=table, keys=key, default_value=tf.constant("")
    )
    answered = tf.boolean_mask([key], [tf.not_equal(answer, "")])  # one key, or none
    removed = tf.raw_ops.LookupTableRemoveV2(table_handle=table, keys=answered)
    with tf.control_dependencies([removed]):
        return tf.identity(answer)


def is_right(answer: bytes, token: bytes, asked: Question) -> bool:
    """Whether an answer proves that the task that gave it has the token."""
    return cluster_token.is_proof(answer, token, "answer", asked.number)


class Answers(NamedTuple):
    """What a task needs to answer, in a graph of its own."""

    question: tf.Tensor  # string scalar, for which it waits
    key: tf.Tensor  # int64 scalar, of the question, to be fed
    answer: tf.Tensor  # string scalar, to be fed
    give: tf.Operation  # gives the answer that is fed


def create_answers() -> Answers:
    """Adds the resources of the current device's task to the current graph."""
    key = v1.placeholder(tf.int64, [], "token_key")
    answer = v1.placeholder(tf.string, [], "token_answer")
    give = tf.raw_ops.LookupTableInsertV2(
        table_handle=_answers(), keys=key, values=answer
    )
    return Answers(_questions().dequeue(), key, answer, give)


def reply(text: bytes, token: bytes, me: Task) -> tuple[int, str, str]:
    """Answers a question.

    Args:
      text: what came through the queue.
      token: of the task that is asked.
      me: that task.

    Returns:
      (key, answer, what is wrong with the asker): the answer proves something only if
      both have the same token.

    Raises:
      ValueError: the text is no question.
    """
    try:
        asked = Question(*json.loads(text))
        key = asked.key
        if not re.fullmatch(r"[a-z]{1,20} \d{1,6}", asked.asker):
            raise ValueError("no task's name")
        number, given = asked.number, asked.proof.encode()
        if cluster_token.is_proof(given, token, "question", number):
            return key, cluster_token.proof(token, "answer", number), ""
    except (TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"no question: {error}") from None
    theirs, ours = bool(asked.proof), bool(token)
    return key, _NO_PROOF, difference(asked.asker, theirs, str(me), ours)


def difference(other: str, theirs: bool, me: str, ours: bool) -> str:
    """How the tokens of two tasks differ, in words.

    Args:
      other, theirs: name of the other task, or "it", and whether it has a token.
      me, ours: the same of this task.
    """
    if theirs and ours:
        words = f"{other} has another cluster token than {me}"
    else:
        has, lacks = (other, me) if theirs else (me, other)
        words = f"{lacks} has no cluster token, and {has} has one"
    return f"{words}; give all tasks the same --cluster_token_file"


def _questions() -> tf.queue.FIFOQueue:
    return tf.queue.FIFOQueue(64, [tf.string], shapes=[[]], shared_name=_QUESTIONS)


def _answers() -> tf.Tensor:
    """Handle of the table: key of a question -> answer."""
    return tf.raw_ops.MutableHashTableV2(
        key_dtype=tf.int64, value_dtype=tf.string, shared_name=_ANSWERS
    )
