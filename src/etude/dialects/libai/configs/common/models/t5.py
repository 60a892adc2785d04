"""Model of LiBai's common configs: ``t5``."""

from etude.dialects.libai.lazy.call import LazyCall

cfg = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "hidden_layers": 6,
    "num_attention_heads": 16,
    "intermediate_size": 1536,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "embedding_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layernorm_eps": 1e-05,
    "bias_gelu_fusion": True,
    "bias_dropout_fusion": True,
    "scale_mask_softmax_fusion": True,
    "apply_query_key_layer_scaling": True,
    "apply_residual_post_layernorm": False,
    "amp_enabled": False,
}
t5_model = LazyCall("libai.models.T5Model")(cfg=cfg)
pretrain_model = LazyCall("libai.models.T5ForPreTraining")(cfg=cfg)
