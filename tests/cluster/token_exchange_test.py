"""Questions about tokens and their answers; `server_test` sends them."""

import json

import tensorflow as tf
from absl.testing import parameterized

from towers.cluster import token_exchange
from towers.layout.cluster_spec import Task

_CHIEF, _WORKER = Task("chief", 0), Task("worker", 1)
_TOKEN, _OTHER = b"the token of the cluster", b"that of another cluster"


def _asked(asker: bytes, asked: bytes) -> tuple[bool, str, str]:
    """Whether the answer is right, what the worker says, and all that was sent."""
    question = token_exchange.question(asker, _CHIEF)
    text = json.dumps(question)
    key, answer, complaint = token_exchange.reply(text.encode(), asked, _WORKER)
    assert key == question.key
    right = token_exchange.is_right(answer.encode(), asker, question)
    return right, complaint, text + answer


class TokenExchangeTest(parameterized.TestCase):
    def test_two_tasks_with_the_same_token(self):
        right, complaint, sent = _asked(_TOKEN, _TOKEN)
        self.assertTrue(right)
        self.assertEmpty(complaint)
        self.assertNotIn(_TOKEN.decode(), sent)

    @parameterized.parameters(
        (_OTHER, _TOKEN, "chief 0 has another cluster token than worker 1"),
        (b"", _TOKEN, "chief 0 has no cluster token, and worker 1 has one"),
        (_TOKEN, b"", "worker 1 has no cluster token, and chief 0 has one"),
    )
    def test_tasks_whose_tokens_differ(self, asker, asked, sentence):
        right, complaint, _ = _asked(asker, asked)
        self.assertFalse(right)
        remedy = "give all tasks the same --cluster_token_file"
        self.assertEqual(complaint, f"{sentence}; {remedy}")

    def test_an_answer_is_to_one_question(self):
        first, second = (token_exchange.question(_TOKEN, _CHIEF) for _ in range(2))
        text = json.dumps(first).encode()
        answer = token_exchange.reply(text, _TOKEN, _WORKER)[1].encode()
        self.assertTrue(token_exchange.is_right(answer, _TOKEN, first))
        self.assertFalse(token_exchange.is_right(answer, _TOKEN, second))
        sent_back = first.proof.encode()
        self.assertFalse(token_exchange.is_right(sent_back, _TOKEN, first))

    def test_a_look_for_an_answer_waits_for_nobody(self):
        """It would hold a thread on which the asked task runs everything."""
        first, second = (token_exchange.question(_TOKEN, _CHIEF) for _ in range(2))
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            answers = token_exchange.create_answers()
            looks = [token_exchange.take_answer(asked) for asked in (first, second)]
            session.run(token_exchange.send(first))
            self.assertEqual(session.run(looks), [b"", b""])
            asked = token_exchange.Question(*json.loads(session.run(answers.question)))
            self.assertEqual(asked, first)
            given = {answers.key: first.key, answers.answer: "this"}
            session.run(answers.give, given)
            self.assertEqual(session.run(looks), [b"this", b""])
            self.assertEqual(session.run(looks), [b"", b""])  # nothing is left there

    @parameterized.parameters(
        *("", "1", "[]", '["1", "chief 0"]', '["x", "chief 0", ""]', "[" * 10_000),
        *('["12", "chief\\n0", ""]', '["12", "chief 0", 3]', '[12, "chief 0", ""]'),
    )
    def test_what_is_no_question(self, text):
        with self.assertRaisesRegex(ValueError, "^no question: "):
            token_exchange.reply(text.encode(), _TOKEN, _WORKER)
