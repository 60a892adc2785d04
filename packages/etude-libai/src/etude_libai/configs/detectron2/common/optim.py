"""The two optimizers of detectron2's common configs; ``params.model`` is set when the model is there."""

from etude_libai.lazy.load import LazyCall

SGD = LazyCall("torch.optim.SGD")(
    params=LazyCall("detectron2.solver.build.get_default_optimizer_params")(weight_decay_norm=0.0),
    lr=0.02,
    momentum=0.9,
    weight_decay=1e-4,
)

AdamW = LazyCall("torch.optim.AdamW")(
    params=LazyCall("detectron2.solver.build.get_default_optimizer_params")(
        base_lr="${..lr}",
        weight_decay_norm=0.0,
    ),
    lr=1e-4,
    betas=(0.9, 0.999),
    weight_decay=0.1,
)
