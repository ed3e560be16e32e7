"""VGG networks, layer by layer."""

from absl.testing import parameterized

from models import vgg


class VggTest(parameterized.TestCase):
    @parameterized.parameters(11, 16, 19)
    def test_every_layer_is_a_block(self, depth):
        names = [name for name, _ in vgg.vgg(depth).blocks]
        self.assertLen(names, depth)
        self.assertEqual(names[-3:], ["dense6", "dense7", "logits"])
