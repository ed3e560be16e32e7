"""Writes the graph of each device, as TensorFlow cuts and optimizes it."""

import os

import tensorflow as tf

from towers.session.trace import TraceStep

v1 = tf.compat.v1


class WriteDeviceGraphs(TraceStep):
    """Writes the graph of each device, as it is in one global step.

    `a/graph.txt` becomes `a/graph_job_worker_replica_0_task_0_device_CPU_1.txt`, as in
    tf_cnn_benchmarks.  It is text if the path ends in txt, else binary.  The arguments
    are those of `TraceStep`.
    """

    options = v1.RunOptions(output_partition_graphs=True)

    def write(self, metadata: v1.RunMetadata, step: int) -> None:
        """Writes the files."""
        del step
        folder, name = os.path.split(self.path)
        base, extension = os.path.splitext(name)
        for graph_def in metadata.partition_graphs:
            device = graph_def.node[0].device.replace("/", "_").replace(":", "_")
            path = os.path.join(folder, f"{base}{device}{extension}")
            text = str(graph_def) if name.endswith("txt") else None
            content = text or graph_def.SerializeToString()
            self.side.write("graphs of devices", path, content)
