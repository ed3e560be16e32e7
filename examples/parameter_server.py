"""A parameter server and a worker as two processes of this machine.

    python examples/parameter_server.py

Each process runs the same command and is told which task it is, as on a cluster. The
worker is worker 0, so it also builds the graph, runs the session and prints.
TensorFlow's servers listen on every interface: run this where nobody else can reach
the ports.
"""

import socket
import subprocess
import sys


def free_port() -> int:
    """A port on which nothing listens just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def task(job: str, cluster: list[str]) -> list[str]:
    """The command of a task."""
    flags = "--model=lenet --num_gpus=2 --device=cpu --batch_size=16 --num_batches=40"
    return [
        *(sys.executable, "-m", "towers.train", *flags.split(), *cluster),
        *(f"--job_name={job}", "--task_index=0"),
    ]


def main() -> int:
    """Starts both tasks and waits for their end; returns the worker's exit status."""
    cluster = [
        f"--ps_hosts=127.0.0.1:{free_port()}",
        f"--worker_hosts=127.0.0.1:{free_port()}",
    ]
    ps = subprocess.Popen(task("ps", cluster))
    try:
        status = subprocess.run(task("worker", cluster)).returncode
        ps.wait(timeout=60)  # the worker tells it to leave
    finally:
        ps.kill()
    return status


if __name__ == "__main__":
    sys.exit(main())
