"""A job of four ranks with paired or split placement, whose summed gradients are compared.
Each rank is a process over Gloo."""

import os

import ballast
from tests.harness import tools

RANKS, STEPS = 4, 2
CONFIG = """
sources:
  - name: mock
    format: mock
    lengths: {mode: lognormal, min: 64, max: 256, mean: 120, sigma: 0.6, count: 400}
    images: {min: 0, max: %d, pixels: {min: 4000, max: 30000, mean: 12000, sigma: 0.8}}
model:
  profile: %s
  tokenizer: bytes
  token_ids: {image: 256, video: 257, vision_start: 258, vision_end: 259, im_start: 260,
              im_end: 261, end_of_text: 262, pad: 262}
batch: {global: %d, micro: %d, max_tokens: 1024}
topology: {modules: {vision: {dp: 4}, language: {dp: 4}}}
balance:
  placement: %s
  delivery: %s
  align_images: %s
  cost: {vision: {linear: 1}, language: {linear: 3, quadratic: 0.01}}
packing: {align: 1}
serve: {listen: ["127.0.0.1:0"]}
"""
# Most images of a sample, samples of a step and of a micro-batch, align_images. In the last
# three micro-batches have fewer images than ranks: there are dummy images, or ranks without
# any image beside ranks with some.
JOBS = {
    "most": (3, 32, 16, "true"),
    "many": (3, 16, 8, "true"),
    "few": (1, 16, 8, "true"),
    "fewest": (1, 16, 4, "true"),
    "unaligned": (1, 16, 8, "false"),
}


def start(run, arguments, count):
    """Calls `run(rank, *arguments)` in processes. They are forks, which have imported
    everything: the caller must not have opened a loader."""
    import torch

    torch.multiprocessing.start_processes(run, arguments, count, start_method="fork")


def assert_gradients(test, found, wanted):
    """That they have the same names and values, to rounding, and that none is zero."""
    test.assertEqual(found.keys(), wanted.keys())
    for name, gradient in wanted.items():
        largest = gradient.abs().max().item()
        test.assertGreater(largest, 0, name)
        difference = (found[name] - gradient).abs().max().item()
        test.assertLessEqual(difference, 1e-12 * largest, name)


def assert_training(test, apart, alone):
    """That two jobs have the same rows, losses and gradients."""
    test.assertEqual(apart["rows"], alone["rows"])
    for found, wanted in zip(apart["losses"], alone["losses"]):
        test.assertAlmostEqual(found, wanted, delta=1e-12 * wanted)
    assert_gradients(test, apart["gradients"], alone["gradients"])


class SplitJobTest(tools.ToolTest):
    """`run_rank(rank, loader, split, seen)` returns the rank's gradients by name; a
    function of a module, since it runs in other processes."""

    def gradients(self, run_rank, profile, job, placement, delivery="direct"):
        import torch

        images, steps, micro, align = JOBS[job]
        name = "%s-%s-%s-%s" % (profile, job, placement, delivery)
        text = CONFIG % (images, profile, steps, micro, placement, delivery, align)
        config = self.write(name + ".yaml", text)
        folder = self.path(name)
        os.mkdir(folder)
        with self.server(config, "unix:%s/a.sock" % folder) as (address,):
            start(_rank, (run_rank, address, folder, delivery), RANKS)
        return torch.load(os.path.join(folder, "result.pt"))

    def assert_split_equals_paired(self, run_rank, profile, job, delivery="direct", paired=None):
        """Returns what the ranks have seen. `paired`: the gradients, where they are known."""
        paired = paired or self.gradients(run_rank, profile, job, "paired")
        split = self.gradients(run_rank, profile, job, "split", delivery)
        self.assertEqual(paired["moved"], 0)
        if JOBS[job][2] > RANKS:  # else each rank has a sample, and keeps its image
            self.assertGreater(split["moved"], 0)
        if JOBS[job][0] == 1:
            self.assertGreater(split["without_images"] + split["dummies"], 0)
        assert_gradients(self, split["gradients"], paired["gradients"])
        return split


def _rank(rank, run_rank, address, folder, delivery):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if not dist.is_initialized():
        store = "file://%s/store" % folder
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
    seen = {"moved": 0, "dummies": 0, "empty": 0, "without_images": 0, "images": set()}
    with ballast.Loader(
        address, dp_rank=rank, device="cpu", array="torch", steps=STEPS,
        exchange=delivery == "exchange",
    ) as loader:  # fmt: skip
        split = loader.job["placement"] == "split"
        gradients = run_rank(rank, loader, split, seen)
    for name in sorted(gradients):
        dist.all_reduce(gradients[name])
    everywhere = [None] * RANKS
    dist.all_gather_object(everywhere, seen)
    if rank == 0:
        result = {"images": set().union(*(of.pop("images") for of in everywhere))}
        result.update((key, sum(of[key] for of in everywhere)) for key in everywhere[0])
        result["gradients"] = gradients
        torch.save(result, os.path.join(folder, "result.pt"))
    dist.destroy_process_group()


def note(batch, rank, seen):
    """Counts what a rank's batch has."""
    seen["images"].update(batch.images_per_sample)
    if "embedding_send_host" not in batch:
        return
    plan = batch["embedding_send_host"].tolist()
    seen["moved"] += sum(plan) - plan[rank]
    seen["dummies"] += batch.dummy_image
    seen["empty"] += not batch["embedding_order"].numel()
    seen["without_images"] += batch["image_grid_thw"].shape[0] == 0


def gradients_of(model):
    """By name, zeros where a weight took no part: the paired run leaves some out on ranks
    without images."""
    import torch

    return {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad
        for name, weight in model.named_parameters()
    }
