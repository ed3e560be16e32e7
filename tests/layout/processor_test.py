"""The name of a processor, and the dtypes in which it is slow."""

import os
from unittest import mock

from absl.testing import parameterized

from towers.layout import processor

_CORE = "processor\t: {}\nmodel name\t: A CPU: fast\nflags\t\t: {}\n\n"


class ProcessorTest(parameterized.TestCase):
    def test_cores(self):
        with mock.patch.object(os, "sched_getaffinity", return_value={3, 5}):
            self.assertEqual(processor.cores(), 2)
        with mock.patch.object(os, "cpu_count", return_value=7):
            with mock.patch.object(os, "sched_getaffinity"):
                del os.sched_getaffinity  # as on macOS
                self.assertEqual(processor.cores(), 7)
                os.sched_getaffinity = None  # so that the patch can remove it

    @parameterized.parameters(
        ("fpu avx2", True, True),
        ("fpu avx512f avx512_bf16", False, True),
        ("avx512f avx512_fp16", False, False),
    )
    def test_x86(self, flags, bfloat16, float16):
        self._has(_CORE.format(0, flags) + _CORE.format(1, flags))
        self.assertEqual(processor.name(), "A CPU: fast")
        self.assertEqual(processor.lacks_kernels("bfloat16"), bfloat16)
        self.assertEqual(processor.lacks_kernels("float16"), float16)
        self.assertFalse(processor.lacks_kernels("float32"))

    def test_instructions(self):
        self._has(_CORE.format(0, "fpu avx512f avx512_bf16"))
        self.assertTrue(processor.has("avx512f"))
        self.assertFalse(processor.has("avx512"))
        self._has("processor\t: 0\nFeatures\t: fp asimd\n")
        self.assertFalse(processor.has("fp"))

    def test_another(self):
        self._has("processor\t: 0\nFeatures\t: fp asimd\n")
        self.assertFalse(processor.lacks_kernels("bfloat16"))

    def test_another_system(self):
        self.enter_context(mock.patch.object(processor, "_FACTS", os.devnull + "/no"))
        self.assertFalse(processor.lacks_kernels("bfloat16"))
        self.assertIsInstance(processor.name(), str)

    def _has(self, facts):
        path = self.create_tempfile(content=facts).full_path
        self.enter_context(mock.patch.object(processor, "_FACTS", path))
