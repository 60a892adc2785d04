"""AdamW with LiBai's parameter groups."""

from etude.dialects.libai.lazy.load import LazyCall

optim = LazyCall("oneflow.optim.AdamW")(
    params=LazyCall("libai.optim.build.get_default_optimizer_params")(
        clip_grad_max_norm=1.0, clip_grad_norm_type=2.0, weight_decay_norm=0.0, weight_decay_bias=0.0
    ),
    lr=0.0001,
    weight_decay=0.01,
    betas=[0.9, 0.999],
    eps=1e-08,
    do_bias_correction=True,
)
