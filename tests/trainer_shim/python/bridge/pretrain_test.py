"""Megatron-Bridge's own `pretrain`, with its `vlm_step` and its `qwen3_vl_step`, over a
BallastDatasetProvider: losses and gradients against Hugging Face's model on each sample
alone. Two data-parallel processes over Gloo, without Transformer Engine. The model is
Bridge's Qwen2.5-VL, whose arguments both steps give: its Qwen3-VL is made of Transformer
Engine's layers.
"""

import copy
import importlib
import os
import tempfile
import types
import unittest

import torch
import torch.multiprocessing as processes

import ballast
from tests.harness import tools
from tests.trainer_shim.python.bridge import without_gpu  # noqa: F401

import megatron.bridge.training.pretrain  # noqa: E402, F401  once, for all processes

import model as models  # noqa: E402
from ballast import FailedPrecondition, InvalidArgument  # noqa: E402
from ballast.adapters import bridge_provider, huggingface  # noqa: E402

RANKS, STEPS, GLOBAL, MICRO, EVALUATE = 2, 2, 16, 4, 1
JOB = {
    "images": "{min: 0, max: 2, pixels: {min: 4000, max: 30000, mean: 12000, sigma: 0.8}}",
    "vision": RANKS, "language": RANKS, "colocated": "true", "align": "false", "equal": "false",
    "packing": "align: 4",
}  # fmt: skip
LEARNING_RATE = 0.0  # so that every step has the same weights
VOCABULARY = 320
CONFIG = """
sources:
  - name: mock
    format: mock
    lengths: {mode: lognormal, min: 64, max: 256, mean: 120, sigma: 0.6, count: 400}
    images: %(images)s
  - name: held_out
    format: mock
    split: valid
    lengths: {mode: lognormal, min: 64, max: 256, mean: 120, sigma: 0.6, count: 40}
    images: %(images)s
model:
  profile: qwen2_5_vl
  tokenizer: bytes
  token_ids: {image: 256, video: 257, vision_start: 258, vision_end: 259, im_start: 260,
              im_end: 261, end_of_text: 262, pad: 262}
batch: {global: 16, micro: 4, max_tokens: 1024, valid: {global: 8, micro: 8}}
topology:
  modules: {vision: {dp: %(vision)d}, language: {dp: %(language)d}}
  colocated: %(colocated)s
balance: {align_images: %(align)s, equal_count: %(equal)s}
packing: {%(packing)s}
serve: {listen: ["127.0.0.1:0"]}
"""


def source_of(job):
    return models.hugging_face(job["model"]["token_ids"], VOCABULARY, hidden=64, layers=2)


def configuration(source, address, step="vlm_step", steps=STEPS, checkpoint=None):
    """Bridge's configuration of a run, as a recipe makes it.

    Args:
        checkpoint: folder to begin from, if there is something in it, and to save into.
    """
    import torch.nn.functional as F
    from megatron.bridge.models.qwen_vl.qwen25_vl_provider import Qwen25VLModelProvider
    from megatron.bridge.training.config import ValidationConfig
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    from ballast.adapters.bridge_provider import BallastDatasetProvider

    def layer(*_):
        spec = get_gpt_layer_local_spec(normalization="RMSNorm")
        attention = models.PackedAttention if step == "vlm_step" else models.RowAttention
        spec.submodules.self_attention.submodules.core_attention = attention
        return spec

    text, ids = source.config.text_config, source.config
    model = Qwen25VLModelProvider(
        num_layers=text.num_hidden_layers, hidden_size=text.hidden_size,
        ffn_hidden_size=text.intermediate_size, num_attention_heads=text.num_attention_heads,
        num_query_groups=text.num_key_value_heads, normalization="RMSNorm",
        layernorm_epsilon=text.rms_norm_eps, persist_layer_norm=False, gated_linear_unit=True,
        activation_func=F.silu, add_bias_linear=False, add_qkv_bias=True,
        attention_dropout=0.0, hidden_dropout=0.0, masked_softmax_fusion=False,
        bias_dropout_fusion=False, apply_rope_fusion=False, gradient_accumulation_fusion=False,
        bias_activation_fusion=False, cross_entropy_loss_fusion=False,
        mrope_section=text.rope_parameters["mrope_section"],
        rotary_base=text.rope_parameters["rope_theta"], calculate_per_token_loss=True,
        share_embeddings_and_output_weights=False, vocab_size=VOCABULARY, seq_length=1024,
        transformer_layer_spec=layer, vision_config=source.config.vision_config,
        image_token_id=ids.image_token_id, video_token_id=ids.video_token_id,
        vision_start_token_id=ids.vision_start_token_id,
        vision_end_token_id=ids.vision_end_token_id, use_cpu_initialization=True,
        params_dtype=torch.float32, make_vocab_size_divisible_by=1,
    )  # fmt: skip

    def copied(modules):
        (module,) = modules
        models.copy_language(source, module.language_model, 0)
        module.visual.load_state_dict(source.model.visual.state_dict())
        return modules

    model.register_pre_wrap_hook(copied)
    return container(
        model,
        BallastDatasetProvider(
            servers=address, model="qwen2_5_vl", step=step,
            loader={"device": "cpu", "array": "torch"},
        ),
        ValidationConfig(
            eval_interval=STEPS, eval_iters=EVALUATE, eval_global_batch_size=8,
            eval_micro_batch_size=8 // RANKS,
        ),
        steps, checkpoint,
    )  # fmt: skip


