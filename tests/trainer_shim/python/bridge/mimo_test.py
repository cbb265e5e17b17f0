"""Megatron-Bridge's own `pretrain_megatron_mimo` over a BallastDatasetProvider, three
processes over Gloo: one of vision for two of language, and two of vision for one of
language. Losses and gradients against Hugging Face's model on each sample alone.
"""

import os
import unittest

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

import ballast
from tests.harness import tools
from tests.trainer_shim.python.bridge import pretrain_test as common

import megatron.bridge.training.pretrain_megatron_mimo  # noqa: F401  after without_gpu
import model as models
from ballast.adapters import bridge_iterators, bridge_provider, megatron_bridge

PROCESSES, STEPS = 3, 2
JOB = dict(common.JOB, colocated="false", align="true")
#: Samples of one image each, all of one size.
ALIKE = dict(
    JOB, equal="true",
    images="{min: 1, max: 1, pixels: {min: 12544, max: 12544, mean: 12544, sigma: 0}}",
)  # fmt: skip


class Tower(models.Tower):
    """Bridge hands the module's process groups to each encoder, and reads its
    configuration."""

    def __init__(self, tower, config, pg_collection=None):
        super().__init__(tower)
        self.config = config


def configuration(source, address, vision, language):
    """Bridge's configuration: vision's ranks first, then the language model's."""
    from megatron.bridge.models.megatron_mimo.megatron_mimo_config import (
        MegatronMIMOParallelismConfig,
        ModuleParallelismConfig,
    )
    from megatron.bridge.models.megatron_mimo.megatron_mimo_provider import MegatronMIMOProvider
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.models.mimo.submodules.vision import VisionModalitySubmodules
    from megatron.core.transformer.spec_utils import ModuleSpec

    text = source.config.text_config
    layer = get_gpt_layer_local_spec(normalization="RMSNorm")
    layer.submodules.self_attention.submodules.core_attention = models.PackedAttention
    config = models.transformer_config(text, torch.float32, 1, 1)
    model = MegatronMIMOProvider(
        language_model_spec=ModuleSpec(module=GPTModel, params=dict(
            config=config,
            transformer_layer_spec=layer, vocab_size=common.VOCABULARY,
            max_sequence_length=8192, position_embedding_type="mrope",
            rotary_base=int(text.rope_parameters["rope_theta"]),
        )),
        modality_submodules_spec={"images": ModuleSpec(
            module=VisionModalitySubmodules, submodules={"encoders": {
                "qwen_visual": ModuleSpec(
                    module=Tower, params={"tower": source.model.visual, "config": config}
                )
            }},
        )},
        special_token_ids={"images": source.config.image_token_id},
        megatron_mimo_parallelism_config=MegatronMIMOParallelismConfig(module_parallelisms={
            "images": ModuleParallelismConfig(data_parallel_size=vision),
            "language": ModuleParallelismConfig(data_parallel_size=language, rank_offset=vision),
        }),
    )  # fmt: skip

    def copied(modules):
        for module in modules:
            if module.language_model is not None:
                models.copy_language(source, module.language_model, 0)
        return modules

    model.register_pre_wrap_hook(copied)
    model.register_pre_wrap_hook(megatron_bridge.accept_dummy_images)
    model.bf16 = model.fp16 = False
    cfg = common.configuration(source, address)
    cfg.model = model
    cfg.train.micro_batch_size = common.MICRO
    cfg.validation.eval_micro_batch_size = 8
    return cfg


def run(rank, address, folder, vision, language):
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(PROCESSES),
        CUDA_DEVICE_MAX_CONNECTIONS="1",
    )  # fmt: skip
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method="file://" + folder + "/meeting", rank=rank, world_size=PROCESSES
    )
    source = common.source_of(ballast.Connection.of(address).job())
    cfg = configuration(source, address, vision, language)
    step = bridge_iterators.uncut_forward_step()
    seen = {"parts": [], "model": None, "calls": 0}

    def forward_step(state, data_iterator, model):
        seen["model"] = model
        if torch.is_grad_enabled():
            if seen["calls"] % (common.GLOBAL // common.MICRO) == 0:
                # Bridge's MIMO loop (0.6.2) never calls optimizer.zero_grad: with an optimizer of
                # float32, whose gradients are DDP's buffer, a later step would count its first
                # micro-batch twice.
                for weight in model.parameters():
                    weight.grad = None
            seen["calls"] += 1
        output, loss_func = step(state, data_iterator, model)
        if loss_func is None or not torch.is_grad_enabled():
            return output, loss_func

        def seen_loss(output_tensor):
            result = loss_func(output_tensor)
            seen["parts"].append((float(result[0].detach()), int(result[1])))
            return result

        return output, seen_loss

    from megatron.bridge.training.pretrain_megatron_mimo import pretrain_megatron_mimo

    pretrain_megatron_mimo(cfg, forward_step, bridge_provider.build_data_iterators)
    gradients = {
        name.replace("module.", ""): weight.main_grad
        for name, weight in seen["model"].named_parameters()
    }
    torch.save((seen["parts"], gradients), folder + "/rank%d.pt" % rank)


class MimoTest(tools.ToolTest):
    def compare(self, job, vision, language):
        name = "%d_%d" % (vision, language)
        folder = self.path(name)
        os.mkdir(folder)
        config = self.write(
            name + ".yaml", common.CONFIG % dict(job, vision=vision, language=language)
        )
        with self.server(config, "unix:%s/a.sock" % folder) as (address,):
            processes.start_processes(
                run, (address, folder, vision, language), PROCESSES, start_method="fork"
            )
        whole = self.write(name + "_whole.yaml", common.CONFIG % dict(
            job, vision=1, language=1, colocated="true"))  # fmt: skip
        with self.server(whole, "unix:%s/whole.sock" % folder) as (address,):
            wanted, expected = common.apart(common.reference, address, "train", STEPS, 1)
        ranks = [torch.load(folder + "/rank%d.pt" % rank) for rank in range(PROCESSES)]
        parts = [part for part, _ in ranks if part]
        self.assertEqual(len(parts), language)
        each = len(parts[0]) // STEPS
        difference = 0.0
        for step, loss in enumerate(wanted):
            own = [part for rank in parts for part in rank[step * each : (step + 1) * each]]
            found = sum(total for total, _ in own) / sum(tokens for _, tokens in own)
            difference = max(difference, abs(found - loss) / loss)
        last = expected[-1]
        worst = max(
            common.largest_difference(
                {to(key): value for key, value in gradients.items()},
                {key: value for key, value in last.items() if key.startswith(prefix)},
            )
            for gradients, prefix, to in (
                (ranks[0][1], "visual.", lambda key: "visual." + key.partition(".tower.")[2]),
                (ranks[-1][1], "language_model.", lambda key: key),
            )
        )
        print("vision %d, language %d: largest relative difference: loss %.1e, gradient %.1e"
              % (vision, language, difference, worst))  # fmt: skip
        self.assertLess(difference, 1e-5)
        self.assertLess(worst, 1e-3)

    def test_one_vision_rank_for_two_of_language(self):
        self.compare(JOB, 1, 2)

    def test_two_vision_ranks_for_one_of_language(self):
        self.compare(ALIKE, 2, 1)


if __name__ == "__main__":
    unittest.main()
