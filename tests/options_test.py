"""Flags that several benchmarks share."""

import argparse
import contextlib
import io
import os
import sys

from absl.testing import absltest, parameterized

from benchmarks import cases, options


def _parsed(*arguments: str) -> argparse.Namespace:
    parser = options.parser_for("scaling", __doc__)
    parser.add_argument("--cases", type=options.list_of_cases, default="lenet:4x8")
    parser.add_argument("--rounds", type=options.positive, default=5)
    options.add_places(parser)
    return parser.parse_args(arguments)


class OptionsTest(parameterized.TestCase):
    def test_nothing_said(self):
        found = _parsed()
        self.assertEqual((found.cases, found.rounds), ([cases.Case("lenet", 4, 8)], 5))
        where = options.places_of(found)
        self.assertEqual(where.tf_cnn_benchmarks, "")
        pythons = {where.python, where.torch_python, where.tf_cnn_python}
        self.assertEqual(pythons, {sys.executable})

    def test_interpreters_of_their_own(self):
        found = _parsed("--python=/a", "--tf_cnn_benchmarks=x", "--tf_cnn_python=/b")
        where = options.places_of(found, "/c")
        self.assertEqual(where.tf_cnn_benchmarks, os.path.abspath("x"))
        self.assertEqual(
            (where.python, where.torch_python, where.tf_cnn_python), ("/a", "/c", "/b")
        )

    @parameterized.parameters(
        ("--rounds=0", "0 is not at least 1"),
        ("--cases=lenet", "MODEL:TOWERSxBATCH"),
        ("--cases=lenet:1x2,lenet:1x2", "names a case twice"),
    )
    def test_bad_input_is_a_sentence(self, argument, sentence):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as caught:
            _parsed(argument)
        self.assertEqual(caught.exception.code, 2)
        self.assertIn(sentence, said.getvalue())


if __name__ == "__main__":
    absltest.main()