def container(model, dataset, validation, steps, checkpoint=None):
    """Bridge's configuration of two processes over Gloo, without updates of weights."""
    from megatron.bridge.training.config import (
        CheckpointConfig, ConfigContainer, DistributedDataParallelConfig,
        DistributedInitConfig, LoggerConfig, OptimizerConfig, RNGConfig, SchedulerConfig,
        TrainingConfig,
    )  # fmt: skip
    from megatron.bridge.training.tokenizers.config import TokenizerConfig

    return ConfigContainer(
        model=model,
        train=TrainingConfig(
            train_iters=steps, global_batch_size=GLOBAL, micro_batch_size=MICRO // RANKS
        ),
        validation=validation,
        optimizer=OptimizerConfig(
            optimizer="adam", lr=LEARNING_RATE, min_lr=LEARNING_RATE, weight_decay=0.0,
            clip_grad=0.0, bf16=False, fp16=False, use_distributed_optimizer=False,
        ),
        scheduler=SchedulerConfig(
            lr_decay_style="constant", lr_warmup_iters=0, start_weight_decay=0.0,
            end_weight_decay=0.0, weight_decay_incr_style="constant",
        ),
        ddp=DistributedDataParallelConfig(
            overlap_grad_reduce=False, use_distributed_optimizer=False,
            average_in_collective=False,
        ),
        dataset=dataset,
        logger=LoggerConfig(log_interval=1, tensorboard_dir=None),
        tokenizer=TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=VOCABULARY - 1),
        checkpoint=CheckpointConfig(
            save=checkpoint, load=checkpoint, save_interval=1, ckpt_format="torch_dist",
            async_save=False, async_strategy="mcore", use_persistent_ckpt_worker=False,
            fully_parallel_save=False, save_optim=False, load_optim=False, save_rng=False,
            load_rng=False,
        ),
        rng=RNGConfig(seed=1),
        dist=DistributedInitConfig(distributed_backend="gloo", use_gloo_process_groups=False),
    )  # fmt: skip


def run(rank, address, folder, step, steps=STEPS, checkpoint=None):
    """One process of the job; writes what its steps gave."""
    join(rank, "%s/meeting%d" % (folder, steps))
    with ballast.Loader(address, dp_rank=rank, device="cpu") as loader:
        source = source_of(loader.job)
    cfg = configuration(source, address, step, steps, checkpoint)
    modules = {"vlm_step": "training", "qwen3_vl_step": "models.qwen_vl"}
    forward_step = importlib.import_module(
        "megatron.bridge.%s.%s" % (modules[step], step)
    ).forward_step
    seen = pretrained(cfg, forward_step)
    if rank == 0:
        torch.save(seen, folder + "/seen.pt")


def join(rank, meeting):
    """Makes this process one of the job's."""
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), CUDA_DEVICE_MAX_CONNECTIONS="1"
    )
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method="file://" + meeting, rank=rank, world_size=RANKS
    )


def pretrained(cfg, forward_step):
    """Runs Bridge's `pretrain`; returns losses and gradients of its steps, and what it
    evaluated."""
    from megatron.bridge.training.callbacks import Callback
    from megatron.bridge.training.pretrain import pretrain

    seen = {"losses": [], "gradients": [], "evaluated": []}

    class Seen(Callback):
        def on_train_step_end(self, context):
            seen["losses"].append({key: float(value) for key, value in context.loss_dict.items()})
            module = context.model[0].module
            seen["gradients"].append(
                {name: weight.main_grad.clone() for name, weight in module.named_parameters()}
            )

        def on_eval_end(self, context):
            seen["evaluated"].append(
                {key: float(value) for key, value in context.total_loss_dict.items()}
            )

    pretrain(cfg, forward_step, callbacks=[Seen()])
    return seen


