"""python deploy/ray_cluster.py --tasks=ps:1,worker:2 -- --model=resnet50 ...

Starts the tasks of a cluster as Ray actors in a placement group, and prints what they
print.  It ends with the status of the run.  The project must be installed on the
machines of the Ray cluster.  SIGTERM or Ctrl-C saves a checkpoint and ends all tasks.

If an actor dies, Ray starts it again, on another machine if its own is lost; training
then continues from the last checkpoint.  So `--train_dir` must be on a disk that the
machines share.

    python deploy/ray_cluster.py --tasks=ps:1,worker:2 --max_workers=8 -- --elastic ...

The run begins with two workers.  Ray is asked for each of the other six alone, so they
join as there is room for them, as when its autoscaler adds machines.  A worker that is
lost does not stop the others.
"""

import sys
from typing import Any

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from towers.cluster import engine_flags, remote_driver, remote_task
from towers.cluster.engine_flags import EngineFlags


class Task:
    """An actor that runs one task of the cluster."""

    def run(self, invitation: remote_task.Invitation, rank: int) -> int:
        """Runs the task of a rank; returns its exit status."""
        gpus = ",".join(
            map(str, ray.get_runtime_context().get_accelerator_ids()["GPU"])
        )
        host = ray.util.get_node_ip_address()
        return remote_task.run(invitation, rank, host=host, gpus=gpus)


def _start(given: EngineFlags, invitation: remote_task.Invitation) -> list[Any]:
    """Starts an actor for each task; returns their runs, by rank."""
    bundles = []
    for job, _ in given.names:
        wanted = {"CPU": given.cpus_per_task}
        if job == "worker":
            wanted["GPU"] = given.gpus_per_worker
        bundles.append({name: n for name, n in wanted.items() if n})
    group = placement_group(bundles[: given.at_once], strategy=given.strategy)
    runs = []
    for rank, (job, index) in enumerate(given.names):
        where = PlacementGroupSchedulingStrategy(group, rank)
        actor = ray.remote(Task).options(
            name=f"{job} {index}",
            num_cpus=given.cpus_per_task,
            num_gpus=bundles[rank].get("GPU", 0),
            max_restarts=given.max_restarts,
            max_task_retries=given.max_restarts,
            scheduling_strategy=where if rank < given.at_once else "DEFAULT",
        )
        runs.append(actor.remote().run.remote(invitation, rank))
    return runs


def _lost(given: EngineFlags, runs: list[Any]) -> str:
    """Why an actor that is needed will not be started again, or ""."""
    ended, _ = ray.wait(runs, num_returns=len(runs), timeout=0)
    for run in ended:
        try:
            ray.get(run)
        except ray.exceptions.RayError as error:
            if (rank := runs.index(run)) in given.needed:
                job, index = given.names[rank]
                return f"{job} {index} is lost for good: {str(error).splitlines()[0]}"
    return ""


def main() -> int:
    """Runs the cluster; returns its exit status."""
    parser = engine_flags.parser(__doc__)
    parser.add_argument("--address", help="of the Ray cluster; unset: the one here")
    parser.add_argument("--cpus_per_task", default=1.0, type=float)
    parser.add_argument("--gpus_per_worker", default=0.0, type=float)
    parser.add_argument("--strategy", default="SPREAD", help="of the placement group")
    given = engine_flags.read(parser)
    ray.init(address=given.address or "auto")
    driver = remote_driver.Driver(given, host=ray.util.get_node_ip_address())
    runs = _start(given, driver.invitation)
    return driver.run(lambda: _lost(given, runs))


if __name__ == "__main__":
    sys.exit(main())
