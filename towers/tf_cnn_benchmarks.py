"""The main of tf_cnn_benchmarks' command line: translates it, and trains.

python -m towers.tf_cnn_benchmarks --model=resnet50 --num_gpus=8 --batch_size=64

The flags mean what they mean in tf_cnn_benchmarks, with its defaults.  `--print_flags`
prints the equivalent command line of `towers.train`, and trains nothing.
"""

import os
import runpy
import sys
from collections.abc import Sequence

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import tensorflow as tf

import models
from flags import config, parse, tf_cnn_flags, tf_cnn_translation
from towers.errors import collected


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the command line asks for; returns an exit status, or exits."""
    try:
        settings = _parsed(sys.argv if argv is None else argv)
        translation = tf_cnn_translation.translate(
            settings,
            models=models.MODELS,
            gpus=bool(tf.config.list_physical_devices("GPU")),
        )
        for note in translation.notes:
            collected.say(f"note: {note}")
        if settings["print_flags"]:
            print(translation.line, flush=True)
            return 0
        print("TensorFlow:  " + ".".join(tf.__version__.split(".")[:2]), flush=True)
    except ValueError as error:
        return collected.refuse_settings(error)
    except OSError as error:
        return collected.not_printed(error)
    os.environ.update(translation.environment)
    sys.argv = ["towers.train", *translation.arguments]
    runpy.run_module("towers.train", run_name="__main__", alter_sys=True)
    raise AssertionError("a main exits")


def _parsed(argv: Sequence[str]) -> dict[str, object]:
    """Every flag by name; one without a value after its `=` is as if not given.

    Raises:
      parse.UsageError: the command line is wrong.
    """
    texts = [n for n, row in tf_cnn_flags.FLAGS.items() if row.default in ("", ())]
    empty = {f"{dashes}{name}=" for name in texts for dashes in ("-", "--")}
    words = [word for word in argv if word not in empty]
    return config.flat(parse.parse(words, {}, config.TfCnnBenchmarksConfig))


if __name__ == "__main__":
    sys.exit(main())
