"""Three nodes on one machine: network namespaces on a bridge, a tmpfs each.

The test runs inside a namespace of processes, mounts and network of its own
(`enter`), so all that it makes goes away with it, whatever happens.
"""

import os
import subprocess
import sys

# Set where namespaces, mounts or cgroups cannot be made and that is expected.
OPTIONAL = "BALLAST_CLUSTER_OPTIONAL"
_INSIDE = "BALLAST_CLUSTER_INSIDE"
_TMPFS = "96m"
SERVER_PORT = 7070
_PROXY_PORT = 7071


def _sh(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {done.stdout.decode()}")


def skip_or_fail(reason):
    """Ends the process: as skipped if OPTIONAL is set, else with an error."""
    if os.environ.get(OPTIONAL):
        print("SKIPPED:", reason)
        sys.exit(0)
    sys.exit(f"{reason}\nSet {OPTIONAL}=1 (bazel: --test_env={OPTIONAL}=1) if so intended.")


def enter():
    """Goes on in namespaces of its own. Where that cannot be had, ends the process:
    with an error, or as skipped if OPTIONAL is set."""
    if os.environ.get(_INSIDE):
        return
    # Tests have a short PATH.
    os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    probe = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    script = "ip link add name probe0 type bridge && mkdir -p /run/netns && nft list tables"
    try:
        done = subprocess.run(
            [*probe, "sh", "-c", script],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        why = done.stdout.decode().strip() if done.returncode else ""
    except OSError as error:
        why = str(error)
    if why:
        skip_or_fail(f"no network namespaces with a bridge and nft here (as root?): {why}")
    os.environ[_INSIDE] = "1"
    os.execvp(probe[0], [*probe, sys.executable, *sys.orig_argv[1:]])


class Node:
    """One machine. `folder` is its tmpfs."""

    def __init__(self, number, folder):
        self.number = number
        self.name = f"n{number}"
        self.ip = f"10.77.0.{number + 1}"
        self.folder = f"{folder}/{self.name}"
        os.mkdir(self.folder)
        _sh("mount", "-t", "tmpfs", "-o", f"size={_TMPFS}", "none", self.folder)
        _sh("ip", "netns", "add", self.name)
        _sh("ip", "link", "add", "name", f"v{number}", "type", "veth", "peer", "name", "eth0",
            "netns", self.name)  # fmt: skip
        _sh("ip", "link", "set", f"v{number}", "master", "bridge0", "up")
        self._ip("link", "set", "lo", "up")
        self._ip("address", "add", f"{self.ip}/24", "dev", "eth0")
        self._ip("link", "set", "eth0", "up")
        self.nft("add table inet faults")
        self.nft("add chain inet faults input { type filter hook input priority 0; }")
        # What other nodes send to the server goes through a proxy.
        self.nft("add table ip proxied")
        self.nft("add chain ip proxied input { type nat hook prerouting priority -100; }")
        self.nft(
            f"add rule ip proxied input iifname eth0 tcp dport {SERVER_PORT} "
            f"redirect to :{_PROXY_PORT}"
        )
        self._proxy = self.popen(
            [sys.executable, "-m", "tests.cluster.proxy", _PROXY_PORT, self.ip, SERVER_PORT],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._answer("ready")

    def _ip(self, *arguments):
        _sh("ip", "-n", self.name, *arguments)

    def nft(self, command):
        _sh("nsenter", f"--net=/run/netns/{self.name}", "nft", command)

    def popen(self, command, **options):
        """Starts a process on this node; its pid is the command's own."""
        return subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{self.name}", *map(str, command)], **options
        )

    def _answer(self, wanted):
        line = self._proxy.stdout.readline().decode()
        if not line.startswith(wanted):
            raise AssertionError(f"the proxy of {self.name} says {line!r}, not {wanted}")

    def proxy(self, order):
        """Does this to what other nodes send to the server, and to its answers
        (proxy.py)."""
        self._proxy.stdin.write(order.encode() + b"\n")
        self._proxy.stdin.flush()
        self._answer(order)

    def ignore(self, other):
        """Drops whatever comes from `other`: one direction of a partition."""
        self.nft(f"add rule inet faults input ip saddr {other.ip} drop")

    def lose(self, percent):
        """Drops this share of all packets that come from other nodes."""
        self.nft(f"add rule inet faults input iifname eth0 numgen random mod 100 < {percent} drop")

    def hear_all(self):
        self.nft("flush chain inet faults input")

    def fill(self):
        """Fills the tmpfs to its last byte."""
        with open(f"{self.folder}/full", "wb", buffering=0) as file:
            piece = bytes(1 << 16)
            try:
                while file.write(piece) == len(piece):
                    pass
            except OSError:
                pass

    def empty(self):
        if os.path.exists(f"{self.folder}/full"):
            os.unlink(f"{self.folder}/full")


def make(folder, count=3):
    """The nodes, each reachable from all others."""
    os.makedirs("/run/netns", exist_ok=True)
    _sh("mount", "-t", "tmpfs", "none", "/run/netns")
    _sh("ip", "link", "set", "lo", "up")
    _sh("ip", "link", "add", "name", "bridge0", "type", "bridge")
    _sh("ip", "link", "set", "bridge0", "up")
    return [Node(number, folder) for number in range(count)]
