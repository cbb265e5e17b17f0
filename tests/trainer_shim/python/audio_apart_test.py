"""Split placement of images and audio: processes over Gloo, each with one module, three
numbers of data-parallel ranks, clips of unequal length; loss and gradients are those of one
process on the same samples."""

import datetime
import json
import os
import unittest
import wave

import torch

import ballast
from tests.harness import tools
from tests.trainer_shim.python import split_job
from tests.trainer_shim.python.audio_test import PICTURE, pcm, png

WIDTH, VOCABULARY, STEPS, AHEAD = 8, 97, 2, 1
IDS = {"end_of_text": 300, "pad": 300, "im_start": 301, "im_end": 302, "audio": 303, "image": 304,
       "video": 305, "vision_start": 306, "vision_end": 307}  # fmt: skip
CONFIG = """
sources: [{name: talk, format: jsonl, path: talk.jsonl, media_root: .}]
model: {profile: qwen2_5_omni, tokenizer: bytes, token_ids: {%s}}
batch: {global: 12, micro: 6}
topology: {colocated: %s, modules: {vision: {dp: %d}, audio: {dp: %d}, language: {dp: %d}}}
balance:
  placement: %s
  delivery: %s
  cost: {vision: {linear: 1}, audio: {linear: 1}, language: {linear: 3}}
packing: {align: 1}
serve: {listen: ["127.0.0.1:0"], threads: 1}
"""
#: Each module's ranks among the processes.
RANKS = {"vision": [2], "audio": [0, 4], "language": [5, 1, 3]}


class AudioApartTest(tools.ToolTest):
    def test_each_encoder_has_ranks_of_its_own(self):
        self.write_data()
        alone = self.job("one", "paired", "off")
        self.assertGreater(min(alone["rows"].values()), 0)
        for delivery in ("direct", "exchange"):
            with self.subTest(delivery):
                apart = self.job(delivery, "split", delivery)
                self.assertGreater(apart["dummies"], 0)
                split_job.assert_training(self, apart, alone)

    def write_data(self):
        with open(self.path("x.png"), "wb") as file:
            file.write(png(PICTURE))
        lines = []
        for i in range(24):
            # Every fourth micro-batch or so has fewer clips than ranks of audio.
            clips = [0.3 + 0.17 * ((7 * i + k) % 11) for k in range((0, 2, 0, 1, 0, 0)[i % 6])]
            names = ["%d.%d.wav" % (i, k) for k in range(len(clips))]
            for k, (name, seconds) in enumerate(zip(names, clips)):
                with wave.open(self.path(name), "wb") as file:
                    file.setparams((1, 2, 16000, 0, "NONE", ""))
                    file.writeframes(pcm(seconds, 10 * i + k).tobytes())
            picture = i % 3 == 1
            question = "<audio>" * len(clips) + "<image>" * picture + "What, %d?" % i
            record = {"messages": [{"role": "user", "content": question},
                                   {"role": "assistant", "content": "That." * (1 + i % 3)}],
                      "audios": names}  # fmt: skip
            if picture:
                record["image"] = "x.png"
            lines.append(json.dumps(record))
        self.write("talk.jsonl", "\n".join(lines) + "\n")

    def job(self, name, placement, delivery):
        """Sums over the ranks of a job."""
        apart = placement == "split"
        sizes = [len(RANKS[module]) if apart else 1 for module in ("vision", "audio", "language")]
        config = self.write(name + ".yaml", CONFIG % (
            ", ".join("%s: %d" % each for each in IDS.items()), str(not apart).lower(), *sizes,
            placement, delivery))  # fmt: skip
        self.ok("ballast-server", "index", "--config", config)
        folder = self.path(name)
        os.mkdir(folder)
        ranks = range(sum(sizes)) if apart else [0]
        with self.server(config, "unix:%s/a.sock" % folder) as (address,):
            # Forked: nobody imports torch again.
            torch.multiprocessing.start_processes(
                run_rank, (address, folder, apart, delivery), len(ranks), start_method="fork"
            )
        parts = [torch.load(os.path.join(folder, "%d.pt" % rank)) for rank in ranks]
        total = parts[0]
        for part in parts[1:]:
            total["losses"] = [sum(pair) for pair in zip(total["losses"], part["losses"])]
            total["dummies"] += part["dummies"]
            for of in ("rows", "gradients"):
                for key, value in part[of].items():
                    total[of][key] = total[of].get(key, 0) + value
        return total


