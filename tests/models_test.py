"""`python -m towers.models` lists models."""

import contextlib
import io

from absl.testing import absltest

import models
from towers import models as main_of_models


def _listed(*names):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main_of_models.main(list(names))
    return status, out.getvalue()


class ModelsTest(absltest.TestCase):
    def test_parameters_are_those_of_a_run(self):
        status, text = _listed("mlp", "resnet20", "transformer_lm", "ncf")
        self.assertEqual(status, 0, text)
        rows = [line.split() for line in text.splitlines()]
        counts = {row[0]: int(row[1].replace(",", "")) for row in rows}
        # 784 to 200, 200 and 10 units; the other numbers are those that runs print.
        self.assertEqual(counts["mlp"], 785 * 200 + 201 * 200 + 201 * 10)
        self.assertEqual(counts["resnet20"], 269_722)
        self.assertIn("mlp", models.MODELS)
        self.assertIn("float32 [28, 28, 1]", text)
        self.assertIn("NeuMF with the users and items", text)

    def test_every_model_has_a_summary(self):
        for name in models.MODELS:
            self.assertTrue(main_of_models.summary(name), name)

    def test_a_wrong_name(self):
        status, text = _listed("resnet21")
        self.assertEqual(status, 2)
        self.assertRegex(text, "error: .*resnet21: no such model; did you mean")
        self.assertNotIn("Traceback", text)
