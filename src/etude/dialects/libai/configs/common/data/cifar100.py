"""Data of LiBai's common configs: ``cifar100``."""

from etude.dialects.libai.lazy.call import LazyCall

train_aug = LazyCall("flowvision.transforms.Compose")(
    transforms=[
        LazyCall("flowvision.transforms.RandomResizedCrop")(
            size=[224, 224], scale=[0.08, 1.0], ratio=[0.75, 1.3333333333333333], interpolation="bicubic"
        ),
        LazyCall("flowvision.transforms.RandomHorizontalFlip")(),
        LazyCall("flowvision.transforms.ToTensor")(),
        LazyCall("flowvision.transforms.Normalize")(
            mean=[0.5070751592371323, 0.48654887331495095, 0.4409178433670343],
            std=[0.2673342858792401, 0.2564384629170883, 0.27615047132568404],
        ),
    ]
)
test_aug = LazyCall("flowvision.transforms.Compose")(
    transforms=[
        LazyCall("flowvision.transforms.Resize")(size=256, interpolation="bicubic"),
        LazyCall("flowvision.transforms.CenterCrop")(size=224),
        LazyCall("flowvision.transforms.ToTensor")(),
        LazyCall("flowvision.transforms.Normalize")(
            mean=[0.5070751592371323, 0.48654887331495095, 0.4409178433670343],
            std=[0.2673342858792401, 0.2564384629170883, 0.27615047132568404],
        ),
    ]
)
dataloader = {
    "train": LazyCall("libai.data.build.build_image_train_loader")(
        dataset=[
            LazyCall("libai.data.datasets.CIFAR100Dataset")(root="./", train=True, download=True, transform=train_aug)
        ],
        num_workers=4,
        mixup_func=LazyCall("flowvision.data.mixup.Mixup")(
            mixup_alpha=0.8, cutmix_alpha=1.0, prob=1.0, switch_prob=0.5, mode="batch", num_classes=100
        ),
    ),
    "test": [
        LazyCall("libai.data.build.build_image_test_loader")(
            dataset=LazyCall("libai.data.datasets.CIFAR100Dataset")(
                root="./", train=False, download=True, transform=test_aug
            ),
            num_workers=4,
        )
    ],
}