if torch is not None:

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.vision = torch.nn.Linear(3 * 2 * 14 * 14, WIDTH)
            self.audio = torch.nn.Linear(128, WIDTH)
            self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
            self.head = torch.nn.Linear(WIDTH, VOCABULARY)

        def encode(self, module, batch):
            """A row for each placeholder of this rank's media."""
            if module == "vision":
                rows = torch.tanh(self.vision(batch["pixel_values"].double()))
                return rows.reshape(-1, 4, WIDTH).sum(1)
            found = [self.audio(batch["input_features"][:0].double())]
            begins = batch["audio_cu_rows"].tolist()
            for begin, frames in zip(begins, batch["audio_feature_lengths"].tolist()):
                rows = torch.tanh(
                    self.audio(batch["input_features"][begin : begin + frames].double())
                )
                tokens = ((frames - 1) // 2 + 1 - 2) // 2 + 1
                found += [part.sum(0, keepdim=True) for part in rows.tensor_split(tokens)]
            return torch.cat(found)

        def forward(self, batch, rows):
            """The summed loss of the rank's tokens, each of which sees those before it."""
            ids = batch["input_ids"][0]
            hidden = self.tokens(ids % VOCABULARY)
            for name, of in rows.items():
                token = IDS["image" if name == "vision" else "audio"]
                hidden = hidden.masked_scatter((ids == token)[:, None], of)
            bounds = batch["cu_seqlens"].tolist()
            hidden = torch.cat([hidden[a:b].cumsum(0) for a, b in zip(bounds, bounds[1:])])
            labels = batch["labels"][0]
            return torch.nn.functional.cross_entropy(
                self.head(torch.tanh(hidden)), torch.where(labels < 0, labels, labels % VOCABULARY),
                ignore_index=-100, reduction="sum")  # fmt: skip


def run_rank(rank, address, folder, apart, delivery):
    import torch.distributed as dist

    torch.set_num_threads(1)
    world = sum(map(len, RANKS.values())) if apart else 1
    dist.init_process_group(
        "gloo", init_method="file://%s/store" % folder, rank=rank, world_size=world,
        timeout=datetime.timedelta(seconds=tools.TIMEOUT_S),
    )  # fmt: skip
    own = next(name for name, ranks in RANKS.items() if rank in ranks)
    modules = [own] if apart else list(RANKS)
    groups = {name: ballast.ModuleGroups(**{name: RANKS[name], "language": RANKS["language"]})
              for name in ("vision", "audio")} if apart else {}  # fmt: skip
    result = {"losses": [0.0] * STEPS, "rows": {}, "dummies": 0}
    with ballast.Loader(
        address, modules, dp_rank=RANKS[own].index(rank) if apart else 0, device="cpu",
        array="torch", steps=STEPS, exchange=delivery == "exchange",
    ) as loader:  # fmt: skip
        torch.manual_seed(0)
        model = Model().double()
        ahead, waiting = AHEAD if apart and own != "language" else 0, []
        for batch in loader:
            waiting.append(forward(model, batch, groups, modules, result))
            if len(waiting) > ahead:
                waiting.pop(0).backward()
        while waiting:
            waiting.pop(0).backward()
    mine = [own] if apart and own != "language" else ["tokens", "head"] if apart else None
    result["gradients"] = {name: weight.grad for name, weight in model.named_parameters()
                           if mine is None or name.split(".")[0] in mine}  # fmt: skip
    torch.save(result, os.path.join(folder, "%d.pt" % rank))
    dist.barrier()
    dist.destroy_process_group()


def forward(model, batch, groups, modules, result):
    """What a rank's backward pass of the micro-batch begins with."""
    result["dummies"] += batch.dummy_image + batch.dummy_clip
    if groups and modules != ["language"]:
        (own,) = modules
        sent = ballast.exchange_embeddings(model.encode(own, batch), batch, groups[own], module=own)
        return sent.sum()
    rows = {}
    for name in ("vision", "audio"):
        if groups:
            empty = torch.empty((0, WIDTH), dtype=torch.float64)
            rows[name] = ballast.exchange_embeddings(empty, batch, groups[name], module=name)
        else:
            rows[name] = model.encode(name, batch)
        result["rows"][name] = result["rows"].get(name, 0) + len(rows[name])
    loss = model(batch, rows) / batch.step_totals.label_tokens
    result["losses"][batch.step] += loss.item()
    return loss


class RefusalsTest(unittest.TestCase):
    def test_names_what_does_not_fit(self):
        class Dummy(dict):
            dummy_clip = True

        plan = {"audio_embedding_send_host": torch.tensor([2, 1]),
                "audio_embedding_receive_host": torch.tensor([2, 1])}  # fmt: skip
        rows = torch.zeros(4, WIDTH)
        for wrong, said in (
            ({"module": "heard"}, "module: found 'heard'; wanted vision or audio"),
            ({"module": "audio"}, "found 4 rows; wanted 3, one for each audio token"),
        ):
            with self.assertRaisesRegex(ballast.InvalidArgument, said):
                ballast.exchange_embeddings(rows, plan, **wrong)
        with self.assertRaisesRegex(ballast.FailedPrecondition, "placement `split`"):
            ballast.adapters.huggingface_audio.features(plan)
        with self.assertRaisesRegex(ballast.InvalidArgument, "and the dummy clip's"):
            ballast.exchange_embeddings(rows[:3], Dummy(plan), module="audio")
        with self.assertRaisesRegex(ballast.FailedPrecondition, "a dummy clip with balance"):
            ballast.exchange_embeddings(rows, Dummy(), module="audio")
        with self.assertRaisesRegex(ballast.InvalidArgument, "of one encoder"):
            ballast.ModuleGroups(vision=[0], audio=[1], language=[2])


if __name__ == "__main__":
    unittest.main()
