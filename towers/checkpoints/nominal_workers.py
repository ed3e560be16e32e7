"""The workers for which a learning rate is given that follows their number.

They are those that the training began with.  Checkpoints have their number, so that it
stays when a command names other workers later.
"""

from flags.config import Config
from towers.checkpoints import checkpoint, constants
from towers.layout.cluster_spec import ClusterSpec


def find_nominal(
    config: Config, cluster: ClusterSpec | None, examples: int
) -> tuple[int, int]:
    """The number, and the examples of a step of these workers.

    Args:
      config: the settings.
      cluster: with the workers that the command names; None for this process alone.
      examples: of a round of accumulation of these.

    Returns:
      (`Options.nominal_workers`, 0 if the learning rate does not follow the workers;
      the examples).
    """
    examples *= config.variables.accumulate_steps
    if cluster is None or config.cluster.elasticity != "scale_lr":
        return 0, examples
    directory, here = config.output.train_dir, len(cluster.workers)
    path = directory and checkpoint.latest(directory)
    workers = (path and constants.nominal_workers(path)) or here
    return workers, examples * workers // here
