"""Data of LiBai's common configs: ``imagenet``."""

from etude.dialects.libai.lazy.call import LazyCall

train_aug = LazyCall("flowvision.transforms.Compose")(
    transforms=[
        LazyCall("flowvision.transforms.RandomResizedCrop")(
            size=224, scale=[0.08, 1.0], ratio=[0.75, 1.3333333333333333], interpolation="bicubic"
        ),
        LazyCall("flowvision.transforms.RandomHorizontalFlip")(p=0.5),
        LazyCall("flowvision.data.auto_augment.rand_augment_transform")(
            config_str="rand-m9-mstd0.5-inc1",
            hparams={"translate_const": 100, "img_mean": [124, 116, 104], "interpolation": "bicubic"},
        ),
        LazyCall("flowvision.transforms.ToTensor")(),
        LazyCall("flowvision.transforms.Normalize")(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        LazyCall("flowvision.data.random_erasing.RandomErasing")(
            probability=0.25, mode="pixel", max_count=1, num_splits=0, device="cpu"
        ),
    ]
)
test_aug = LazyCall("flowvision.transforms.Compose")(
    transforms=[
        LazyCall("flowvision.transforms.Resize")(size=256, interpolation="bicubic"),
        LazyCall("flowvision.transforms.CenterCrop")(size=224),
        LazyCall("flowvision.transforms.ToTensor")(),
        LazyCall("flowvision.transforms.Normalize")(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
    ]
)
dataloader = {
    "train": LazyCall("libai.data.build.build_image_train_loader")(
        dataset=[LazyCall("libai.data.datasets.ImageNetDataset")(root="./dataset", train=True, transform=train_aug)],
        num_workers=4,
        mixup_func=None,
    ),
    "test": [
        LazyCall("libai.data.build.build_image_test_loader")(
            dataset=LazyCall("libai.data.datasets.ImageNetDataset")(root="./dataset", train=False, transform=test_aug),
            num_workers=4,
        )
    ],
}
