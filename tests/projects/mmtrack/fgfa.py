"""MMTracking's FGFA: features of several frames, weighted by their likeness, in place of DFF's one."""

_base_ = "dff.py"
model = dict(
    type="FGFA",
    aggregator=dict(type="EmbedAggregator", num_convs=1, channels=16, kernel_size=3),
    train_cfg=None,
    test_cfg=None,
)
data = dict(
    train=[
        dict(
            type="ImagenetVIDDataset",
            ann_file="data/ILSVRC/annotations/imagenet_vid_train.json",
            img_prefix="data/ILSVRC/Data/VID",
            ref_img_sampler=dict(num_ref_imgs=2, frame_range=9, filter_key_img=True, method="bilateral_uniform"),
            pipeline={{_base_.train_pipeline}},
            classes=("airplane", "antelope"),
        )
    ]
)
