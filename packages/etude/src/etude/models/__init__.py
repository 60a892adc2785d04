"""A few small models, so that a first run needs no code."""

from etude.models.conv import ConvNet
from etude.models.mlp import MLP
from etude.models.text import CharTransformer

__all__ = ["MLP", "CharTransformer", "ConvNet"]
