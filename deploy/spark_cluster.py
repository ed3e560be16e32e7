"""spark-submit deploy/spark_cluster.py --tasks=ps:1,worker:2 -- --model=resnet50 ...

Starts the tasks of a cluster as the tasks of one Spark stage that all run at the same
time (a barrier stage), and prints what they print.  It ends with the status of the run.
The project must be installed on the executors' machines.  SIGTERM or Ctrl-C to this
program, or to spark-submit, saves a checkpoint and ends all tasks.

If an executor dies, the whole stage runs again, on other executors if it must; training
then continues from the last checkpoint.  So `--train_dir` must be on a disk
that the machines share.

    spark-submit --conf spark.dynamicAllocation.enabled=true \\
        deploy/spark_cluster.py --tasks=ps:1,worker:2 --max_workers=8 -- --elastic ...

A barrier stage neither grows nor loses a task.  So each task of an elastic run is a job
of its own: workers join as Spark has executors for them, up to eight here, and one that
is lost does not stop the others.
"""

import argparse
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

import py4j.protocol
from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession

from flags.cluster import parse_tasks
from towers.cluster import remote_driver, remote_task

_END_SECONDS = 10.0  # for the stages to end after the run


# Of a hook that Java runs at its end: before Spark's own (40), which end the executors;
# and how long it may take.
_PRIORITY, _SAVING_SECONDS = 100, 120
_LOOK_SECONDS = 0.5


def _delay_end(context: SparkContext, stop: Callable[[], None]) -> Callable[[], None]:
    """Lets a signal to spark-submit, which is Java, end the run as one to this program.

    Args:
      context: of the run.
      stop: is called, in a thread, when Java is about to end.

    Returns:
      a function to call when the run has ended; Java waits for it.
    """
    jvm = context._jvm
    over = jvm.java.util.concurrent.CountDownLatch(1)
    runnable = jvm.java.lang.Class.forName("java.lang.Runnable")
    hook = jvm.java.beans.EventHandler.create(runnable, over, "await")
    hooks = jvm.org.apache.hadoop.util.ShutdownHookManager.get()
    seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
    hooks.addShutdownHook(hook, _PRIORITY, _SAVING_SECONDS, seconds)

    def watch() -> None:
        with contextlib.suppress(py4j.protocol.Py4JError, OSError):  # Java has ended
            while not hooks.isShutdownInProgress():
                time.sleep(_LOOK_SECONDS)
            time.sleep(_LOOK_SECONDS)  # Ctrl-C is a signal to this program, too
            stop()

    threading.Thread(target=watch, daemon=True).start()
    return over.countDown


def main() -> int:
    """Runs the cluster; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", default="ps:1,worker:2", type=parse_tasks)
    parser.add_argument("--max_restarts", default=3, type=int, help="of each task")
    parser.add_argument("--max_workers", type=int, help="of an elastic run")
    parser.add_argument("flags", nargs="*", help="of towers.train, after --")
    given = parser.parse_args()
    if fault := remote_driver.fault(given.flags):
        parser.error(fault)
    elastic = remote_driver.is_elastic(given.flags)
    if given.max_workers and not elastic:
        parser.error("--max_workers needs --elastic among the flags of towers.train")

    context = SparkSession.builder.appName("towers").getOrCreate().sparkContext
    driver = remote_driver.Driver(
        given.tasks,
        given.flags,
        host=context.getConf().get("spark.driver.host", "127.0.0.1"),
        max_restarts=given.max_restarts,
        max_workers=given.max_workers,
    )
    invitation, count = driver.invitation, len(driver.names)

    def run(ranks: Iterator[int]) -> Iterator[int]:
        """Runs the task of a rank, on an executor."""
        (rank,) = ranks
        gpu = TaskContext.get().resources().get("gpu")
        yield remote_task.run(
            invitation, rank, gpus=",".join(gpu.addresses) if gpu else ""
        )

    lost_for_good: list[str] = []

    def submit(ranks: list[int]) -> None:
        """Runs a stage; again if it fails, as Spark does not repeat a last stage."""
        failure = ""
        for _ in range(given.max_restarts + 1):
            stage = context.parallelize(ranks, len(ranks))
            stage = stage if elastic else stage.barrier()
            try:
                stage.mapPartitions(run).collect()
                return
            except Exception as error:  # of the engine
                failure = str(error).splitlines()[0]
        if not driver.needed.isdisjoint(ranks):
            lost_for_good.append(f"Spark ended the stage each time: {failure}")

    stages = [[rank] for rank in range(count)] if elastic else [[*range(count)]]
    threads = [
        threading.Thread(target=submit, args=[ranks], daemon=True) for ranks in stages
    ]
    end = _delay_end(context, driver.stop)
    for thread in threads:
        thread.start()
    status = driver.run(lambda: "".join(lost_for_good[:1]))
    until = time.monotonic() + _END_SECONDS
    for thread in threads:  # those of workers without an executor do not end
        thread.join(max(0.0, until - time.monotonic()))
    with contextlib.suppress(py4j.protocol.Py4JError, OSError):  # Java may have ended
        end()
        context.stop()
    return status


if __name__ == "__main__":
    sys.exit(main())
