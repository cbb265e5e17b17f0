#!/usr/bin/env python3
"""Two loader servers as on two nodes, with the ranks divided between them and exchanging
over NCCL's network transport, images and audio; in some runs a server is killed in the middle.

    several_nodes.py --bin BIN --out FILE [--gpus N] [--backend cuda|host]

Each server and its ranks have a network namespace of their own, joined by a pair of virtual
interfaces; without the rights or `ip` for that, both are on 127.0.0.1, and the result says
so. P2P and shared memory are off in NCCL (NCCL_P2P_DISABLE, NCCL_SHM_DISABLE), so what
crosses between ranks is what the second interface has counted. Every run must give each
rank the same batches. The last line is `PASSED` or says what differs.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

CONFIG = """
sources: [{{name: docs, format: webdataset, path: "{preset}/*.tar"}}]
model: {{profile: {profile}, tokenizer: bytes, chat_template: chatml, max_pixels: 401408}}
batch: {{global: {batch}, micro: {batch}, max_tokens: 16384}}
topology:
  modules: {{{encoder}: {{dp: {gpus}}}, language: {{dp: {gpus}}}}}
  servers:
    - {{address: "{a}", ranks: {{{encoder}: "0-{last_a}", language: "0-{last_a}"}}}}
    - {{address: "{b}", ranks: {{{encoder}: "{first_b}-{last}", language: "{first_b}-{last}"}}}}
