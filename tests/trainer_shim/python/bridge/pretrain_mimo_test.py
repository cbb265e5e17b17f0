"""Megatron-LM's own `examples/mimo/pretrain_mimo.py` with `mimo_data_loaders`, three processes
over Gloo: one of vision for two of language. Losses and vision's gradients against Hugging
Face's model on each sample alone.

No package contains the program: BALLAST_MEGATRON_LM names a copy of Megatron-LM's
repository, of the installed megatron-core's version. Its only model is made of Transformer
Engine's layers, so this test gives it another provider; the rest is the program's: topology,
forward step, gradient sync, and `pretrain` of the installed megatron-core.
"""

import functools
import os
import sys
import unittest

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

import ballast
from tests.harness import tools
from tests.trainer_shim.python.bridge import pretrain_test as common

MEGATRON_LM = os.environ.get("BALLAST_MEGATRON_LM", "")
if not os.path.exists(MEGATRON_LM + "/examples/mimo/pretrain_mimo.py"):
    print("SKIPPED: no package has Megatron-LM's examples/mimo; name a copy of its repository"
          " (--test_env=BALLAST_MEGATRON_LM=...)")  # fmt: skip
    sys.exit(0)
sys.path.append(MEGATRON_LM)

import megatron.training.training  # noqa: E402, F401  after without_gpu

import model as models  # noqa: E402
from ballast.adapters import megatron_bridge, megatron_lm  # noqa: E402

PROCESSES, STEPS, DP = 3, 2, 2
JOB = dict(common.JOB, colocated="false", align="true")
ENCODER = "qwen_visual"
ARGUMENTS = (
    "--num-layers 2 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4"
    " --group-query-attention --num-query-groups 2 --seq-length 1024"
    " --max-position-embeddings 8192 --vocab-size %d --make-vocab-size-divisible-by 1"
    " --normalization RMSNorm --swiglu --disable-bias-linear --transformer-impl local"
    " --no-persist-layer-norm --no-gradient-accumulation-fusion --no-masked-softmax-fusion"
    " --no-bias-swiglu-fusion --no-bias-dropout-fusion --no-rope-fusion"
    " --attention-dropout 0 --hidden-dropout 0 --calculate-per-token-loss"
    " --use-cpu-initialization --position-embedding-type none"
    " --encoder-tp 1 --encoder-dp 1 --llm-offset 1 --llm-tp 1 --llm-pp 1 --llm-dp %d"
    " --micro-batch-size %d --global-batch-size %d --train-iters %d"
    " --lr 0 --min-lr 0 --lr-decay-style constant --clip-grad 0 --weight-decay 0"
    " --use-distributed-optimizer --eval-interval %d --eval-iters 0 --log-interval 1"
    " --rerun-mode disabled --distributed-backend gloo --tokenizer-type NullTokenizer"
) % (common.VOCABULARY, DP, common.MICRO // DP, common.GLOBAL, STEPS, STEPS)


class Tower(models.Tower):
    """The program reads each module's configuration."""

    def __init__(self, tower, config):
        super().__init__(tower)
        self.config = config


def name_types_as_on_gpus():
    """Megatron-Core's distributed optimizer takes weights by the name of their type."""
    type_of = torch.Tensor.type

    def named(tensor, *given, **options):
        found = type_of(tensor, *given, **options)
        if isinstance(found, str) and ".cuda." not in found:
            return found.replace("torch.", "torch.cuda.")
        return found

    torch.Tensor.type = named


def provider_of(source):
    """The program's description of a model, for a small Qwen2.5-VL."""
    from examples.mimo.model_providers import MimoProvider
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.models.mimo.submodules.vision import VisionModalitySubmodules
    from megatron.core.pipeline_parallel.multimodule_communicator import (
        MultiModulePipelineCommunicator,
    )
    from megatron.core.transformer.spec_utils import ModuleSpec

    text = source.config.text_config
    config = models.transformer_config(text, torch.float32, 1, 1)
    layer = get_gpt_layer_local_spec(normalization="RMSNorm")
    layer.submodules.self_attention.submodules.core_attention = models.PackedAttention

    def language(args, groups, grid):
        return ModuleSpec(module=GPTModel, params=dict(
            config=config, transformer_layer_spec=layer, vocab_size=common.VOCABULARY,
            max_sequence_length=8192, position_embedding_type="mrope",
            rotary_base=int(text.rope_parameters["rope_theta"]), pg_collection=groups,
        ))  # fmt: skip

    def vision(args, groups, grid):
        tower = ModuleSpec(module=Tower, params={"tower": source.model.visual, "config": config})
        return ModuleSpec(
            module=VisionModalitySubmodules, params={"pg_collection": groups},
            submodules={"encoders": {ENCODER: tower}},
        )  # fmt: skip

    return MimoProvider(
        encoder_module_names=(ENCODER,), language_spec=language, encoder_specs={ENCODER: vision},
        special_token_ids=lambda args: {ENCODER: source.config.image_token_id},
        build_communicator=lambda args, topology: MultiModulePipelineCommunicator(
            topology.grids, {ENCODER: ["language"], "language": []}, config,
            dim_mapping={"s": 0, "h": 2, "b": 1}, module_output_ndim={ENCODER: 2},
        ),
    )  # fmt: skip


def run(rank, address, folder):
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(PROCESSES),
        CUDA_DEVICE_MAX_CONNECTIONS="1",
    )  # fmt: skip
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method="file://" + folder + "/meeting", rank=rank, world_size=PROCESSES
    )
    name_types_as_on_gpus()
    from examples.mimo import pretrain_mimo
    from examples.mimo.training import builder

    source = common.source_of(ballast.Connection.of(address).job())
    provider = provider_of(source)
    seen = {"parts": [], "model": None}

    def prepared(modules):
        (seen["model"],) = modules
        # The wrapper of bfloat16 has the configuration that DDP asks for.
        for submodule in seen["model"].modality_submodules.values():
            submodule.config = next(iter(submodule.encoders.values())).config
        if seen["model"].language_model is not None:
            models.copy_language(source, seen["model"].language_model, 0)
        return megatron_bridge.accept_dummy_images(modules)

    def adapter(loader):
        return megatron_bridge.Mimo(loader, modality=ENCODER, encoders=(ENCODER,))

    def forward_step(data_iterator, model):
        output, loss_func = step(data_iterator, model)

        def seen_loss(output_tensor):
            result = loss_func(output_tensor)
            seen["parts"].append((float(result[0].detach()), int(result[1])))
            return result

        return output, seen_loss

    step = pretrain_mimo.mimo_forward_step
    pretrain_mimo.mimo_forward_step = forward_step
    pretrain_mimo.resolve_provider = builder.resolve_provider = lambda args: provider
    pretrain_mimo.MimoBuildConfig = functools.partial(
        pretrain_mimo.MimoBuildConfig, pre_wrap_hooks=[prepared]
    )
    pretrain_mimo.shutdown_distributed = lambda: None
    # What docs/megatron.md says.
    pretrain_mimo.build_train_valid_test_data_loaders = megatron_lm.mimo_data_loaders(
        address, adapter=adapter, device="cpu", array="torch"
    )
    sys.argv = ["pretrain_mimo.py", *ARGUMENTS.split()]
    pretrain_mimo.main()
    gradients = {
        name.replace("module.", ""): weight.main_grad
        for name, weight in seen["model"].named_parameters()
    }
    torch.save((seen["parts"], gradients), folder + "/rank%d.pt" % rank)


