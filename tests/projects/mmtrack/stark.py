"""MMTracking's STARK with a narrow backbone and transformer."""

_base_ = "configs/sot/stark/stark_st1_r50_500e_lasot.py"
model = dict(
    backbone=dict(depth=18, base_channels=8, init_cfg=None, frozen_stages=-1),
    neck=dict(in_channels=[32], out_channels=16),
    head=dict(
        transformer=dict(
            encoder=dict(
                num_layers=1,
                transformerlayers=dict(
                    attn_cfgs=[dict(type="MultiheadAttention", embed_dims=16, num_heads=2)],
                    ffn_cfgs=dict(embed_dims=16, feedforward_channels=32),
                ),
            ),
            decoder=dict(
                num_layers=1,
                transformerlayers=dict(
                    attn_cfgs=dict(embed_dims=16, num_heads=2), ffn_cfgs=dict(embed_dims=16, feedforward_channels=32)
                ),
            ),
        ),
        positional_encoding=dict(num_feats=8),
        bbox_head=dict(inplanes=16, channel=16),
    ),
)
part = dict(
    type="SOTImageNetVIDDataset", ann_file="data/long/annotations/imagenet_vid_train.json",
    img_prefix="data/long/Data/VID", pipeline={{_base_.train_pipeline}}, split="train", test_mode=False,
)  # fmt: skip
data = dict(
    samples_per_gpu=2, workers_per_gpu=0, persistent_workers=False, samples_per_epoch=4,
    train=dict(dataset_sampling_weights=[1], dataset_cfgs=[part]),
    val=dict(
        type="LaSOTDataset", ann_file="data/lasot/annotations/lasot_test_infos.txt",
        img_prefix="data/lasot/LaSOTBenchmark",
    ),
)  # fmt: skip
evaluation = dict(interval=9, start=9)
log_config = dict(interval=1)
total_epochs = 1
