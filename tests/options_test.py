"""Options that contradict each other are refused."""

from absl.testing import parameterized

from towers.layout.stages import Pipeline
from towers.options import Options


class OptionsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("batch_size", 0, "at least 1 and below"),
        ("batch_size", 4.5, "a whole number"),
        ("accumulate_steps", 0, "at least 1 and below"),
        ("data_format", "NWHC", "one of NHWC, NCHW"),
        ("batch_norm", "synch", "one of micro_batch, "),
    )
    def test_options_that_there_are_not(self, name, value, words):
        sentence = f"^Options.{name} is {value!r}, and must be {words}"
        with self.assertRaisesRegex(ValueError, sentence):
            Options(**{"batch_size": 8, name: value})

    @parameterized.parameters(
        (
            dict(accumulate_steps=2),
            "Options.accumulate_steps is 2, and does not go with a pipeline; .*"
            "batch_size=16 and Pipeline.micro_batches=8",
        ),
        (
            dict(xla_compile=True),
            "Options.xla_compile is True, and does not go with a pipeline",
        ),
    )
    def test_options_that_do_not_go_with_a_pipeline(self, options, sentence):
        with self.assertRaisesRegex(ValueError, f"^{sentence}"):
            Options(batch_size=8, pipeline=Pipeline(2, 4), **options)
