"""The flags of stages."""

from absl.testing import parameterized

from flags import stages


class StagedTest(parameterized.TestCase):
    def test_a_tower_is_whole_unless_something_is_said(self):
        self.assertFalse(stages.StagesFlags().pipelined)
        self.assertFalse(stages.StagesFlags(schedule="gpipe").pipelined)

    @parameterized.parameters(
        dict(num_stages=2), dict(num_micro_batches=4), dict(recompute="stage")
    )
    def test_what_makes_a_pipeline(self, **settings):
        self.assertTrue(stages.StagesFlags(**settings).pipelined)
