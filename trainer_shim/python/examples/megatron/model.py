"""Megatron-Core's MimoModel with the weights of a small Qwen2.5-VL or Qwen3-VL.

Runs without Transformer Engine and Apex, on a CPU too: Megatron-Core's own layers,
torch's RMS norm, and an attention over packed sequences that calls torch.
"""

import contextlib
import copy

import torch
import torch.nn.functional as F
import transformers
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.models.mimo.config.base_configs import MimoModelConfig
from megatron.core.models.mimo.model.base import MimoModel
from megatron.core.models.mimo.submodules.vision import VisionModalitySubmodules
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import nn

from ballast.adapters import megatron_bridge

MODALITY, ENCODER = "images", "qwen_visual"


def hugging_face(token_ids, vocabulary, *, hidden=64, layers=4, seed=7, family="qwen2_5_vl"):
    """Creates a Qwen2.5-VL, or a Qwen3-VL (`family` "qwen3_vl"), with random weights from a
    configuration.

    Args:
        token_ids: `loader.job["model"]["token_ids"]`.
    """
    text = dict(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=2 * hidden,
        num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        bos_token_id=None, eos_token_id=None, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6,
                         "mrope_section": sections(hidden // 4)},
    )  # fmt: skip
    vision = dict(
        hidden_size=hidden, intermediate_size=2 * hidden, num_heads=4,
        spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=hidden,
    )  # fmt: skip
    special = {
        "image_token_id": token_ids["image"],
        "video_token_id": token_ids["video"],
        "vision_start_token_id": token_ids["vision_start"],
        "vision_end_token_id": token_ids["vision_end"],
    }
    torch.manual_seed(seed)
    if family == "qwen3_vl":
        make, settings = transformers.Qwen3VLForConditionalGeneration, transformers.Qwen3VLConfig
        vision.update(depth=3, patch_size=16, num_position_embeddings=256,
                      deepstack_visual_indexes=[0, 1])  # fmt: skip
        text["head_dim"] = hidden // 4
        sizes = [hidden // 8 - 2 * (hidden // 32), hidden // 32, hidden // 32]
        text["rope_parameters"].update(mrope_section=sizes, mrope_interleaved=True)
    else:
        make = transformers.Qwen2_5_VLForConditionalGeneration
        settings = transformers.Qwen2_5_VLConfig
        vision.update(depth=2, patch_size=14, window_size=112, fullatt_block_indexes=[1])
        text.update(use_sliding_window=False)
    model = make(settings(
        text_config=text, vision_config=vision, tie_word_embeddings=False, **special
    ))  # fmt: skip
    # With the default standard deviation of 0.02, images would have almost no effect.
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, weight.shape[-1] ** -0.5)
    return model


def sections(head_dim):
    """Numbers of half a head's rotary channels for time, height and width."""
    time = head_dim // 8
    height = (head_dim // 2 - time) // 2
    return [time, height, head_dim // 2 - time - height]


class PackedAttention(MegatronModule):
    """Causal attention within each packed sample, by torch."""

    def __init__(self, config, layer_number, attn_mask_type, attention_type, **_):
        super().__init__(config=config)

    def forward(self, query, key, value, attention_mask, *, packed_seq_params=None, **_):
        """Arguments: [T, heads, width] each, `key` and `value` with fewer heads.
        Returns [T, heads * width]."""
        places = packed_seq_params.cu_seqlens_q_padded
        groups = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
        if query.is_cuda:
            from torch.nn.attention.varlen import varlen_attn

            longest = int(packed_seq_params.max_seqlen_q)
            mixed = varlen_attn(
                query, key, value, places, places, longest, longest, window_size=(-1, 0)
            )
            return mixed.flatten(1)
        parts = []
        for begin, end in zip(places.tolist(), places[1:].tolist()):
            piece = [x[begin:end].transpose(0, 1)[None] for x in (query, key, value)]
            parts.append(F.scaled_dot_product_attention(*piece, is_causal=True)[0].transpose(0, 1))
        return torch.cat(parts).flatten(1)


class WholeSequence(torch.autograd.Function):
    """[S/cp, ...] of each context rank -> [S, ...]. The sequence is cut into 2·cp equal
    pieces; rank r has pieces r and 2·cp - 1 - r."""

    @staticmethod
    def forward(ctx, local, group):
        ctx.group = group
        size = group.size()
        parts = [torch.empty_like(local) for _ in range(size)]
        torch.distributed.all_gather(parts, local.contiguous(), group=group)
        halves = [part.chunk(2) for part in parts]
        return torch.cat([first for first, _ in halves] + [last for _, last in halves[::-1]])

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        torch.distributed.all_reduce(gradient, group=ctx.group)
        return torch.cat(own_pieces(gradient, ctx.group)), None


def own_pieces(sequence, group):
    """The two pieces of [S, ...] that this context rank has."""
    pieces = sequence.chunk(2 * group.size())
    return pieces[group.rank()], pieces[-1 - group.rank()]


def attend_to_rows(query, key, value, group):
    """Causal attention over rows [S, B], by torch: this context rank's own tokens' attention
    to the whole rows.

    Arguments: [S/cp, B, heads, width] each, `key` and `value` with fewer heads. Returns
    [S/cp, B, heads * width]."""
    groups = query.shape[2] // key.shape[2]
    whole = [WholeSequence.apply(x, group).repeat_interleave(groups, dim=2) for x in (key, value)]
    places = torch.arange(whole[0].shape[0], device=query.device)
    causal = torch.cat(own_pieces(places, group))[:, None] >= places
    mixed = F.scaled_dot_product_attention(
        *(x.permute(1, 2, 0, 3) for x in (query, *whole)), attn_mask=causal
    )
    return mixed.permute(2, 0, 1, 3).flatten(2)


class RowAttention(MegatronModule):
    """Causal attention over rows, with the model's context ranks."""

    def __init__(self, config, layer_number, attn_mask_type, attention_type, **_):
        super().__init__(config=config)

    def forward(self, query, key, value, attention_mask, *, packed_seq_params=None, **_):
        """As attend_to_rows."""
        assert packed_seq_params is None, "a packed batch: wanted packing.mode padded"
        return attend_to_rows(query, key, value, parallel_state.get_context_parallel_group())


class SharedAttention(PackedAttention):
    """Causal attention with the context ranks that PackedSeqParams names; without them
    within each packed sample."""

    def forward(self, query, key, value, attention_mask, *, packed_seq_params=None, **more):
        """As attend_to_rows, or PackedAttention."""
        if packed_seq_params.qkv_format == "sbhd":
            return attend_to_rows(query, key, value, packed_seq_params.cp_group)
        return super().forward(
            query, key, value, attention_mask, packed_seq_params=packed_seq_params, **more
        )


class Tower(nn.Module):
    """Hugging Face's vision tower with the argument names of MimoModel's encoders."""

    def __init__(self, tower):
        super().__init__()
        self.tower = tower

    def forward(self, hidden_states, grid_thw):
        dtype = next(self.tower.parameters()).dtype
        return self.tower(hidden_states.to(dtype), grid_thw=grid_thw).pooler_output


@contextlib.contextmanager
def deepstack(language, is_image, features):
    """Lets a GPTModel add features of the vision tower to the hidden states after its first
    layers, as Qwen3-VL does, until the block ends. Arguments: as
    `megatron_core.ContextImages.deepstack` returns them; one entry of `features` a layer."""

    def adding(rows):
        def hook(layer, inputs, output):
            hidden, context = output
            added = rows[:, None].to(hidden.dtype)
            return hidden.index_put((is_image[0],), added, accumulate=True), context

        return hook

    with contextlib.ExitStack() as hooks:
        for layer, rows in zip(language.decoder.layers, features, strict=False):
            hooks.callback(layer.register_forward_hook(adding(rows)).remove)
        yield


def interleave(rotary, sizes):
    """Lets the channels of time, height and width take turns, as Qwen3-VL's do; Megatron-Core's
    MultimodalRotaryEmbedding groups the channels by axis.

    Args:
        sizes: `mrope_section`, the numbers of channels of each axis in half a head.
    """
    axes = torch.zeros(sum(sizes), dtype=torch.long)
    for axis in (1, 2):
        axes[axis : 3 * sizes[axis] : 3] = axis
    assert axes.bincount().tolist() == list(sizes), "%s do not take turns" % sizes
    order = axes.argsort(stable=True)
    rotary.inv_freq = rotary.inv_freq[order]
    back = order.argsort()
    back = torch.cat((back, back + len(back)))
    rotary.register_forward_hook(lambda _, __, angles: angles[..., back])


def transformer_config(text, dtype, stages, context, tensor=1):
    """TransformerConfig of a Qwen's language model without fused kernels."""
    qwen3 = is_qwen3(text)
    return TransformerConfig(
        num_layers=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        ffn_hidden_size=text.intermediate_size,
        num_attention_heads=text.num_attention_heads,
        num_query_groups=text.num_key_value_heads,
        normalization="RMSNorm", layernorm_epsilon=text.rms_norm_eps, persist_layer_norm=False,
        gated_linear_unit=True, activation_func=F.silu,
        add_bias_linear=False, add_qkv_bias=not qwen3, qk_layernorm=qwen3,
        attention_dropout=0.0, hidden_dropout=0.0,
        masked_softmax_fusion=False, bias_dropout_fusion=False, apply_rope_fusion=False,
        gradient_accumulation_fusion=False, bias_activation_fusion=False,
        mrope_section=text.rope_parameters["mrope_section"],
        calculate_per_token_loss=True, use_cpu_initialization=True,
        params_dtype=dtype, bf16=dtype == torch.bfloat16,
        pipeline_model_parallel_size=stages, pipeline_dtype=dtype,
        context_parallel_size=context, tensor_model_parallel_size=tensor,
        variable_seq_lengths=True, moe_token_dispatcher_type="alltoall",
    )  # fmt: skip


def is_qwen3(text):
    """Whether a text configuration of Hugging Face's is Qwen3-VL's."""
    return text.model_type.startswith("qwen3_vl")


def mimo_model(source, image_token, *, max_tokens=16384, grids=None, groups=None,
               rows=False, context=1, tensor=1, more=None, attention=None):  # fmt: skip
    """MimoModel with the weights of `source`, Hugging Face's Qwen2.5-VL or Qwen3-VL. The
    latter's deepstack features are the caller's part (`deepstack`).

    Args:
        rows: for padded batches, instead of packed ones.
        attention: the class of the language model's attention. Default: as `rows` says.
        context: context-parallel size.
        tensor: tensor-parallel size of the language model; each rank has the whole tower.
        grids: for a pipeline, MimoModelConfig's `module_to_grid_map`.
        groups: ProcessGroupCollections of "images" and "language", of which a rank
            has its own module's.
        more: (ModuleSpec, token) of further modalities, by name.
    """
    text = source.config.text_config
    dtype = source.lm_head.weight.dtype
    language, vision = ((groups or {}).get(key) for key in ("language", MODALITY))
    stages, stage = (language.pp.size(), language.pp.rank()) if language else (1, 0)
    config = transformer_config(text, dtype, stages, context, tensor)
    layer = get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=config.qk_layernorm)
    attention = attention or (RowAttention if rows else PackedAttention)
    layer.submodules.self_attention.submodules.core_attention = attention
    tower = copy.deepcopy(source.model.visual)
    encoder = ModuleSpec(module=Tower, params={"tower": tower})
    model = MimoModel(
        MimoModelConfig(
            language_model_spec=ModuleSpec(
                module=GPTModel,
                params=dict(
                    config=config, transformer_layer_spec=layer, vocab_size=text.vocab_size,
                    max_sequence_length=max_tokens, position_embedding_type="mrope",
                    rotary_base=int(text.rope_parameters["rope_theta"]),
                    pre_process=stage == 0, post_process=stage == stages - 1,
                    pg_collection=language,
                ),
            ),
            modality_submodules_spec={
                MODALITY: ModuleSpec(
                    module=VisionModalitySubmodules,
                    params={"pg_collection": vision} if vision else {},
                    submodules={"encoders": {ENCODER: encoder}},
                ),
                **{name: spec for name, (spec, _) in (more or {}).items()},
            },
            special_token_ids={
                MODALITY: image_token, **{name: token for name, (_, token) in (more or {}).items()}
            },
            module_to_grid_map=grids,
        )
    )  # fmt: skip
    device = source.lm_head.weight.device
    model.to(device)
    if MODALITY in model.modality_submodules:
        megatron_bridge.accept_dummy_image(model.modality_submodules[MODALITY].encoders[ENCODER])
    if model.language_model is not None:
        if is_qwen3(text):
            interleave(model.language_model.rotary_pos_emb, config.mrope_section)
        copy_language(source, model.language_model, stage * config.num_layers // stages)
    return model


# Transformer Engine's layers have each norm in the matrix product that follows it.
FUSED = {
    "input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight",
    "pre_mlp_layernorm.weight": "mlp.linear_fc1.layer_norm_weight",
}


@torch.no_grad()
def copy_language(source, model, first):
    """Copies Hugging Face's weights, or this tensor rank's parts of them, into a GPTModel
    whose layers begin with number `first`."""
    text = source.model.language_model

    def copy(module, name, value):
        module.get_parameter(name).copy_(tensor_part(name, value, model.tp_group))

    if model.pre_process:
        copy(model, "embedding.word_embeddings.weight", text.embed_tokens.weight)
    for number, layer in enumerate(model.decoder.layers):
        own = dict(layer.named_parameters())
        for name, value in layer_weights(text.layers[first + number], text.config).items():
            copy(layer, name if name in own else FUSED[name], value)
    if model.post_process:
        copy(model, "decoder.final_layernorm.weight", text.norm.weight)
        copy(model, "output_layer.weight", source.lm_head.weight)


def tensor_part(name, value, group):
    """The part of a weight of the language model that this rank of the tensor-parallel
    group has. Norms are whole on each."""
    size, rank = group.size(), group.rank()
    if name.endswith("linear_fc1.weight"):
        return torch.cat([half.chunk(size)[rank] for half in value.chunk(2)])
    if name.endswith(("linear_proj.weight", "linear_fc2.weight")):
        return value.chunk(size, dim=1)[rank]
    if name.endswith(("linear_qkv.weight", "linear_qkv.bias", "word_embeddings.weight",
                      "output_layer.weight")):  # fmt: skip
        return value.chunk(size)[rank]
    return value


def layer_weights(theirs, text):
    """The weights of one layer of Hugging Face's under Megatron-Core's names."""
    attention, mlp = theirs.self_attn, theirs.mlp
    groups = text.num_key_value_heads

    def interleaved(kind):
        """Each group's queries, key and value, concatenated."""
        parts = [getattr(x, kind) for x in (attention.q_proj, attention.k_proj, attention.v_proj)]
        rows = [part.view(groups, part.shape[0] // groups, *part.shape[1:]) for part in parts]
        return torch.cat(rows, dim=1).flatten(0, 1)

    if is_qwen3(text):
        more = {
            "self_attention.q_layernorm.weight": attention.q_norm.weight,
            "self_attention.k_layernorm.weight": attention.k_norm.weight,
        }
    else:
        more = {"self_attention.linear_qkv.bias": interleaved("bias")}
    return {
        **more,
        "input_layernorm.weight": theirs.input_layernorm.weight,
        "self_attention.linear_qkv.weight": interleaved("weight"),
        "self_attention.linear_proj.weight": attention.o_proj.weight,
        "pre_mlp_layernorm.weight": theirs.post_attention_layernorm.weight,
        "mlp.linear_fc1.weight": torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
        "mlp.linear_fc2.weight": mlp.down_proj.weight,
    }
