#!/usr/bin/env python3
"""Memory of a GPU that NCCL takes for sends and receives between ranks, by the configuration of
the communicator, and how fast they then are.

    nccl_memory.py --world 2 --out nccl_memory.json

Each group is made of the same ranks, exchanges with all of them as a batch does (ncclSend and
ncclRecv to every peer), and is destroyed. cudaMemGetInfo before it is made, after, after the first
exchange, and after it is destroyed. Further processes run with other settings of NCCL.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist

SIZES = (1 << 20, 6 << 20, 16 << 20)  # bytes to and from each peer
SETTINGS = ({}, {"NCCL_MAX_P2P_NCHANNELS": "4"}, {"NCCL_BUFFSIZE": "1048576"},
            {"NCCL_P2P_DISABLE": "1"}, {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"})  # fmt: skip


def taken():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def exchange(group, rank, world, sent, received, size):
    dist.batch_isend_irecv([
        dist.P2POp(operation, buffer[peer][:size], peer, group)
        for peer in range(world) if peer != rank
        for operation, buffer in ((dist.isend, sent), (dist.irecv, received))
    ])[-1].wait()  # fmt: skip


def microseconds(group, rank, world, sent, received, size, times=50):
    for _ in range(5):
        exchange(group, rank, world, sent, received, size)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    dist.barrier(group)
    begin.record()
    for _ in range(times):
        exchange(group, rank, world, sent, received, size)
    end.record()
    torch.cuda.synchronize()
    return 1e3 * begin.elapsed_time(end) / times


def measure(rank, world, ctas, registered, buffers):
    """One group: {MiB that it takes, microseconds of an exchange}."""
    options = dist.ProcessGroupNCCL.Options()
    if ctas:
        options.config.max_ctas = ctas
    before = taken()
    group = dist.new_group(list(range(world)), backend="nccl", pg_options=options)
    backend = group._get_backend(torch.device("cuda"))
    backend.eager_connect_single_device(torch.device("cuda", rank))
    made = taken()
    if registered:
        pool = torch.cuda.MemPool(backend.mem_allocator)
        with torch.cuda.use_mem_pool(pool):
            buffers = [torch.empty_like(of) for of in buffers]
        for of in buffers:
            of.random_(0, 255)
        backend.register_mem_pool(pool)
        made = taken()
    sent, received = buffers
    exchange(group, rank, world, sent, received, SIZES[0])
    connected = taken()
    times = {size: microseconds(group, rank, world, sent, received, size) for size in SIZES}
    used = taken()
    if registered:
        backend.deregister_mem_pool(pool)
        del sent, received, buffers, pool
    dist.destroy_process_group(group)
    mib = 2**20
    return {
        "max_ctas": ctas, "registered": registered, "made_mib": (made - before) / mib,
        "first_exchange_mib": (connected - made) / mib, "later_mib": (used - connected) / mib,
        "kept_mib": (taken() - before) / mib, "us": times,
    }  # fmt: skip


def run(rank, world, meeting, out, every):
    torch.cuda.set_device(rank)
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=world)
    buffers = [torch.randint(0, 255, (world, max(SIZES)), dtype=torch.uint8, device="cuda")
               for _ in range(2)]  # fmt: skip
    torch.cuda.synchronize()
    rows = []
    # The first group also pays for what all share, such as NCCL's kernels.
    ways = [(0, False)] * 2
    if every:
        ways += [(n, False) for n in (1, 2, 4, 8, 16, 32)] + [(0, True), (4, True)]
    for ctas, registered in ways:
        try:
            rows.append(measure(rank, world, ctas, registered, buffers))
        except (RuntimeError, AttributeError, TypeError) as error:
            rows.append({"max_ctas": ctas, "registered": registered, "error": str(error)[:300]})
            break
        if rank == 0:
            print(json.dumps(rows[-1]), flush=True)
    if rank == 0:
        with open(out, "w", encoding="utf-8") as file:
            json.dump(rows, file)
        if "error" in rows[-1]:
            print(rows[-1], flush=True)
    os._exit(0)  # a group that failed may never end


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--out", required=True)
    parser.add_argument("--every", type=int, default=-1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.every >= 0:
        meeting = tempfile.mktemp()
        torch.multiprocessing.spawn(
            run, (arguments.world, meeting, arguments.out, arguments.every), arguments.world
        )
        return 0
    result = {"world": arguments.world, "device": torch.cuda.get_device_name(),
              "nccl": torch.cuda.nccl.version(), "settings": []}  # fmt: skip
    status = 0
    for number, setting in enumerate(SETTINGS):
        print(setting or "NCCL's own settings", flush=True)
        with tempfile.NamedTemporaryFile() as file:
            done = subprocess.run(
                [sys.executable, os.path.abspath(__file__), "--world", str(arguments.world),
                 "--out", file.name, "--every", str(int(number == 0))],
                env=dict(os.environ, **setting), timeout=60, check=False,
            )  # fmt: skip
            text = file.read()
        status |= done.returncode or not text
        rows = json.loads(text) if text else []
        result["settings"].append({"setting": setting, "groups": rows})
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(result, file)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
