"""The compiled ops of ``mmcv._ext`` in plain torch: torchvision's where its build fits the torch, else written here."""
