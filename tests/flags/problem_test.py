"""Tests of flags.problem: one problem in the words of a command line and of Python."""

from absl.testing import parameterized

from flags.problem import Problem, SettingError, mention, problems_of, wrong_setting


class ProblemTest(parameterized.TestCase):
    @parameterized.parameters(
        (
            Problem("num_gpus", 3, "is not a multiple of `num_stages=2`", "write 4"),
            "--num_gpus=3: is not a multiple of --num_stages=2; write 4",
            "num_gpus=3: is not a multiple of num_stages=2; write 4",
        ),
        (
            Problem("eval", True, "there is none", "write `nesterov=False` or `xla`"),
            "--eval: there is none; write --nonesterov or --xla",
            "eval=True: there is none; write nesterov=False or xla",
        ),
        (
            Problem("data_dir", "a b", f"is not {mention('eval_dir', 'c d')}"),
            "--data_dir='a b': is not --eval_dir='c d'",
            "data_dir=a b: is not eval_dir='c d'",
        ),
        (
            Problem("gpu_indices", (1, 2), "x"),
            "--gpu_indices=1,2: x",
            "gpu_indices=(1, 2): x",
        ),
        (
            Problem("eval_dir", None, "run `tfds build x`"),
            "--eval_dir: run `tfds build x`",
            "eval_dir: run `tfds build x`",
        ),
        (
            Problem("", None, "`x` is text", "lower `batch_size`"),
            "`x` is text; lower --batch_size",
            "`x` is text; lower batch_size",
        ),
    )
    def test_in_words(self, problem, typed, in_python):
        self.assertEqual(problem.sentence(), typed)
        self.assertEqual(str(problem), in_python)

    def test_all_settings_that_it_names(self):
        problem = Problem("a", 1, "is above `b=2` and `c`", "write `d=3`")
        self.assertEqual(problem.settings, {"a", "b", "c", "d"})
        self.assertEmpty(Problem("", None, "`b` is text").settings)

    def test_where_settings_have_other_names(self):
        problem = Problem("a", 1, "is above `b=2`", "lower `a`, or write `c=3`")
        self.assertEqual(
            problem.sentence({"a": "x", "b": "y"}),
            "--x=1: is above --y=2; lower --x, or write --c=3",
        )

    def test_the_text_that_an_error_passes_on_names_settings_once(self):
        problem = Problem("a", 1, "is above `b=2`", "lower `a`")
        self.assertEqual(problem.text, "`a=1`: is above `b=2`; lower `a`")
        foreign = Problem("", None, "`x` is text", "lower `a`")
        self.assertEqual(foreign.text, "'x' is text; lower `a`")

    def test_a_switch_that_a_program_sets_is_called_by_the_program(self):
        problem = Problem("a", 1, "does not go with `eval=True`", "leave it out")
        wanted = "a=1: does not go with towers.predict; leave it out"
        self.assertEqual(str(problem.of_program("eval", "towers.predict")), wanted)
        problem = Problem("eval", True, "does not go with `a=1`")
        wanted = "towers.predict: does not go with a=1"
        self.assertEqual(str(problem.of_program("eval", "towers.predict")), wanted)

    def test_errors_have_problems(self):
        error = wrong_setting("a", 1, "is wrong", "write 2")
        self.assertEqual(problems_of(error), (Problem("a", 1, "is wrong", "write 2"),))
        self.assertEqual(str(error), "a=1: is wrong; write 2")
        several = SettingError(*error.problems, *problems_of(ValueError("--b: text")))
        self.assertEqual(several.errors, ["--a=1: is wrong; write 2", "--b: text"])
