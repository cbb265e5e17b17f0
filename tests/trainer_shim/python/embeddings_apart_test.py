"""Split placement of modules on ranks of their own: processes over Gloo, some with the vision
tower and some with the language model, train in 1F1B; loss and gradients are those of one
process on the same samples."""

import datetime
import os
import unittest

import torch

import ballast
from tests.harness import tools
from tests.trainer_shim.python import embeddings_test, split_job

STEPS, AHEAD = 2, 2
WIDTH = embeddings_test.WIDTH
TOWER = ("patches", "tower", "merger")
TOPOLOGY = "topology: {colocated: %s, modules: {vision: {dp: %d}, language: {dp: %d}}}"


class EmbeddingsApartTest(tools.ToolTest):
    def test_as_many_vision_ranks_as_language_ranks(self):
        for delivery in ("direct", "exchange"):
            self.check([0, 1], [2, 3], delivery)

    def test_twice_as_many_vision_ranks_named_in_any_order(self):
        self.check([2, 0], [1])

    def test_three_times_as_many_language_ranks(self):
        self.check([3], [0, 2, 1])

    def test_numbers_that_do_not_divide_each_other(self):
        self.check([0, 1, 2], [3, 4])

    def test_micro_batches_with_fewer_images_than_ranks(self):
        seen = self.check([0, 1], [2, 3], images=1, micro=2)
        self.assertGreater(seen["dummies"] + seen["empty"], 0)

    def check(self, vision, language, delivery="direct", images=3, micro=12):
        name = "-".join(map(str, (*vision, *language, delivery, images)))
        alone = self.job(name + "-one", [0], [0], "direct", images, micro)
        apart = self.job(name, vision, language, delivery, images, micro)
        self.assertGreater(sum(alone["rows"]), 0)
        split_job.assert_training(self, apart, alone)
        return apart

    def job(self, name, vision, language, delivery, images, micro):
        """Sums over the ranks of a job."""
        apart = vision != language
        topology = TOPOLOGY % (str(not apart).lower(), len(vision), len(language))
        text = split_job.CONFIG % (
            images, "qwen2_5_vl", 3 * micro, micro, "split" if apart else "paired", delivery, "true",
        )  # fmt: skip
        text = text.replace("topology: {modules: {vision: {dp: 4}, language: {dp: 4}}}", topology)
        self.assertIn(topology, text)
        config = self.write(name + ".yaml", text)
        folder = self.path(name)
        os.mkdir(folder)
        ranks = sorted(vision + language) if apart else [0]
        with self.server(config, "unix:%s/a.sock" % folder) as (address,):
            split_job.start(run_rank, (address, folder, vision, language, delivery), len(ranks))
        parts = [torch.load(os.path.join(folder, "%d.pt" % rank)) for rank in ranks]
        total = parts[0]
        for part in parts[1:]:
            for key in ("losses", "rows"):
                total[key] = [sum(pair) for pair in zip(total[key], part[key])]
            for key in ("dummies", "empty"):
                total[key] += part[key]
            for key, gradient in part["gradients"].items():
                total["gradients"][key] = total["gradients"].get(key, 0) + gradient
        return total

    def test_what_would_mix_up_micro_batches_is_refused(self):
        folder = self.path("refused")
        os.mkdir(folder)
        split_job.start(run_refused, (folder,), 2)

    def test_a_receipt_ends(self):
        folder = self.path("ends")
        os.mkdir(folder)
        split_job.start(run_unanswered, (folder,), 2)


def run_rank(rank, address, folder, vision, language, delivery):
    import torch.distributed as dist

    torch.set_num_threads(1)
    together = vision == language
    world = 1 if together else len(vision) + len(language)
    dist.init_process_group(
        "gloo", init_method="file://%s/store" % folder, rank=rank, world_size=world,
        timeout=datetime.timedelta(seconds=tools.TIMEOUT_S),
    )  # fmt: skip
    modules = ["vision", "language"] if together else ["vision" if rank in vision else "language"]
    groups = None if together else ballast.ModuleGroups(vision, language)
    own = vision if rank in vision else language
    result = {"losses": [0.0] * STEPS, "rows": [0] * STEPS, "dummies": 0, "empty": 0}
    with ballast.Loader(
        address, modules, dp_rank=own.index(rank), device="cpu", array="torch", steps=STEPS,
        exchange=delivery == "exchange",
    ) as loader:  # fmt: skip
        torch.manual_seed(0)
        model = embeddings_test.Model(3 * 2 * 14 * 14).double()
        token = int(loader.job["model"]["token_ids"]["image"])
        # Vision goes ahead of language by AHEAD micro-batches, as in 1F1B.
        ahead, waiting = AHEAD if modules == ["vision"] else 0, []
        for batch in loader:
            waiting.append(forward(model, batch, groups, token, modules, result))
            if len(waiting) > ahead:
                waiting.pop(0).backward()
        while waiting:
            waiting.pop(0).backward()
    result["gradients"] = {
        name: weight.grad for name, weight in model.named_parameters()
        if together or (name.split(".")[0] in TOWER) == (modules == ["vision"])
    }  # fmt: skip
    torch.save(result, os.path.join(folder, "%d.pt" % rank))
    dist.barrier()
    dist.destroy_process_group()


