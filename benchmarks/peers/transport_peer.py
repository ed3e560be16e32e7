"""A task of the cluster in which `benchmarks.mechanisms.transport` measures.

`benchmarks.lib.launch_tasks` starts it as every ps and as the only worker, which prints
its measurements as a line of JSON.  Task 0 of ps listens on two more ports: it sends
bytes over a plain socket and, if grpcio is installed, over gRPC.
"""

import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures

import tensorflow as tf

from benchmarks.lib.options import above_0, natural, parser_for, positives
from benchmarks.mechanisms.transport import BASE, GRPC_PORT, SOCKET_PORT

try:
    import grpc
except ImportError:
    grpc = None

v1 = tf.compat.v1

_CHUNK = 2**20  # bytes of a message of the gRPC stream
_METHOD = "/transport/Get"


def rate(fetch: Callable[[], object], size: int, seconds: float) -> float:
    """GB/s of a call, repeated for about so many seconds.

    Args:
      fetch: the call.
      size: bytes that it fetches.
      seconds: how long to repeat it.
    """
    fetch()
    calls, begun = 0, time.perf_counter()
    while (passed := time.perf_counter() - begun) < seconds:
        fetch()
        calls += 1
    return calls * size / passed / 1e9


# (name, number of bytes, a function that fetches them to the worker)
Way = tuple[str, int, Callable[[], object]]


def from_ps(
    target: str, config: v1.ConfigProto, sizes: Sequence[int], counts: Sequence[int]
) -> Iterator[Way]:
    """Ways to fetch tensors that lie in equal parts on so many ps tasks."""
    with tf.Graph().as_default() as graph:
        fetches, initializers = [], []
        for size in sizes:
            for count in counts:
                parts = []
                for index in range(count):
                    with tf.device(f"/job:ps/task:{index}/device:CPU:0"):
                        variable = v1.get_variable(
                            f"v_{size}_{count}_{index}",
                            initializer=tf.ones([size // count // 4]),
                            use_resource=True,
                        )
                        value = variable.read_value()
                    initializers.append(variable.initializer)
                    with tf.device("/job:worker/task:0/device:CPU:0"):
                        parts.append(tf.identity(value).op)
                fetches.append((f"{count} ps", size, tf.group(*parts)))
        session = v1.Session(target, graph=graph, config=config)
        session.run(initializers)
    for way, size, op in fetches:
        yield way, size, session.make_callable(op)


def from_socket(sizes: Sequence[int]) -> Iterator[Way]:
    """The same over a plain TCP connection: asks for so many bytes and reads them."""
    connection = _connect(SOCKET_PORT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    memory = memoryview(bytearray(max(sizes)))

    def fetch(size: int) -> None:
        connection.sendall(struct.pack("!Q", size))
        done = 0
        while done < size:
            done += connection.recv_into(memory[done:size])

    for size in sizes:
        yield BASE, size, lambda size=size: fetch(size)


def from_grpc(sizes: Sequence[int]) -> Iterator[Way]:
    """The same over a gRPC stream of messages of at most 1 MiB."""
    channel = grpc.insecure_channel(f"127.0.0.1:{GRPC_PORT}")
    grpc.channel_ready_future(channel).result(60)
    stream = channel.unary_stream(_METHOD)

    def fetch(size: int) -> None:
        received = sum(len(message) for message in stream(struct.pack("!Q", size)))
        assert received == size, (received, size)

    for size in sizes:
        yield "grpc", size, lambda size=size: fetch(size)


def _connect(port: int) -> socket.socket:
    """A connection to ps 0; tried until it listens."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.1)


def serve_socket(largest: int) -> None:
    """Answers one connection, as `from_socket` asks, with so many bytes at most."""
    memory = memoryview(bytearray(largest))
    with socket.create_server(("127.0.0.1", SOCKET_PORT)) as server:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            while request := connection.recv(8, socket.MSG_WAITALL):
                connection.sendall(memory[: struct.unpack("!Q", request)[0]])


def serve_grpc() -> None:
    """Answers as `from_grpc` asks, for ever."""
    memory = bytes(_CHUNK)

    def get(request: bytes, context) -> Iterator[bytes]:
        del context
        (size,) = struct.unpack("!Q", request)
        for begin in range(0, size, _CHUNK):
            yield memory if size - begin >= _CHUNK else memory[: size - begin]

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            """The handler of the only method."""
            matches = details.method == _METHOD
            return grpc.unary_stream_rpc_method_handler(get) if matches else None

    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=(Handler(),))
    server.add_insecure_port(f"127.0.0.1:{GRPC_PORT}")
    server.start()
    server.wait_for_termination()


def main(argv: Sequence[str] | None = None) -> None:
    """Serves for ever, or measures and prints."""
    parser = parser_for("peers.transport_peer", __doc__)
    parser.add_argument("--job", choices=["ps", "worker"], required=True)
    parser.add_argument("--index", type=natural, required=True)
    parser.add_argument("--ps", required=True, help="addresses")
    parser.add_argument("--worker", required=True, help="address")
    parser.add_argument("--seconds", type=above_0, default=0.2)
    parser.add_argument("--sizes", type=positives, required=True)
    parser.add_argument("--counts", type=positives, required=True)
    parser.add_argument("--channels", type=natural, default=0)
    parser.add_argument("--inter_op_threads", type=natural, default=0)
    options = parser.parse_args(argv)
    config = v1.ConfigProto(inter_op_parallelism_threads=options.inter_op_threads)
    config.rpc_options.num_channels_per_target = options.channels
    hosts = {"ps": options.ps.split(","), "worker": options.worker.split(",")}
    server = tf.distribute.Server(
        hosts, job_name=options.job, task_index=options.index, config=config
    )
    if options.job == "ps":
        if options.index == 0:
            largest = (max(options.sizes),)
            threading.Thread(target=serve_socket, args=largest, daemon=True).start()
            if grpc is not None:
                threading.Thread(target=serve_grpc, daemon=True).start()
        server.join()
    sizes = options.sizes
    ways = [*from_socket(sizes), *from_ps(server.target, config, sizes, options.counts)]
    if grpc is None:
        print("grpc is left out: pip install grpcio", file=sys.stderr)
    else:
        ways += from_grpc(sizes)
    ways.sort(key=lambda row: row[1])  # what is compared is measured side by side
    results = [
        {
            "way": way,
            "bytes": size,
            "gigabytes_per_second": rate(fetch, size, options.seconds),
        }
        for way, size, fetch in ways
    ]
    print(json.dumps(results), flush=True)
    os._exit(0)  # a server cannot be stopped


if __name__ == "__main__":
    main()