def reference(address, split, steps, ranks=RANKS, make=source_of):
    """(losses, gradients) of each step by Hugging Face's model on each sample alone, the
    gradients under Megatron-Core's names."""
    losses, gradients = [], []
    for step in range(steps):
        total, tokens, source = 0.0, 0, None
        for rank in range(ranks):
            with ballast.Loader(address, dp_rank=rank, device="cpu", array="torch", split=split,
                                start_step=step, steps=1) as loader:  # fmt: skip
                source = source or make(loader.job)
                for batch in loader:
                    tokens = batch.step_totals.label_tokens
                    for sample in huggingface.unpacked(batch):
                        count = int((sample["labels"][:, 1:] != -100).sum())
                        if count:
                            loss = source(**sample).loss * count / tokens
                            loss.backward()
                            total += float(loss.detach())
        losses.append(total)
        named = {
            "visual." + name: weight.grad for name, weight in source.model.visual.named_parameters()
        }
        as_weights = copy.deepcopy(source)
        for weight, of in zip(as_weights.parameters(), source.parameters()):
            weight.data = of.grad if of.grad is not None else torch.zeros_like(weight)
        text = as_weights.model.language_model
        named["language_model.embedding.word_embeddings.weight"] = text.embed_tokens.weight.data
        named["language_model.decoder.final_layernorm.weight"] = text.norm.weight.data
        named["language_model.output_layer.weight"] = as_weights.lm_head.weight.data
        for i, layer in enumerate(text.layers):
            for name, value in models.layer_weights(layer, text.config).items():
                named["language_model.decoder.layers.%d.%s" % (i, name)] = value.data
        gradients.append(named)
    return losses, gradients


def apart(function, *arguments):
    """What a function returns, in another process: one that forks must not know gRPC."""
    with tempfile.NamedTemporaryFile() as file:
        processes.start_processes(_kept, (file.name, function, arguments), 1, start_method="fork")
        return torch.load(file.name)


def _kept(_, path, function, arguments):
    torch.set_num_threads(1)
    torch.save(function(*arguments), path)


def largest_difference(found, wanted):
    """Of gradients, relative to each one's norm."""
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    return max(float((found[name] - of).norm() / of.norm()) for name, of in wanted.items())