def forward(model, batch, groups, token, modules, result):
    """What a rank's backward pass of the micro-batch begins with."""
    if modules == ["vision"]:
        result["dummies"] += batch.dummy_image
        sent = ballast.exchange_embeddings(model.embeddings(batch), batch, groups)
        assert sent.shape == (0, WIDTH), sent.shape
        return sent.sum()

    def received(_, batch):
        rows = ballast.exchange_embeddings(
            torch.empty((0, WIDTH), dtype=torch.float64), batch, groups
        )
        result["empty"] += not len(rows)
        return rows

    if "vision" in modules:
        # The tower runs before the exchange that gives back its own rows.
        exchange = embeddings_test.own_rows
    else:
        exchange, model.embeddings = received, lambda batch: None
    result["rows"][batch.step] += int((batch["input_ids"] == token).sum())
    loss = model(batch, exchange, token) / batch.step_totals.label_tokens
    result["losses"][batch.step] += loss.item()
    return loss


class Given(dict):
    """A batch made by hand."""

    dummy_image = False

    def __init__(self, micro_batch, step=7, **plan):
        super().__init__((key, torch.tensor(value)) for key, value in plan.items())
        self.step, self.micro_batch = step, micro_batch


def begin(rank, folder, timeout=tools.TIMEOUT_S):
    import torch.distributed as dist

    store = dist.FileStore(folder + "/store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    groups = ballast.ModuleGroups([0], [1], datetime.timedelta(seconds=timeout))
    return groups, store


def vision(micro_batch, rows=2):
    return Given(micro_batch, embedding_send_host=[rows])


def text(micro_batch, rows=2, step=7):
    return Given(
        micro_batch, step, embedding_receive_host=[rows], embedding_order=list(range(rows))
    )


def refuses(kind, said, call):
    with unittest.TestCase().assertRaisesRegex(kind, said):
        call()


def run_refused(rank, folder):
    import torch.distributed as dist

    groups, store = begin(rank, folder)
    rows = torch.arange(4.0).reshape(2, 2).requires_grad_()
    none = torch.empty(0, 2)
    exchange = ballast.exchange_embeddings
    first, second = ballast.FailedPrecondition, ballast.InvalidArgument
    if rank == 0:
        refuses(first, "wanted ballast.ModuleGroups", lambda: exchange(rows, vision(0)))
        refuses(first, "step 7 micro-batch 2 after", lambda: exchange(rows, vision(2), groups))
        refuses(
            second, "dp 2", lambda: exchange(rows, Given(0, embedding_send_host=[1, 1]), groups)
        )
        refuses(
            second,
            "without its step",
            lambda: exchange(rows, {"embedding_send_host": torch.tensor([2])}, groups),
        )
        refuses(second, "rank 0 is not data-parallel rank", lambda: exchange(none, text(0), groups))
        refuses(first, "found ModuleGroups; wanted none", lambda: exchange(rows, {}, groups))
        refuses(second, "found 1 rows; wanted 2", lambda: exchange(rows[:1], vision(0), groups))
        both = dict(embedding_send_host=[2], embedding_receive_host=[2], embedding_order=[0, 1])
        refuses(first, "on the same ranks", lambda: exchange(rows, Given(0, **both), groups))
        refuses(second, "no rank twice", lambda: ballast.ModuleGroups([0, 1], [1]))
        sent = [exchange(rows, vision(number), groups) for number in range(4)]
        # A backward pass out of turn, as one pass over the sum of losses would be.
        refuses(
            first,
            "backward pass of step 7 micro-batch 1; wanted step 7 micro-batch 0",
            lambda: sent[1].sum().backward(),
        )
        sent[0].sum().backward()
        assert rows.grad.tolist() == [[1, 1], [2, 2]], rows.grad
    else:
        got = exchange(none, text(0), groups)
        assert torch.equal(got, rows)
        (got * torch.tensor([[1.0], [2.0]])).sum().backward()
    # Rows of another number, type and micro-batch, and rows whose gradients nobody sends. An
    # error is final, so each has groups of its own.
    for said, like, batch, frozen in (
        ("found step 7 micro-batch 0, 2 rows .* wanted step 7 micro-batch 0, 3 rows", none,
         text(0, 3), False),
        ("2 elements, torch.float32.*2 elements, torch.float64", none.double(), text(0), False),
        ("step 7 micro-batch 0, 2 rows.*wanted step 8 micro-batch 0, 2 rows", none,
         text(0, step=8), False),
        ("gradients wanted.*gradients not wanted", none, text(0), True),
    ):  # fmt: skip
        groups = ballast.ModuleGroups([0], [1], datetime.timedelta(seconds=tools.TIMEOUT_S))
        if rank == 0:
            exchange(rows, vision(0), groups)
        else:
            refuses(first, said, lambda: exchange(like, batch, groups, frozen=frozen))
    store.set("done %d" % rank, "yes")
    store.wait(["done 0", "done 1"])
    dist.destroy_process_group()


def run_unanswered(rank, folder):
    groups, store = begin(rank, folder, timeout=1)
    if rank == 1:
        with unittest.TestCase().assertRaises(RuntimeError):
            ballast.exchange_embeddings(torch.empty(0, 2), text(0), groups)
        store.set("done", "yes")
    store.wait(["done"])


if __name__ == "__main__":
    unittest.main()
