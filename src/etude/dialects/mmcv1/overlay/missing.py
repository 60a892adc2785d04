"""Names of mmcv that come from the disk, and what to say of them where no mmcv that has them is on it."""

from __future__ import annotations

from etude.dialects import ownership
from etude.dialects.mmcv1.overlay.layers import LAYERS

_IN_MMCV = (
    "imread imwrite imresize imrescale imflip impad imcrop imnormalize imshow imfrombytes bgr2rgb rgb2bgr "
    "VideoReader flow2rgb Color color_val imdenormalize imrotate imshow_bboxes imshow_det_bboxes Cache "
    "adjust_brightness adjust_color adjust_contrast adjust_hue adjust_lighting adjust_sharpness auto_contrast "
    "bgr2gray bgr2hls bgr2hsv bgr2ycbcr clahe concat_video convert_video cut_video cutout dequantize "
    "dequantize_flow flow_from_bytes flow_warp flowread flowshow flowwrite frames2video gray2bgr gray2rgb hls2bgr "
    "hsv2bgr imconvert imequalize imflip_ iminvert imnormalize_ impad_to_multiple imresize_like "
    "imresize_to_multiple imshear imtranslate lut_transform make_color_wheel posterize quantize quantize_flow "
    "rescale_size resize_video rgb2gray rgb2ycbcr solarize sparse_flow_from_bytes supported_backends tensor2imgs "
    "use_backend ycbcr2bgr ycbcr2rgb "
)
_IN_CNN = (
    "ConvModule build_conv_layer build_norm_layer build_activation_layer build_padding_layer build_plugin_layer "
    "build_upsample_layer Linear Conv2d Scale DepthwiseSeparableConvModule fuse_conv_bn get_model_complexity_info "
    "ResNet VGG AlexNet NonLocal1d NonLocal2d NonLocal3d ACTIVATION_LAYERS CONV_LAYERS NORM_LAYERS PADDING_LAYERS "
    "PLUGIN_LAYERS UPSAMPLE_LAYERS ContextBlock Conv3d ConvAWS2d ConvTranspose2d ConvTranspose3d ConvWS2d "
    "GeneralizedAttention HSigmoid HSwish MaxPool2d MaxPool3d Swish conv_ws_2d make_res_layer make_vgg_layer "
    "Conv2dRFSearchOp RFSearchHook alexnet resnet vgg "
)
_IN_UTILS = ("fuse_conv_bn", "get_model_complexity_info", "flops_counter")


def names() -> dict[str, str]:
    """Return modules, and names of modules, each with what to do about it."""
    found = ownership.original("mmcv")
    lack = f"mmcv {ownership.version('mmcv')} at {found} is too old" if found else "none is on disk"
    hint = f"mmcv's layers, images and ops come from mmcv itself, and {lack}: pip install mmcv-lite"
    inside = {"mmcv": _IN_MMCV.split(), "mmcv.cnn": _IN_CNN.split(), "mmcv.cnn.utils": _IN_UTILS}
    below = [f"{module}.{name}" for module, some in inside.items() for name in some]
    return dict.fromkeys((*LAYERS, *below), hint)