class ProviderTest(unittest.TestCase):
    def groups(self, **sizes):
        return types.SimpleNamespace(**{
            key: types.SimpleNamespace(size=lambda n=size: n, rank=lambda n=size: n - 1)
            for key, size in dict({"dp": 1, "tp": 1, "pp": 1, "cp": 1}, **sizes).items()
        })  # fmt: skip

    def job(self, vision, language):
        return {"modules": [dict(module="vision", **vision), dict(module="language", **language)]}

    def test_place(self):
        place = bridge_provider._place
        first = place(self.groups(dp=2, tp=2), self.job({"dp": 2}, {"dp": 2, "tp": 2}))
        self.assertEqual(first["modules"], ("vision", "language"))
        self.assertEqual((first["dp_rank"], first["tp_rank"]), (1, {"vision": 0, "language": 1}))
        heard = self.job({"dp": 2}, {"dp": 2, "tp": 2})
        heard["modules"].insert(1, {"module": "audio", "dp": 2})
        three = place(self.groups(dp=2, tp=2), heard)
        self.assertEqual(three["modules"], ("vision", "audio", "language"))
        self.assertEqual(three["tp_rank"], {"vision": 0, "audio": 0, "language": 1})
        later = place(self.groups(pp=2), self.job({"dp": 1}, {"dp": 1, "pp": 2}))
        self.assertEqual((later["modules"], later["pp_rank"]), ("language", 1))
        # Context ranks of a model that cuts whole batches are the job's tensor ranks.
        whole = place(self.groups(tp=2, cp=2), self.job({"dp": 1}, {"dp": 1, "tp": 4}))
        self.assertEqual((whole["tp_rank"]["language"], whole["cp_rank"]["language"]), (3, 0))
        cut = place(self.groups(cp=2), self.job({"dp": 1}, {"dp": 1, "cp": 2}))
        self.assertEqual(cut["cp_rank"]["language"], 1)
        with self.assertRaisesRegex(FailedPrecondition, "found dp 4; .*language.dp is 2"):
            place(self.groups(dp=4), self.job({"dp": 2}, {"dp": 2}))

    def test_models_that_would_train_on_something_else(self):
        check, model = bridge_provider._check_model, types.SimpleNamespace
        one, stages = self.groups(), self.groups(pp=2)
        check(model(calculate_per_token_loss=True), one, {"padded": False}, "vlm_step")
        for given, groups, job, step, said in (
            (model(calculate_per_token_loss=False), one, {}, "vlm_step",
             "per_token_loss: found false"),
            (model(transformer=model(calculate_per_token_loss=False)), one, {}, "vlm_step",
             "per_token_loss: found false"),
            (model(variable_seq_lengths=False), stages, {}, "vlm_step", "variable_seq_lengths"),
            (model(), one, {"padded": False}, "qwen3_vl_step", "packing.mode: padded"),
            (model(), one, {"padded": False}, "qwen3_omni_step", "qwen3_omni_step takes rows"),
        ):  # fmt: skip
            with self.assertRaisesRegex(FailedPrecondition, said):
                check(given, groups, job, step)
        check(model(variable_seq_lengths=False), stages, {"padded": True}, "vlm_step")

    def test_options_and_other_callers_are_refused(self):
        provider = bridge_provider.BallastDatasetProvider
        with self.assertRaisesRegex(InvalidArgument, "step: found 'gpt_step'"):
            provider(servers="unix:/nowhere", step="gpt_step")
        with self.assertRaisesRegex(InvalidArgument, "dataloader_type: found 'single'"):
            provider(servers="unix:/nowhere", dataloader_type="single")
        with self.assertRaisesRegex(FailedPrecondition, "found no build_train_valid_test_data_l"):
            provider(servers="unix:/nowhere").build_datasets(None)


class PretrainTest(tools.ToolTest):
    def compare(self, step, **job):
        folder = self.path(step)
        os.mkdir(folder)
        whole = self.write(step + "_whole.yaml", CONFIG % JOB)
        with self.server(whole, "unix:%s/whole.sock" % folder) as (address,):
            wanted, gradients = apart(reference, address, "train", STEPS)
            evaluated, _ = apart(reference, address, "valid", 2)
        config = self.write(step + ".yaml", CONFIG % dict(JOB, **job))
        with self.server(config, "unix:%s/a.sock" % folder) as (address,):
            processes.start_processes(run, (address, folder, step), RANKS, start_method="fork")
        seen = torch.load(folder + "/seen.pt")
        losses = [found["lm loss"] for found in seen["losses"]]
        self.assertEqual(len(losses), STEPS)
        difference = max(abs(a - b) / b for a, b in zip(losses, wanted))
        worst = max(map(largest_difference, seen["gradients"], gradients))
        print("%s: largest relative difference: loss %.1e, gradient %.1e"
              % (step, difference, worst))  # fmt: skip
        self.assertLess(difference, 1e-5)
        self.assertLess(worst, 1e-3)
        # Within the training and after it, each time the next samples.
        self.assertEqual(len(seen["evaluated"]), 2)
        for found, loss in zip(seen["evaluated"], evaluated):
            self.assertAlmostEqual(found["lm loss"], loss, delta=1e-5 * loss)

    def test_vlm_step(self):
        self.compare("vlm_step")

    def test_a_resumed_run_goes_on(self):
        config = self.write("resumed.yaml", CONFIG % JOB)
        checkpoint = self.path("checkpoint")
        losses = []
        with self.server(config, "unix:%s/resumed.sock" % self.folder) as (address,):
            for steps in (1, 2):
                processes.start_processes(
                    run, (address, self.folder, "vlm_step", steps, checkpoint), RANKS,
                    start_method="fork",
                )  # fmt: skip
                seen = torch.load(self.folder + "/seen.pt")
                losses += [found["lm loss"] for found in seen["losses"]]
            wanted, _ = apart(reference, address, "train", 2)
        self.assertEqual(len(losses), 2)
        for found, loss in zip(losses, wanted):
            self.assertAlmostEqual(found, loss, delta=1e-5 * loss)

    def test_qwen3_vl_step(self):
        self.compare("qwen3_vl_step", equal="true", packing="mode: padded")


if __name__ == "__main__":
    unittest.main()
