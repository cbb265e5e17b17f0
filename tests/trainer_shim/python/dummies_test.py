"""A rank without images or clips, where another rank has some: the dummy's way from the server
through each adapter into the model's tower. The loss and the gradients of all other weights are
those of the text alone, and each weight of the tower that a real image or clip gives a gradient
has one of 0: DistributedDataParallel waits for them, and FSDP for the tower's run.

    dummies_test.py [--every N] [TEST...]

With --every, one of N of the families with images.
"""

import copy
import datetime
import json
import os
import unittest
import wave

import ballast
from ballast.adapters import huggingface, huggingface_audio, padded
from tests.harness import tools
from tests.trainer_shim.python import accepted_sizes_test as accepted
from tests.trainer_shim.python import audio_test, split_job

CONFIG = """
sources: [{name: chat, format: jsonl, path: chat.jsonl, media_root: .}]
order: {shuffle: false}
model: {profile: %s, chat_template: chatml, %s}
batch: {global: 4, micro: 4, max_tokens: 32768}
topology: {modules: {%s, language: {dp: 2}}}
balance: {equal_count: true, delivery: direct}
packing: {mode: %s, align: 4}
serve: {listen: ["127.0.0.1:0"], threads: 1}
"""
TEXT = ("input_ids", "attention_mask", "position_ids", "labels")
FORMS = ("packed", "unpacked", "padded")
HEARING = {name: "omni_padded" if "omni" in name else name for name in accepted.HEARING}


def losses(model, calls):
    """The sum of the calls' losses, and the gradient of each weight."""
    import torch

    total = 0
    for inputs in calls if isinstance(calls, list) else [calls]:
        inputs = dict(inputs)
        labels = inputs.pop("labels")
        total = total + huggingface.loss(model(**inputs), labels, 1)
    names, weights = zip(*((n, w) for n, w in model.named_parameters() if w.requires_grad))
    found = torch.autograd.grad(total, weights, allow_unused=True)
    return float(total.detach()), dict(zip(names, found))


