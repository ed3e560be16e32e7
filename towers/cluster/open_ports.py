"""A warning about what a task's server exposes.

TensorFlow's server listens on every interface, unencrypted and without authentication.
"""

import getpass
import ipaddress
from collections.abc import Mapping, Sequence

from towers.cluster import private_network
from towers.layout.cluster_spec import ClusterSpec


def open_ports_warning(spec: ClusterSpec) -> str:
    """The warning, with who can reach the server; empty if nobody else can."""
    all_interfaces = private_network.interfaces().items()
    interfaces = {name: addresses for name, addresses in all_interfaces if addresses}
    if interfaces.keys() <= {"lo"}:
        return ""
    port = spec.address(spec.me).rpartition(":")[2]
    listed = (f"{name} {' '.join(ips)}" for name, ips in interfaces.items())
    return (
        f"{spec.me} listens on port {port} of every interface ({', '.join(listed)}), "
        f"unencrypted and without authentication: {_reach(interfaces)} can run "
        f"anything as {_user()}. Let only the cluster's own machines reach it: "
        "deploy/networkpolicy.yaml does that on Kubernetes, and deploy/tunnel.sh by a "
        "firewall and TLS on other machines (see deploy/README.md)."
    )


def _reach(interfaces: Mapping[str, Sequence[str]]) -> str:
    """Who can reach a port that is open on all interfaces, in words."""
    ips = [
        ipaddress.ip_address(address)
        for name, addresses in interfaces.items()
        for address in addresses
        if name != "lo"
    ]
    public = [str(address) for address in ips if address.is_global]
    if public:
        return f"whoever on the Internet reaches {' or '.join(public)}"
    return "whoever reaches one of these addresses"


def _user() -> str:
    try:
        return f"the user {getpass.getuser()}"
    # As in a container whose user has no name; on Windows it may be ImportError.
    except (ImportError, KeyError, OSError):
        return "this task's user"
