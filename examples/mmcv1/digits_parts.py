"""Modules of the user, written as for mmclassification 0.x: a dataset, a model and a hook. Nothing here knows Étude."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from mmcls.datasets import DATASETS
from mmcls.models import CLASSIFIERS
from mmcv.parallel import is_module_wrapper
from mmcv.runner import HOOKS, BaseModule, Hook
from sklearn.datasets import load_digits
from torch.utils.data import Dataset


@DATASETS.register_module()
class DigitImages(Dataset):
    """1,797 handwritten digits of 8×8 pixels; every fifth one is kept for validation."""

    CLASSES = tuple("0123456789")

    def __init__(self, split, noise=0.0, test_mode=False):
        bunch = load_digits()
        held_out = np.arange(len(bunch.target)) % 5 == 0
        chosen = held_out if split == "val" else ~held_out
        self.images = (bunch.images[chosen] / 16.0).astype(np.float32)
        self.labels = bunch.target[chosen]
        self.noise = 0.0 if test_mode else noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = torch.from_numpy(self.images[index])[None]
        if self.noise:
            image = image + self.noise * torch.randn_like(image)
        return dict(img=image, gt_label=int(self.labels[index]))

    def evaluate(self, results, metric="accuracy", metric_options=None, logger=None):
        guesses = np.argmax(np.stack(results), axis=1)
        return {metric: 100.0 * float((guesses == self.labels).mean())}


@CLASSIFIERS.register_module()
class DigitNet(BaseModule):
    """Two convolutions and a linear layer."""

    def __init__(self, width=16, dropout=0.1, init_cfg=None):
        super().__init__(init_cfg)
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(2 * width)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(2 * width * 4, 10)

    def forward(self, img, gt_label=None, return_loss=True):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(img))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        scores = self.fc(self.dropout(x.flatten(1)))
        if not return_loss:
            return list(F.softmax(scores, dim=1).cpu().numpy())
        return F.cross_entropy(scores, gt_label)

    def train_step(self, data, optimizer=None, **kwargs):
        loss = self(**data)
        return dict(loss=loss, log_vars=dict(loss=loss.item()), num_samples=len(data["img"]))

    def val_step(self, data, optimizer=None, **kwargs):
        return self.train_step(data, optimizer)


@HOOKS.register_module()
class LargestGradHook(Hook):
    """Logs the largest gradient of the last layer; NORMAL priority comes after the optimizer's step."""

    def __init__(self, interval=10):
        self.interval = interval

    def after_train_iter(self, runner):
        if self.every_n_iters(runner, self.interval):
            model = runner.model.module if is_module_wrapper(runner.model) else runner.model
            largest = model.fc.weight.grad.abs().max()
            runner.log_buffer.update(dict(largest_grad=largest.item()), runner.outputs["num_samples"])
