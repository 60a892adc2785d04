"""Datasets that come with Étude, and the loader that turns any dataset into batches."""

from etude.data.datasets.csv import Csv
from etude.data.datasets.digits import Digits
from etude.data.datasets.idx import Idx
from etude.data.datasets.images import ImageFolder
from etude.data.datasets.tensors import TensorData
from etude.data.loader import Loader
from etude.data.transforms import Transformed

__all__ = ["Csv", "Digits", "Idx", "ImageFolder", "Loader", "TensorData", "Transformed"]