class PretrainMimoTest(tools.ToolTest):
    def test_one_vision_rank_for_two_of_language(self):
        config = self.write("job.yaml", common.CONFIG % dict(JOB, vision=1, language=DP))
        with self.server(config, "unix:%s/a.sock" % self.folder) as (address,):
            processes.start_processes(run, (address, self.folder), PROCESSES, start_method="fork")
        whole = self.write(
            "whole.yaml", common.CONFIG % dict(JOB, vision=1, language=1, colocated="true")
        )
        with self.server(whole, "unix:%s/whole.sock" % self.folder) as (address,):
            wanted, expected = common.apart(common.reference, address, "train", STEPS, 1)
        ranks = [torch.load(self.folder + "/rank%d.pt" % rank) for rank in range(PROCESSES)]
        each = len(ranks[1][0]) // STEPS
        difference = 0.0
        for number, loss in enumerate(wanted):
            own = [part for parts, _ in ranks[1:]
                   for part in parts[number * each : (number + 1) * each]]  # fmt: skip
            found = sum(total for total, _ in own) / sum(tokens for _, tokens in own)
            difference = max(difference, abs(found - loss) / loss)
        worst = common.largest_difference(
            {"visual." + key.partition(".tower.")[2]: of for key, of in ranks[0][1].items()},
            {key: of for key, of in expected[-1].items() if key.startswith("visual.")},
        )
        print("largest relative difference: loss %.1e, gradient %.1e" % (difference, worst))
        self.assertLess(difference, 1e-5)
        self.assertLess(worst, 1e-3)


if __name__ == "__main__":
    unittest.main()
