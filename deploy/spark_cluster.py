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

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

import py4j.protocol
from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession

from towers.cluster import engine_flags, remote_driver, remote_task
from towers.cluster.engine_flags import EngineFlags

_Runner = Callable[[Iterator[int]], Iterator[int]]

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


def _runner(invitation: remote_task.Invitation) -> _Runner:
    """A function that runs the task of a rank, on an executor."""

    def run(ranks: Iterator[int]) -> Iterator[int]:
        (rank,) = ranks
        gpu = TaskContext.get().resources().get("gpu")
        gpus = ",".join(gpu.addresses) if gpu else ""
        yield remote_task.run(invitation, rank, gpus=gpus)

    return run


class _Stages:
    """The Spark stages of a run, each in a thread: one of all tasks, or one of each.

    Attributes:
      lost: why Spark will not run a task again that is needed, or "".
    """

    def __init__(self, context: SparkContext, given: EngineFlags, runner: _Runner):
        self._context, self._given, self._runner = context, given, runner
        self.lost = ""
        ranks = range(len(given.names))
        self._threads = [
            threading.Thread(target=self._run, args=[stage], daemon=True)
            for stage in ([[rank] for rank in ranks] if given.elastic else [[*ranks]])
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, ranks: list[int]) -> None:
        """Runs a stage; again if it fails, as Spark does not repeat a last stage."""
        failure = ""
        for _ in range(self._given.max_restarts + 1):
            stage = self._context.parallelize(ranks, len(ranks))
            stage = stage if self._given.elastic else stage.barrier()
            try:
                stage.mapPartitions(self._runner).collect()
                return
            except Exception as error:  # of the engine
                failure = str(error).splitlines()[0]
        if not self._given.needed.isdisjoint(ranks):
            self.lost = f"Spark ended the stage each time: {failure}"

    def join(self) -> None:
        """Waits a while; the stages of workers without an executor do not end."""
        until = time.monotonic() + _END_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


def main() -> int:
    """Runs the cluster; returns its exit status."""
    given = engine_flags.read(engine_flags.parser(__doc__))
    context = SparkSession.builder.appName("towers").getOrCreate().sparkContext
    host = context.getConf().get("spark.driver.host", "127.0.0.1")
    driver = remote_driver.Driver(given, host=host)
    end = _delay_end(context, driver.stop)
    stages = _Stages(context, given, _runner(driver.invitation))
    status = driver.run(lambda: stages.lost)
    stages.join()
    with contextlib.suppress(py4j.protocol.Py4JError, OSError):  # Java may have ended
        end()
        context.stop()
    return status


if __name__ == "__main__":
    sys.exit(main())
