"""Checkpoints of Bridge's MIMO loop with `data_iterators`: three processes over Gloo, one of
vision and two of language, save as Bridge saves and resume as Bridge resumes, many times."""

import datetime
import json
import os
import shutil
import types
import unittest

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from ballast.adapters.bridge_iterators import data_iterators
from tests.harness import tools

ROUNDS, EVALUATE, RESUME = 50, 3, 10
GLOBAL, MICRO_BATCHES = 16, 2
HELD_OUT = """
  - {name: held_out, format: webdataset, path: "held_out/docs-*.tar", split: valid}
"""


def save_state_if_there_is_one(iterator, folder, module, group, leaders):
    """What Bridge's `maybe_save_dataloader_state` does in the MIMO loop: the first
    data-parallel rank of each module replaces the iteration's folder, of which there is one.
    With `leaders`, a group of these ranks, language's removes it when vision's has made it."""
    iterable = getattr(iterator, "iterable", None)
    if not hasattr(iterable, "save_state"):
        return
    state = iterable.save_state()
    dist.barrier(group=group)
    if group.rank() == 0:
        if leaders is not None and module == "language":
            dist.barrier(group=leaders)
        if os.path.isdir(folder):
            shutil.rmtree(folder)
        if leaders is not None and module == "language":
            dist.barrier(group=leaders)
        os.makedirs(folder, exist_ok=True)
        if leaders is not None and module != "language":
            dist.barrier(group=leaders)
            dist.barrier(group=leaders)
    dist.barrier(group=group)
    torch.save(state, os.path.join(folder, "train_dataloader_dprank%03d.pt" % group.rank()))


def positions(_loader):
    return lambda batch: (batch.step, [sample.position for sample in batch.samples])


def run(rank, address, folder):
    dist.init_process_group(
        "gloo", init_method="file://" + folder + "/meeting", rank=rank, world_size=3,
        timeout=datetime.timedelta(seconds=60),
    )  # fmt: skip
    groups = {"images": dist.new_group([0]), "language": dist.new_group([1, 2])}
    leaders = dist.new_group([0, 1])
    alone = [dist.new_group([each]) for each in range(3)][rank]
    module = "images" if rank == 0 else "language"
    own = types.SimpleNamespace(dp=groups[module], tp=alone, pp=alone, cp=alone)
    infra = types.SimpleNamespace(
        pg_collections={name: own if name == module else None for name in groups}
    )
    cfg = types.SimpleNamespace(
        dataset=types.SimpleNamespace(megatron_mimo_scalable_dp=True, dataloader_save=None),
        train=types.SimpleNamespace(global_batch_size=GLOBAL, micro_batch_size=8),
        validation=types.SimpleNamespace(eval_global_batch_size=GLOBAL, eval_micro_batch_size=8),
    )
    build = data_iterators(address, adapter=positions, device="cpu", array="numpy")
    state = types.SimpleNamespace(step=0, consumed_valid_samples=0)

    def take(iterator, step):
        """A step of an iterator, which all ranks of a module have together."""
        got = [next(iterator) for _ in range(MICRO_BATCHES)]
        assert [number for number, _ in got] == [step] * MICRO_BATCHES, (got, step)
        everyone = [None] * 3
        dist.all_gather_object(everyone, [position for _, each in got for position in each])
        wanted = list(range(GLOBAL * step, GLOBAL * (step + 1)))
        assert sorted(everyone[0]) == wanted, everyone
        assert sorted(everyone[1] + everyone[2]) == wanted, everyone

    train, valid = build(cfg, infra)
    for number in range(ROUNDS):
        take(train, state.step)
        state.step += 1
        if number % EVALUATE == 0:
            take(valid, state.consumed_valid_samples // GLOBAL)
            state.consumed_valid_samples += GLOBAL
        save_state_if_there_is_one(
            train, folder + "/checkpoint/iter_%07d" % (number // 2), module, groups[module],
            leaders if number % 2 else None,
        )  # fmt: skip
        common = folder + "/train_state.json"
        if rank == 0:
            with open(common, "w", encoding="utf-8") as file:
                json.dump(vars(state), file)
        dist.barrier()
        if number % RESUME == RESUME - 1:
            train.iterable.shutdown()
            with open(common, encoding="utf-8") as file:
                state = types.SimpleNamespace(**json.load(file))
            train, valid = build(cfg, infra, train_state=state)
        dist.barrier()
    train.iterable.shutdown()
    dist.destroy_process_group()


class MimoCheckpointTest(tools.CorpusTest):
    def test_no_crash_no_hang_and_the_same_data(self):
        text = tools.CONFIG.replace("\nmodel:", HELD_OUT + "model:")
        config = self.write("job.yaml", text.replace("dp: 2", "dp: 1").replace("dp: 4", "dp: 2"))
        self.ok(
            "ballast-server", "make-corpus", "--out", self.folder + "/held_out",
            "--samples", 32, "--seed", 7,
        )  # fmt: skip
        self.ok("ballast-server", "index", "--config", config)
        address = "unix:" + self.folder + "/a.sock"
        with self.server(config, address):
            processes.start_processes(run, (address, self.folder), nprocs=3, start_method="fork")


if __name__ == "__main__":
    unittest.main()
