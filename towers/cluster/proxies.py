"""Bypasses the environment's proxies for the messages between tasks."""

from collections.abc import MutableMapping

from towers.layout.cluster_spec import ClusterSpec

# In the order in which gRPC, the protocol of TensorFlow's servers, reads them.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")


def bypass_proxies(spec: ClusterSpec, environment: MutableMapping[str, str]) -> None:
    """Excludes the hosts of a cluster from the proxies of gRPC, and of gRPC alone.

    gRPC uses the proxies that are set for downloads also for hosts of this network,
    which a proxy may not reach.  It reads them when a connection is made.

    Args:
      spec: the cluster.
      environment: of this process, which must be a main's.
    """
    if not any(environment.get(name) for name in _PROXIES):
        return
    exceptions = next((environment[n] for n in _EXCEPTIONS if environment.get(n)), "")
    addresses = [address for job in spec.jobs.values() for address in job]
    hosts = [address.rpartition(":")[0].strip("[]") for address in addresses]
    excepted = dict.fromkeys([*filter(None, exceptions.split(",")), *hosts])
    environment[_EXCEPTIONS[0]] = ",".join(excepted)
