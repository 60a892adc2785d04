"""Datasets that come with Étude, and the loader that turns any dataset into batches."""

from etude.data.csv import Csv
from etude.data.digits import Digits
from etude.data.idx import Idx
from etude.data.images import ImageFolder
from etude.data.loader import Loader
from etude.data.memory import TensorData
from etude.data.transforms import Transformed

__all__ = ["Csv", "Digits", "Idx", "ImageFolder", "Loader", "TensorData", "Transformed"]
