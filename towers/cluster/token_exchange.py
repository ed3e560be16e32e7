"""How one task asks another whether it has the same cluster token.

The question is a random number, with a proof that the asker has the token; the answer
proves that the other task has it.  So the token itself is never sent.  The question
goes through a queue on the task that is asked.  The answer comes back through a map
there, under a key of the question, as several tasks may ask at once.

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
_KEY_DIGITS = 15  # in hex, of a key with 63 bits


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
        """Of the answer, in the map."""
        return int(self.number[:_KEY_DIGITS], 16)


def question(token: bytes, asker: Task) -> Question:
    """A new question of a task; without a token, one without a proof."""
    number = secrets.token_hex(16)
    proof = cluster_token.proof(token, "question", number) if token else ""
    return Question(number, str(asker), proof)


def ask(asked: Question) -> tf.Tensor:
    """Adds what sends a question and waits for the answer, a string scalar.

    Args:
      asked: the question; the current device is of the task that is asked.
    """
    sent = _questions().enqueue(json.dumps(asked))
    with tf.control_dependencies([sent]):
        (answer,) = tf.raw_ops.MapUnstage(
            key=tf.constant(asked.key, tf.int64),
            indices=tf.constant([0]),
            dtypes=[tf.string],
            shared_name=_ANSWERS,
        )
        return answer


def is_right(answer: bytes, token: bytes, asked: Question) -> bool:
    """Whether an answer proves that the task that gave it has the token."""
    return cluster_token.is_proof(answer, token, "answer", asked.number)


class Answers(NamedTuple):
    """What a task needs to answer, in a graph of its own."""

    question: tf.Tensor  # string scalar, for which it waits
    key: tf.Tensor  # int64 scalar, to be fed
    answer: tf.Tensor  # string scalar, to be fed
    give: tf.Operation  # gives the answer that is fed


def create_answers() -> Answers:
    """Adds the resources of the current device's task to the current graph."""
    key = v1.placeholder(tf.int64, [], "token_key")
    answer = v1.placeholder(tf.string, [], "token_answer")
    give = tf.raw_ops.MapStage(
        key=key,
        indices=tf.constant([0]),
        values=[answer],
        dtypes=[tf.string],
        shared_name=_ANSWERS,
    )
    return Answers(_questions().dequeue(), key, answer, give)


def reply(text: bytes, token: bytes, me: Task) -> tuple[int, str, str]:
    """Answers a question.

    Args:
      text: what came through the queue.
      token: of the task that is asked.
      me: that task.

    Returns:
      (key, answer, what is wrong with the asker): the answer is empty unless both have
      the same token.

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
    return key, "", difference(asked.asker, theirs, str(me), ours)


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
