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

import argparse
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from flags.cluster import parse_tasks
from towers.cluster import remote_driver, remote_task


class Task:
    """An actor that runs one task of the cluster."""

    def run(self, invitation: remote_task.Invitation, rank: int) -> int:
        """Runs the task of a rank; returns its exit status."""
        gpus = ",".join(
            map(str, ray.get_runtime_context().get_accelerator_ids()["GPU"])
        )
        host = ray.util.get_node_ip_address()
        return remote_task.run(invitation, rank, host=host, gpus=gpus)


def main() -> int:
    """Runs the cluster; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", help="of the Ray cluster; unset: the one here")
    parser.add_argument("--tasks", default="ps:1,worker:2", type=parse_tasks)
    parser.add_argument("--cpus_per_task", default=1.0, type=float)
    parser.add_argument("--gpus_per_worker", default=0.0, type=float)
    parser.add_argument("--max_restarts", default=3, type=int, help="of each task")
    parser.add_argument("--max_workers", type=int, help="of an elastic run")
    parser.add_argument("--strategy", default="SPREAD", help="of the placement group")
    parser.add_argument("flags", nargs="*", help="of towers.train, after --")
    given = parser.parse_args()
    if fault := remote_driver.fault(given.flags):
        parser.error(fault)
    if given.max_workers and not remote_driver.is_elastic(given.flags):
        parser.error("--max_workers needs --elastic among the flags of towers.train")

    ray.init(address=given.address or "auto")
    driver = remote_driver.Driver(
        given.tasks,
        given.flags,
        host=ray.util.get_node_ip_address(),
        max_restarts=given.max_restarts,
        max_workers=given.max_workers,
    )
    wanted = [
        {"CPU": given.cpus_per_task}
        | ({"GPU": given.gpus_per_worker} if job == "worker" else {})
        for job, _ in driver.names
    ]
    bundles = [{name: n for name, n in each.items() if n} for each in wanted]
    most = given.max_workers or 0
    at_once = len(bundles) - max(0, most - given.tasks["worker"])
    group = placement_group(bundles[:at_once], strategy=given.strategy)
    runs = []
    for rank, (job, index) in enumerate(driver.names):
        where = PlacementGroupSchedulingStrategy(group, rank)
        actor = ray.remote(Task).options(
            name=f"{job} {index}",
            num_cpus=given.cpus_per_task,
            num_gpus=bundles[rank].get("GPU", 0),
            max_restarts=given.max_restarts,
            max_task_retries=given.max_restarts,
            scheduling_strategy=where if rank < at_once else "DEFAULT",
        )
        runs.append(actor.remote().run.remote(driver.invitation, rank))

    def lost() -> str:
        """Why an actor will not be started again."""
        ended, _ = ray.wait(runs, num_returns=len(runs), timeout=0)
        for run in ended:
            try:
                ray.get(run)
            except ray.exceptions.RayError as error:
                if (rank := runs.index(run)) not in driver.needed:
                    continue
                job, index = driver.names[rank]
                return f"{job} {index} is lost for good: {str(error).splitlines()[0]}"
        return ""

    return driver.run(lost)


if __name__ == "__main__":
    sys.exit(main())
