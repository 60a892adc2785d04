"""Containers of what is known about a sample: data fields, and metainfo about them."""

from etude.dialects.mmengine.live.structures.element import BaseDataElement
from etude.dialects.mmengine.live.structures.instances import InstanceData
from etude.dialects.mmengine.live.structures.labels import LabelData
from etude.dialects.mmengine.live.structures.pixels import PixelData

__all__ = ["BaseDataElement", "InstanceData", "LabelData", "PixelData"]
