"""spark-submit deploy/spark_cluster.py --tasks=ps:1,worker:2 -- --model=resnet50 ...

Starts the tasks of a cluster as the tasks of one Spark stage that all run at the same
time (a barrier stage), and prints what they print.  It ends with the status of the run.
The project must be installed on the executors' machines.  SIGTERM or Ctrl-C to this
program saves a checkpoint and ends all tasks.

If an executor dies, the whole stage runs again, on other executors if it must; training
then continues from the last checkpoint.  So `--train_dir` must be on a disk
that the machines share.
"""

import argparse
import sys
import threading
from collections.abc import Iterator

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

from flags.cluster import parse_tasks
from towers.cluster import remote_driver, remote_task


def main() -> int:
    """Runs the cluster; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", default="ps:1,worker:2", type=parse_tasks)
    parser.add_argument("--max_restarts", default=3, type=int, help="of each task")
    parser.add_argument("flags", nargs="*", help="of towers.train, after --")
    given = parser.parse_args()

    context = SparkSession.builder.appName("towers").getOrCreate().sparkContext
    driver = remote_driver.Driver(
        given.tasks,
        given.flags,
        host=context.getConf().get("spark.driver.host", "127.0.0.1"),
        max_restarts=given.max_restarts,
    )
    invitation, count = driver.invitation, len(driver.names)

    def run(ranks: Iterator[int]) -> Iterator[int]:
        """Runs the task of a rank, on an executor."""
        (rank,) = ranks
        gpu = BarrierTaskContext.get().resources().get("gpu")
        gpus = ",".join(gpu.addresses) if gpu else ""
        host = BarrierTaskContext.get().getTaskInfos()[rank].address.split(":")[0]
        yield remote_task.run(invitation, rank, host=host, gpus=gpus)

    failures: list[str] = []

    def submit() -> None:
        """Runs the stage; again if it fails, as Spark does not repeat a last stage."""
        while len(failures) <= given.max_restarts:
            stage = context.parallelize(range(count), count).barrier()
            try:
                stage.mapPartitions(run).collect()
                return
            except Exception as error:  # of the engine
                failures.append(str(error).splitlines()[0])

    def lost() -> str:
        """Why the stage will not run again."""
        over = len(failures) > given.max_restarts
        return f"Spark ended the stage each time: {failures[-1]}" if over else ""

    stage = threading.Thread(target=submit, daemon=True)
    stage.start()
    status = driver.run(lost)
    stage.join(10.0)
    context.stop()
    return status


if __name__ == "__main__":
    sys.exit(main())
