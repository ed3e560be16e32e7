"""Runs with TensorFlow's graph optimizers, `--enable_optimizations`."""

import os
import pathlib

from absl.testing import parameterized

from tests import arrays, digit_runs
from towers.variable_update.modes import VARIABLE_UPDATES

_EXACT = [name for name, update in VARIABLE_UPDATES.items() if update.exact]


class GraphOptimizersTest(digit_runs.Runs):
    @parameterized.parameters(
        *(dict(variable_update=mode, num_gpus=3) for mode in _EXACT),
        dict(variable_update="asynchronous"),
        dict(variable_update="replicated", num_gpus=2, all_reduce_spec="xring"),
        dict(num_gpus=2, num_micro_batches=2),
        dict(num_gpus=4, num_stages=2, num_micro_batches=4),
        dict(num_gpus=2, recompute="block"),
        dict(staged_vars=True, num_gpus=2, variable_update="parameter_server"),
    )
    def test_the_variables_are_the_same(self, **settings):
        """No tower is left out, and the graph is another one."""
        folder = pathlib.Path(self.create_tempdir())
        values, graphs = [], []
        for name, on in (("off", {}), ("on", {"enable_optimizations": True})):
            flags = {"batch_size": 12, "num_batches": 5, **settings, **on}
            self.run_flags(
                **flags,
                num_warmup_batches=0,
                train_dir=os.path.join(self.directory, name),
                partitioned_graph_file_prefix=str(folder / name),
            )
            values.append(self.values(name=name))
            [graph] = [file.read_bytes() for file in folder.glob(f"{name}*CPU_0")]
            graphs.append(graph)
        self.assertLess(len(graphs[1]), len(graphs[0]))
        self.assertEqual(values[0].keys(), values[1].keys())
        for name, wanted in values[0].items():
            arrays.assert_close(values[1][name], wanted, rtol=1e-5, name=name)