@unittest.skipIf(accepted.MISSING, "SKIPPED: Python lacks %s" % ", ".join(accepted.MISSING))
class DummiesTest(tools.ToolTest):
    def setUp(self):
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(5)

    def batches(self, profile, model, modules, mode, media, mark):
        """The batch of the rank that has the first of four samples' image or clip, and of the
        rank that has none."""
        lines = []
        for i in range(4):
            question = (mark if i == 0 else "") + "What? " * (i + 1)
            lines.append(json.dumps({**(media if i == 0 else {}), "messages": [
                {"role": "user", "content": question},
                {"role": "assistant", "content": "That." * (i + 1)}]}))  # fmt: skip
        self.write("chat.jsonl", "\n".join(lines) + "\n")
        module_lines = ", ".join("%s: {dp: 2}" % name for name in modules)
        config = self.write(mode + ".yaml", CONFIG % (profile, model, module_lines, mode))
        self.ok("ballast-server", "index", "--rebuild", "--config", config)
        found = {}
        with self.server(config, f"unix:{self.folder}/{mode[:4]}.sock") as (address,):
            for rank in range(2):
                with ballast.Loader(address, (*modules, "language"), dp_rank=rank, device="cpu",
                                    steps=1, pixel_type="float32") as loader:  # fmt: skip
                    batch = next(loader)
                    batch.samples, batch.images_per_sample
                    found[batch.dummy_image or batch.dummy_clip] = batch.clone()
                    ids = loader.job["model"]["token_ids"]
        return found[False], found[True], ids

    def compare(self, model, form, real, dummy, text):
        """`form` makes the calls of a batch, `text` those of its text alone."""
        loss, found = losses(model, form(dummy))
        wanted_loss, wanted = losses(model, text(dummy))
        _, seen = losses(model, form(real))
        self.assertAlmostEqual(loss, wanted_loss, delta=abs(wanted_loss) * 2e-6)
        tower = [name for name in seen if seen[name] is not None and wanted[name] is None]
        self.assertGreater(len(tower), 4)
        for name, gradient in wanted.items():
            if name in tower:
                self.assertIsNotNone(found[name], name)
                self.assertEqual(float(found[name].abs().max()), 0, name)
            elif gradient is not None:
                most = 1e-5 * float(gradient.abs().max()) + 1e-6
                self.assertLess(float((found[name] - gradient).abs().max()), most, name)

    def write_clip(self):
        with wave.open(self.path("a.wav"), "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            file.writeframes(audio_test.pcm(1.3, 3).tobytes())

    def models_of(self, family):
        """The lines of the configuration, and what makes the model and its adapter."""
        maker = accepted.AcceptedSizesTest()
        maker.folder = self.folder
        _, line, model_of = maker.models_of(family, "eager")[0]
        return line.replace("tokenizer.json", family + "/tokenizer.json"), model_of

    def check(self, family):
        from PIL import Image

        tokenizer, model_of = self.models_of(family)
        Image.new("RGB", (300, 200), (9, 99, 199)).save(self.path("x.png"))
        media = {"images": ["x.png"]}
        tried = []
        for mode in ("shard", "padded"):
            real, dummy, ids = self.batches(family, tokenizer, ("vision",), mode, media, "<image>")
            self.assertTrue(dummy.dummy_image)
            model, adapter = model_of(ids)
            for form in FORMS[2:] if mode == "padded" else FORMS[:2]:
                with self.subTest(form):
                    make = getattr(adapter, form)
                    try:
                        make(real)
                    except ballast.Unimplemented:
                        continue
                    self.compare(model, make, real, dummy, text_alone(adapter))
                    tried.append(form)
        self.assertIn("padded", tried)
        self.assertIn("unpacked", tried)

    def check_heard(self, profile):
        from tests.trainer_shim.python import audio_models

        kind = accepted.HEARING[profile]
        ids = ", ".join("%s: %d" % each for each in kind.ids.items())
        self.write_clip()
        if kind.tokenizer != "bytes":
            self.write(kind.tokenizer, kind.tokenizer_json(kind))
        line = "tokenizer: %s, token_ids: {%s}" % (kind.tokenizer, ids)
        model = getattr(audio_models, profile)().eval()
        modules = ("vision", "audio") if "image" in kind.ids else ("audio",)
        for mode in ("padded", "shard"):
            real, dummy, _ = self.batches(
                profile, line, modules, mode, {"audios": ["a.wav"]}, "<audio>"
            )
            self.assertTrue(dummy.dummy_clip)
            forms = [HEARING[profile]]
            if "omni" in profile and mode == "shard":
                forms.append("omni_packed")
            for form in forms:
                with self.subTest(form, mode=mode):
                    self.compare(model, getattr(huggingface_audio, form), real, dummy, rows_alone)

    def test_processes_do_not_wait_without_end(self):
        import torch
        from PIL import Image

        Image.new("RGB", (300, 200), (9, 99, 199)).save(self.path("x.png"))
        self.write_clip()
        kind = audio_test.Qwen2AudioCase
        ids = ", ".join("%s: %d" % each for each in kind.ids.items())
        for profile, line, modules, media, mark in (
            ("qwen2_audio", "tokenizer: bytes, token_ids: {%s}" % ids, ("audio",),
             {"audios": ["a.wav"]}, "<audio>"),
            ("smolvlm", self.models_of("smolvlm")[0], ("vision",), {"images": ["x.png"]},
             "<image>"),
        ):  # fmt: skip
            batches = self.batches(profile, line, modules, "padded", media, mark)[:2]
            folder = self.path(profile + "_ranks")
            os.mkdir(folder)
            for rank, batch in enumerate(batches):
                torch.save(batch, os.path.join(folder, "%d.pt" % rank))
            for sharded in (False, True):
                with self.subTest(profile, sharded=sharded):
                    split_job.start(train, (folder, profile, sharded), 2)


def rows_alone(batch):
    """The text of a batch, a sample a row, as any model takes it."""
    rows = huggingface.padded_text(batch) if len(batch["position_ids"].shape) == 3 else None
    if rows is None:
        rows = padded.rows(batch, pad=0)
        rows["labels"] = huggingface._moved_right(batch, rows["labels"])
    return {**{key: rows[key] for key in TEXT}, "use_cache": False}


def text_alone(adapter):
    def make(batch):
        plain = copy.copy(batch)
        plain.dummy_image = False
        if adapter is huggingface:
            return huggingface.padded_text(plain)
        for key in ("pixel_values", "pixel_values_videos"):
            plain.pop(key, None)
        return adapter.padded(plain)

    return make


def train(rank, folder, profile, sharded):
    """A step of one of two processes, whose tower's gradients and weights are on both."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.manual_seed(5)
    dist.init_process_group(
        "gloo", init_method="file://%s/store%d" % (folder, sharded), rank=rank, world_size=2,
        timeout=datetime.timedelta(seconds=tools.TIMEOUT_S))  # fmt: skip
    batch = torch.load(os.path.join(folder, "%d.pt" % rank), weights_only=False)
    if profile == "qwen2_audio":
        from tests.trainer_shim.python import audio_models

        model, inputs = audio_models.qwen2_audio(), huggingface_audio.qwen2_audio(batch)
    else:
        from ballast.adapters.huggingface_families import Family
        from tests.trainer_shim.python import family_models

        processor = family_models.processor_of(profile)
        model = family_models.model_of(profile, processor, "authors")
        inputs = Family(model.config).padded(batch)
    # Weights that no image ever reaches: layers behind the features, and their norms.
    labels = inputs.pop("labels")
    unused = losses(model, {**inputs, "labels": labels})[1]
    for name, weight in model.named_parameters():
        weight.requires_grad_(unused.get(name) is not None)
    if sharded:
        from torch.distributed.fsdp import fully_shard

        mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
        for name, module in reversed(list(model.named_modules())):
            if name.endswith(("tower", "vision_model", "layers.0")):
                fully_shard(module, mesh=mesh)
        trained = fully_shard(model, mesh=mesh)
    else:
        trained = torch.nn.parallel.DistributedDataParallel(model)
    loss = huggingface.loss(trained(**inputs), labels)
    loss.backward()
    grads = [w.grad.to_local() if sharded else w.grad for w in model.parameters()
             if w.grad is not None]  # fmt: skip
    total = [None, None]
    dist.all_gather_object(total, float(sum(grad.abs().sum() for grad in grads)))
    assert min(total) > 0 and (sharded or total[0] == total[1]), total
    dist.destroy_process_group()


def _add(name, check, family):
    setattr(DummiesTest, "test_" + name, lambda self: check(self, family))


every = int(accepted.option("--every", 1)) if __name__ == "__main__" else 1
for _family in (*accepted.FAMILIES, *accepted.QWEN)[::every]:
    _add(_family, DummiesTest.check, _family)
for _family in accepted.HEARING:
    _add(_family + "_hears", DummiesTest.check_heard, _family)


if __name__ == "__main__":
    unittest.main()
