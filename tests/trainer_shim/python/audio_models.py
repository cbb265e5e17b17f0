"""Small random models of transformers that take audio, each by the name of its profile.

Ids below 256 are bytes, and the id of audio is AUDIO, but of models with a tokenizer in
audio_test.py. Needs transformers and torch."""

import unittest.mock

import torch
import transformers

AUDIO, IMAGE, GEMMA3N_AUDIO, GEMMA4_AUDIO, GEMMA4_IMAGE = 303, 304, 330, 265, 262
TEXT = {
    "vocab_size": 320, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2,
}  # fmt: skip
ROPE = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
TOWER = {"depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2,
         "out_hidden_size": 32}  # fmt: skip
WHISPER = {"d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 64}


def qwen2_audio():
    return transformers.Qwen2AudioForConditionalGeneration(transformers.Qwen2AudioConfig(
        audio_config=dict(model_type="qwen2_audio_encoder", **WHISPER),
        text_config=dict(model_type="qwen2", **TEXT), audio_token_index=AUDIO))  # fmt: skip


def qwen2_5_omni():
    return transformers.Qwen2_5OmniThinkerForConditionalGeneration(
        transformers.Qwen2_5OmniThinkerConfig(
            audio_config=dict(**WHISPER, output_dim=32, num_mel_bins=128, n_window=100),
            vision_config=TOWER, text_config=dict(**TEXT, rope_parameters=ROPE),
            audio_token_index=261, image_token_index=257, video_token_index=258,
            audio_start_token_id=260, audio_end_token_id=262, vision_start_token_id=256,
            vision_end_token_id=259, position_id_per_seconds=25, seconds_per_chunk=2))  # fmt: skip


def qwen3_omni_moe():
    return transformers.Qwen3OmniMoeThinkerForConditionalGeneration(
        transformers.Qwen3OmniMoeThinkerConfig(
            audio_config=dict(**WHISPER, output_dim=32, num_mel_bins=128,
                              downsample_hidden_size=8),
            vision_config=dict(**TOWER, deepstack_visual_indexes=[0], num_position_embeddings=16),
            text_config=dict(**TEXT, moe_intermediate_size=32, head_dim=16, num_experts=4,
                             num_experts_per_tok=2, rope_parameters=ROPE),
            audio_token_id=261, image_token_id=257, video_token_id=258, audio_start_token_id=260,
            audio_end_token_id=262, vision_start_token_id=256, vision_end_token_id=259,
            position_id_per_seconds=13))  # fmt: skip


def voxtral():
    return transformers.VoxtralForConditionalGeneration(transformers.VoxtralConfig(
        audio_config=dict(hidden_size=32, intermediate_size=128, num_hidden_layers=2,
                          num_attention_heads=2),
        text_config=dict(model_type="llama", head_dim=16, **TEXT), audio_token_id=AUDIO))  # fmt: skip


def phi4_multimodal():
    return transformers.Phi4MultimodalForCausalLM(transformers.Phi4MultimodalConfig(
        **TEXT, pad_token_id=0, bos_token_id=1, eos_token_id=2, max_position_embeddings=4096,
        original_max_position_embeddings=4096,
        audio_config=dict(hidden_size=32, intermediate_size=32, num_blocks=2,
                          num_attention_heads=2, ext_pw_out_channel=32, nemo_conv_channels=32,
                          depthwise_separable_out_channel=32, audio_token_id=AUDIO),
        vision_config=dict(hidden_size=32, intermediate_size=32, num_hidden_layers=2,
                           num_attention_heads=2, image_token_id=IMAGE, crop_size=28,
                           feature_layer=-1)))  # fmt: skip


def granite_speech():
    return transformers.GraniteSpeechForConditionalGeneration(transformers.GraniteSpeechConfig(
        encoder_config=dict(model_type="granite_speech_encoder", input_dim=160, num_layers=2,
                            hidden_dim=32, feedforward_mult=2, num_heads=2, dim_head=16,
                            output_dim=16, context_size=20, max_pos_emb=32, conv_kernel_size=5),
        projector_config=dict(model_type="blip_2_qformer", hidden_size=32, num_hidden_layers=1,
                              num_attention_heads=2, intermediate_size=64,
                              encoder_hidden_size=32, cross_attention_frequency=1,
                              max_position_embeddings=64),
        text_config=dict(model_type="granite", **TEXT), audio_token_index=AUDIO,
        has_lora_adapter=False, window_size=15, downsample_rate=5))  # fmt: skip


def gemma3n():
    """Ids from 304 on are of images, from 320 on of audio. Without the tower of images, which
    needs timm and takes no part."""
    make = transformers.AutoModel.from_config

    def without_timm(config, **options):
        if config.model_type == "gemma3n_vision":
            return torch.nn.Identity()
        return make(config, **options)

    config = transformers.Gemma3nConfig(
        audio_config=dict(vocab_size=16, vocab_offset=320, hidden_size=32,
                          conf_num_hidden_layers=2, conf_num_attention_heads=2,
                          sscp_conv_channel_size=[8, 4]),
        vision_config=dict(model_type="gemma3n_vision", architecture="test_resnet",
                           hidden_size=32, vocab_size=16, vocab_offset=304, do_pooling=False),
        text_config=dict(TEXT, vocab_size=336, vocab_size_per_layer_input=304,
                         hidden_size_per_layer_input=16, head_dim=16, num_kv_shared_layers=0,
                         laurel_rank=8, layer_types=["sliding_attention", "full_attention"],
                         activation_sparsity_pattern=[0.0, 0.0]),
        audio_token_id=GEMMA3N_AUDIO, image_token_id=310)  # fmt: skip
    with unittest.mock.patch.object(transformers.AutoModel, "from_config", without_timm):
        return transformers.Gemma3nForConditionalGeneration(config)


def gemma4():
    return transformers.Gemma4ForConditionalGeneration(transformers.Gemma4Config(
        audio_config=dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                          subsampling_conv_channels=[128, 4], output_proj_dims=32),
        vision_config=dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                           num_attention_heads=2, num_key_value_heads=2, head_dim=16),
        text_config=dict(**TEXT, vocab_size_per_layer_input=320, hidden_size_per_layer_input=0,
                         head_dim=16, global_head_dim=16, num_kv_shared_layers=0,
                         layer_types=["sliding_attention", "full_attention"]),
        audio_token_id=GEMMA4_AUDIO, image_token_id=GEMMA4_IMAGE, video_token_id=305))  # fmt: skip
