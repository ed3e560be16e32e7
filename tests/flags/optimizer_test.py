"""Tests of flags.optimizer: what its schedules admit."""

from absl.testing import parameterized

from flags import optimizer


class ScheduleTest(parameterized.TestCase):
    @parameterized.parameters(
        ("0.1", (0.1,), ()),
        ("0.3;10;0.2;25;0.1", (0.3, 0.2, 0.1), (10.0, 25.0)),
        ("0;0.5;1e-3", (0.0, 0.001), (0.5,)),
    )
    def test_reads(self, text, rates, epochs):
        self.assertEqual(optimizer.parse_piecewise_rates(text), (rates, epochs))

    @parameterized.parameters(
        ("", "'' is not a number"),
        ("0.1;80", "has 2 parts"),
        ("0.1;x;0.01", "'x' is not a number"),
        ("0.1;80;-1", "learning rate -1 must be at least 0"),
        ("nan", "learning rate nan must be at least 0"),
        ("0.1;0;0.01", "epoch 0 must come after 0"),
        ("0.1;9;0.01;9;0.001", "epoch 9 must come after 9"),
        ("0.1;inf;0.01", "epoch inf must come after 0"),
    )
    def test_refuses(self, text, message):
        with self.assertRaisesRegex(ValueError, message):
            optimizer.parse_piecewise_rates(text)
