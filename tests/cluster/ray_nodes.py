"""A Ray cluster of several nodes on this machine, in a process of its own: what `ray.cluster_utils` emulates.

    python -m tests.cluster.ray_nodes NODES CPUS CLIENT_PORT

Prints its address. `kill N` on standard input kills node N and all that runs on it; the end of the input ends all.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from typing import Any

import psutil

ADDRESS = "cluster at "


def main() -> None:
    """Start the nodes and do as told."""
    nodes, cpus, client_port = map(int, sys.argv[1:])
    utils: Any = import_module("ray.cluster_utils")
    head = {"num_cpus": cpus, "include_dashboard": False, "ray_client_server_port": client_port}
    cluster = utils.Cluster(initialize_head=True, head_node_args=head)
    others = [cluster.add_node(num_cpus=cpus) for _ in range(nodes - 1)]
    cluster.wait_for_nodes()
    sys.stdout.write(f"{ADDRESS}{cluster.address}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        _kill(cluster, others[int(line.split()[1]) - 1])
        sys.stdout.write("killed\n")
        sys.stdout.flush()
    cluster.shutdown()


def _kill(cluster: Any, node: Any) -> None:
    """As when a machine loses power: no process of the node says goodbye."""
    raylets = [found.process.pid for group in node.all_processes.values() for found in group]
    doomed = [child for pid in raylets for child in psutil.Process(pid).children(recursive=True)]
    for process in doomed:
        process.send_signal(signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)


if __name__ == "__main__":
    main()