balance: {{delivery: {delivery}, cost: {{{encoder}: {{linear: 1}}, language: {{linear: 0.1}}}}}}
security: {{insecure: true}}
serve: {{listen: ["{listen}"], memory: 512MiB}}
"""
# What make-corpus draws: the encoder beside language, and the model.
PRESETS = {"receipts": ("vision", "qwen2_5_vl"), "speech": ("audio", "qwen2_5_omni")}
NODES = ("ballast-a", "ballast-b")
ADDRESS = ("10.88.0.1", "10.88.0.2")
PORTS = (7171, 7172)


def sh(*command):
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise RuntimeError("%s: %s" % (" ".join(command), done.stderr.decode().strip()))


class Network:
    """Two namespaces with one wire, or neither."""

    def __init__(self):
        self.why_not = None
        self.close()  # those of a run that was killed
        try:
            for name in NODES:
                sh("ip", "netns", "add", name)
            sh("ip", "link", "add", "eth7", "netns", NODES[0], "type", "veth",
               "peer", "name", "eth7", "netns", NODES[1])  # fmt: skip
            for name, address in zip(NODES, ADDRESS):
                for line in ("addr add %s/24 dev eth7" % address, "link set eth7 up",
                             "link set lo up"):  # fmt: skip
                    sh("ip", "-n", name, *line.split())
        except (OSError, RuntimeError) as error:
            self.why_not = str(error)
            self.close()
        self.hosts = ("127.0.0.1", "127.0.0.1") if self.why_not else ADDRESS
        self.interface = "lo" if self.why_not else "eth7"

    def close(self):
        for name in NODES:
            with contextlib.suppress(OSError, RuntimeError):
                sh("ip", "netns", "del", name)

    def inside(self, node):
        return [] if self.why_not else ["ip", "netns", "exec", NODES[node]]

    def sent(self):
        """Bytes that left node b so far."""
        path = "/sys/class/net/%s/statistics/tx_bytes" % self.interface
        return int(subprocess.run([*self.inside(1), "cat", path], check=True,
                                  stdout=subprocess.PIPE).stdout)  # fmt: skip


class Run:
    """One delivery: two servers, and a process for each rank of each module."""

    def __init__(self, arguments, network, preset, delivery):
        self.arguments, self.network = arguments, network
        self.preset, self.delivery = preset, delivery
        self.encoder, self.profile = PRESETS[preset]
        self.environment = dict(
            os.environ, NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1", NCCL_NVLS_ENABLE="0",
            NCCL_SOCKET_IFNAME=network.interface, NCCL_IB_DISABLE="1", NCCL_CUMEM_ENABLE="0",
        )  # fmt: skip
        self.servers, self.logs = [], []

    def program(self, name):
        return os.path.join(os.path.abspath(self.arguments.bin), name)

    def configure(self, node):
        gpus, half = self.arguments.gpus, self.arguments.gpus // 2
        a, b = ("%s:%d" % pair for pair in zip(self.network.hosts, PORTS))
        text = CONFIG.format(
            batch=8 * gpus, gpus=gpus, a=a, b=b, last_a=half - 1, first_b=half, last=gpus - 1,
            delivery=self.delivery, listen=(a, b)[node], preset=self.preset,
            encoder=self.encoder, profile=self.profile,
        )  # fmt: skip
        path = "%s-%s-%d.yaml" % (self.preset, self.delivery, node)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        sh(self.program("ballast-server"), "index", "--config", path)
        return path

    def start_server(self, node, path):
        log = open(path + ".log", "w", encoding="utf-8")
        server = subprocess.Popen(
            [*self.network.inside(node), self.program("ballast-server"), "serve", "--config",
             path], stdout=subprocess.PIPE, stderr=log)  # fmt: skip
        self.servers.append(server)
        self.logs.append(log)

    def name(self, kill):
        return "-".join((self.preset, self.delivery) + ("killed",) * kill)

    def ranks(self, kill):
        """{(module, rank): lines}. `kill`: kill the second server once a rank has had a
        quarter of its batches."""
        own = ["%s:%d" % pair for pair in zip(self.network.hosts, PORTS)]
        processes = {}
        for module in (self.encoder, "language"):
            for rank in range(self.arguments.gpus):
                node = int(rank >= self.arguments.gpus // 2)
                command = [
                    *self.network.inside(node), self.program("ballast-rank"), "--server",
                    ",".join(own[node:] + own[:node]), "--steps", str(self.arguments.steps),
                    "--json", "--backend", self.arguments.backend, "--module", module,
                    "--dp-rank", str(rank), "--run", self.preset + self.delivery + str(kill),
                    "--hang-after", "5",
                ]  # fmt: skip
                name = "%s-%s-%d" % (self.name(kill), module, rank)
                with (
                    open(name + ".json", "w", encoding="utf-8") as out,
                    open(name + ".err", "w", encoding="utf-8") as err,
                ):
                    processes[module, rank] = (
                        subprocess.Popen(command, stdout=out, stderr=err, env=self.environment),
                        name,
                    )
        if kill:
            watched = processes[self.encoder, self.arguments.gpus - 1][1] + ".json"
            until = time.monotonic() + 60
            while time.monotonic() < until:
                with open(watched, encoding="utf-8") as file:
                    if len(file.readlines()) >= self.arguments.steps // 4:
                        break
                time.sleep(0.02)
            self.servers[1].send_signal(signal.SIGKILL)
        try:
            return self.lines(processes)
        finally:
            for process, _ in processes.values():
                process.kill()
                process.wait()

    def lines(self, processes):
        lines = {}
        until = time.monotonic() + self.arguments.seconds
        for key, (process, name) in processes.items():
            try:
                status = process.wait(max(1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
            if status != 0:
                with open(name + ".err", encoding="utf-8") as file:
                    raise RuntimeError("%s ended with %d: %s" % (name, status, file.read()[-2000:]))
            with open(name + ".json", encoding="utf-8") as file:
                lines[key] = [json.loads(line) for line in file]
        return lines

    def went_on(self, kill):
        """Number of ranks that say that they went on at another server."""
        count = 0
        for name in os.listdir("."):
            if name.endswith(".err") and name.startswith(self.name(kill)):
                with open(name, encoding="utf-8") as file:
                    count += "going on there" in file.read()
        return count

    def run(self, kill=False):
        """(lines, figures)"""
        paths = [self.configure(node) for node in (0, 1)]
        try:
            for node, path in enumerate(paths):
                self.start_server(node, path)
            for server in self.servers:
                if not server.stdout.readline().startswith(b"ready"):
                    raise RuntimeError("a server of %s did not start" % self.delivery)
            before, begun = self.network.sent(), time.monotonic()
            lines = self.ranks(kill)
            figures = {"seconds": time.monotonic() - begun,
                       "sent_by_b": self.network.sent() - before}  # fmt: skip
        finally:
            for server in self.servers:
                server.kill()
                server.wait()
            for log in self.logs:
                log.close()
        figures["went_on_elsewhere"] = self.went_on(kill)
        for key in ("bytes_read", "bytes_moved"):
            figures[key] = sum(line.get(key, 0) for rank in lines.values() for line in rank)
        return lines, figures


def same(line):
    """A line without what may differ between deliveries and runs."""
    left_out = ("bytes_read", "bytes_moved")
    return {k: v for k, v in line.items() if not k.endswith("_ms") and k not in left_out}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bin", required=True, help="folder of the programs")
    parser.add_argument("--out", required=True)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60, help="of one run")
    parser.add_argument("--backend", default="cuda", choices=("cuda", "host"))
    arguments = parser.parse_args()
    arguments.out = os.path.abspath(arguments.out)
    arguments.bin = os.path.abspath(arguments.bin)
    # Ends what it started when its time is over, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("several_nodes.py: terminated"))
    network = Network()
    result = {"namespaces": network.why_not is None, "why_not": network.why_not, "runs": {}}
    wanted, bad = {}, []
    with tempfile.TemporaryDirectory(prefix="ballast") as folder:
        os.chdir(folder)
        for preset in PRESETS:
            sh(os.path.join(arguments.bin, "ballast-server"), "make-corpus", "--out", preset,
               "--samples", "256", "--seed", "5", "--preset", preset)  # fmt: skip
        try:
            for name, preset, delivery, kill in (
                ("exchange", "receipts", "exchange", False),
                ("hybrid", "receipts", "hybrid", False),
                ("exchange, a server killed", "receipts", "exchange", True),
                ("hybrid, a server killed", "receipts", "hybrid", True),
                ("audio, direct", "speech", "direct", False),
                ("audio, exchange", "speech", "exchange", False),
                ("audio, exchange, a server killed", "speech", "exchange", True),
            ):
                try:
                    lines, figures = Run(arguments, network, preset, delivery).run(kill)
                    batches = {key: [same(line) for line in of] for key, of in lines.items()}
                    figures["batches"] = sum(map(len, batches.values()))
                    figures["same"] = batches == wanted.setdefault(preset, batches)
                    figures["same"] = figures["same"] and figures["batches"] > 0
                    if kill and not figures["went_on_elsewhere"]:
                        bad.append(name + ": no rank noticed; wanted more steps after the kill")
                except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                    figures = {"same": False, "error": str(error)}
                result["runs"][name] = figures
                if not figures["same"]:
                    bad.append("%s: %s" % (name, figures.get("error", "other batches")))
                print(name, json.dumps(figures), flush=True)
                with open(arguments.out, "w", encoding="utf-8") as file:
                    json.dump(result, file, indent=1)
        finally:
            network.close()
            os.chdir("/")
    print("\n".join(bad) or "PASSED")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
