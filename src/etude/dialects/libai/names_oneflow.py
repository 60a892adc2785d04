"""OneFlow's names. Most are torch's under the same name; what OneFlow adds is in ``live/oneflow``."""

from __future__ import annotations

_LIVE = "etude.dialects.libai.live"


def _from(module: str, names: str) -> dict[str, str]:
    return {name: f"{module}:{name}" for name in names.split()}


_FUNCTIONS = _from(
    "torch",
    "abs acos acosh add addcdiv addcmul addmm all allclose amax amin any argmax argmin argsort argwhere "
    "as_strided as_tensor asin asinh atan atan2 atanh baddbmm bernoulli bincount bitwise_and bitwise_not "
    "bitwise_or bitwise_xor bmm broadcast_tensors broadcast_to cat cdist ceil chunk clamp clip clone concat "
    "conv1d conv2d conv3d cos cosh cosine_similarity cross cumprod cumsum det diag diagonal div dot dsplit einsum "
    "empty_like eq equal erf erfc erfinv exp exp2 expm1 flatten flip floor floor_divide fmod frac from_numpy "
    "full_like gather ge gt hsplit hstack index_add index_select inverse isclose isfinite isinf isnan "
    "is_floating_point is_nonzero is_tensor le lerp log log10 log1p log2 log_softmax logaddexp logical_and "
    "logical_not logical_or logical_xor logspace logsumexp lt masked_fill masked_select matmul max maximum mean "
    "median meshgrid min minimum mm mode movedim mul multinomial mv nansum narrow ne neg negative nonzero norm "
    "normal not_equal numel ones_like outer permute pow prod quantile rand_like randint_like randn_like "
    "reciprocal relu repeat_interleave reshape roll round rsqrt scatter scatter_add searchsorted select selu "
    "sigmoid sign sin sinh softmax sort split sqrt square squeeze stack std sub sum swapaxes swapdims t take tan "
    "tanh tensor_split tensordot tile topk transpose tril triu trunc unbind unique unsqueeze var vsplit vstack "
    "where zeros_like",
)
_TYPES = _from(
    "torch",
    "Tensor Size Generator device dtype finfo iinfo FloatTensor HalfTensor DoubleTensor IntTensor LongTensor "
    "BoolTensor float16 half bfloat16 float32 float float64 double int8 int16 int32 int int64 long uint8 bool "
    "complex64 complex128",
)
_SETTINGS = _from(
    "torch",
    "enable_grad no_grad inference_mode set_grad_enabled is_grad_enabled manual_seed seed get_rng_state "
    "set_rng_state get_default_dtype set_default_dtype get_num_threads set_num_threads set_printoptions save load",
)
_OURS = _from(
    f"{_LIVE}.oneflow.flow",
    "placement sbp tensor zeros ones full empty rand randn randint randperm arange eye linspace",
)
_NN = _from(
    "torch.nn",
    "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d "
    "AlphaDropout AvgPool1d AvgPool2d AvgPool3d BCELoss BCEWithLogitsLoss BatchNorm1d BatchNorm2d BatchNorm3d "
    "CELU CTCLoss ConstantPad1d ConstantPad2d ConstantPad3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d "
    "ConvTranspose3d CosineSimilarity CrossEntropyLoss Dropout Dropout1d Dropout2d Dropout3d ELU Embedding "
    "Flatten Fold GELU GLU GRU GRUCell GroupNorm Hardshrink Hardsigmoid Hardswish Hardtanh Identity "
    "InstanceNorm1d InstanceNorm2d InstanceNorm3d KLDivLoss L1Loss LSTM LSTMCell LayerNorm LeakyReLU Linear "
    "LogSigmoid LogSoftmax MSELoss MarginRankingLoss MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d "
    "MaxUnpool3d Mish Module ModuleDict ModuleList MultiheadAttention NLLLoss PReLU PairwiseDistance Parameter "
    "ParameterDict ParameterList PixelShuffle RMSNorm RNN RNNCell RReLU ReLU ReLU6 ReflectionPad1d "
    "ReflectionPad2d ReplicationPad1d ReplicationPad2d SELU Sequential SiLU Sigmoid SmoothL1Loss Softmax Softplus "
    "Softshrink Softsign SyncBatchNorm Tanh Threshold TransformerDecoder TransformerDecoderLayer "
    "TransformerEncoder TransformerEncoderLayer TripletMarginLoss Unfold Upsample UpsamplingBilinear2d "
    "UpsamplingNearest2d ZeroPad2d",
)

_FUNCTIONAL = _from(
    "torch.nn.functional",
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
    "adaptive_max_pool3d affine_grid alpha_dropout avg_pool1d avg_pool2d avg_pool3d batch_norm bilinear "
    "binary_cross_entropy binary_cross_entropy_with_logits celu celu_ channel_shuffle conv1d conv2d conv3d "
    "conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity "
    "cross_entropy ctc_loss dropout dropout1d dropout2d dropout3d elu elu_ embedding embedding_bag "
    "feature_alpha_dropout fold fractional_max_pool2d fractional_max_pool3d gaussian_nll_loss gelu glu "
    "grid_sample group_norm grouped_mm gumbel_softmax hardshrink hardsigmoid hardswish hardtanh hardtanh_ "
    "hinge_embedding_loss huber_loss instance_norm interpolate kl_div l1_loss layer_norm leaky_relu leaky_relu_ "
    "linear linear_cross_entropy local_response_norm log_softmax logsigmoid lp_pool1d lp_pool2d lp_pool3d "
    "margin_ranking_loss max_pool1d max_pool2d max_pool3d max_unpool1d max_unpool2d max_unpool3d mish mse_loss "
    "multi_head_attention_forward multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss "
    "native_channel_shuffle nll_loss normalize one_hot pad pairwise_distance pdist pixel_shuffle pixel_unshuffle "
    "poisson_nll_loss prelu relu relu6 relu_ rms_norm rrelu rrelu_ scaled_dot_product_attention scaled_grouped_mm "
    "scaled_mm selu selu_ sigmoid silu smooth_l1_loss soft_margin_loss softmax softmin softplus softshrink "
    "softsign tanh tanhshrink threshold threshold_ triplet_margin_loss triplet_margin_with_distance_loss unfold "
    "upsample upsample_bilinear upsample_nearest",
)
_INIT = _from(
    "torch.nn.init",
    "calculate_gain constant_ dirac_ eye_ kaiming_normal_ kaiming_uniform_ normal_ ones_ orthogonal_ sparse_ "
    "trunc_normal_ uniform_ xavier_normal_ xavier_uniform_ zeros_",
)
_SCHEDULERS = _from(
    "torch.optim.lr_scheduler",
    "ChainedScheduler ConstantLR CosineAnnealingLR CosineAnnealingWarmRestarts CyclicLR ExponentialLR LRScheduler "
    "LambdaLR LinearLR MultiStepLR MultiplicativeLR OneCycleLR PolynomialLR ReduceLROnPlateau SequentialLR StepLR",
)

_FLOW = f"{_LIVE}.oneflow.flow"
_NCCL = _from(
    f"{_LIVE}.oneflow.runtime",
    "set_fusion_threshold_mbytes set_fusion_max_ops_num enable_use_compute_stream disable_group_boxing_by_dst_parallel",
)
_MOCK = _from(f"{_LIVE}.oneflow.runtime", "enable disable is_enabled")

MODULES: dict[str, dict[str, str]] = {
    "oneflow": {name: f"{_FLOW}:{name}" for name in (*_FUNCTIONS, *_TYPES, *_SETTINGS, *_OURS)}
    | _from(_FLOW, "Tensor matmul to_global to_local save load normal __version__"),
    "oneflow._C": {},
    "oneflow._oneflow_internal": _from(f"{_LIVE}.oneflow.runtime", "cpu_broadcast") | _from("torch", "Tensor"),
    "oneflow.amp": _from(f"{_LIVE}.oneflow.runtime", "GradScaler"),
    "oneflow.boxing": {},
    "oneflow.boxing.nccl": _NCCL,
    "oneflow.comm": _from(f"{_LIVE}.oneflow.runtime", "barrier"),
    "oneflow.cuda": _from(
        "torch.cuda",
        "is_available device_count current_device set_device manual_seed manual_seed_all synchronize empty_cache",
    ),
    "oneflow.env": _from(f"{_LIVE}.distributed", "get_rank get_local_rank get_world_size")
    | _from(f"{_LIVE}.oneflow.placements", "all_device_placement")
    | _from(f"{_LIVE}.oneflow.runtime", "init_rdma")
    | {"get_node_size": f"{_LIVE}.distributed:get_num_nodes"},
    "oneflow.framework": {},
    "oneflow.framework.balanced_splitter": _from(f"{_LIVE}.oneflow.runtime", "BalancedRanges"),
    "oneflow.framework.check_point_v2": {"_broadcast_py_object": f"{_LIVE}.oneflow.runtime:broadcast_py_object"},
    "oneflow.framework.tensor": _from(_FLOW, "Tensor tensor"),
    "oneflow.mock_torch": _MOCK,
    "oneflow.nn": _NN
    | _from(f"{_LIVE}.oneflow.graph_modules", "Graph")
    | _from(f"{_LIVE}.oneflow.kernels", "FusedBatchNorm1d FusedBatchNorm2d FusedBatchNorm3d"),
    "oneflow.nn.functional": _FUNCTIONAL,
    "oneflow.nn.graph": _from(f"{_LIVE}.oneflow.graph_modules", "Graph GraphModule GraphTensor"),
    "oneflow.nn.init": _INIT,
    "oneflow.nn.utils": _from("torch.nn.utils", "clip_grad_norm_ clip_grad_value_ parameters_to_vector weight_norm"),
    "oneflow.nn.parallel": _from("torch.nn.parallel", "DistributedDataParallel"),
    "oneflow.optim": _from(f"{_LIVE}.optim.optimizers", "SGD Adam AdamW Adagrad RMSprop LAMB")
    | {"Optimizer": "torch.optim:Optimizer"},
    "oneflow.optim.lr_scheduler": _SCHEDULERS
    | _from(
        f"{_LIVE}.oneflow.lr_schedulers",
        "LRScheduler _LRScheduler CosineAnnealingLR CosineDecayLR ExponentialLR MultiStepLR PolynomialLR StepLR "
        "WarmUpLR WarmupLR",
    ),
    "oneflow.unittest": _from(
        f"{_LIVE}.oneflow.flow_tests", "TestCase skip_unless_1n1d skip_unless_1n2d skip_unless_1n4d"
    ),
    "oneflow.utils": {},
    "oneflow.utils.checkpoint": _from("torch.utils.checkpoint", "checkpoint"),
    "oneflow.utils.data": _from(
        "torch.utils.data",
        "Dataset IterableDataset TensorDataset ConcatDataset Subset random_split DataLoader Sampler BatchSampler "
        "RandomSampler SequentialSampler SubsetRandomSampler get_worker_info",
    ),
    "oneflow.utils.global_view": _from(f"{_LIVE}.oneflow.runtime", "global_mode"),
}

_VISION = f"{_LIVE}.oneflow.vision"
_CONSTANTS = _from(
    _VISION,
    "IMAGENET_DEFAULT_MEAN IMAGENET_DEFAULT_STD IMAGENET_INCEPTION_MEAN IMAGENET_INCEPTION_STD CIFAR100_TRAIN_MEAN "
    "CIFAR100_TRAIN_STD",
)
_TRANSFORMS = _from(
    _VISION,
    "Compose ToTensor Normalize Resize CenterCrop RandomCrop RandomResizedCrop RandomHorizontalFlip Pad ColorJitter "
    "RandomApply ToPILImage "
    "InterpolationMode",
)
#: Served where flowvision is not installed.
MODULES |= {
    "flowvision": {},
    "flowvision.data": _from(_VISION, "Mixup") | _CONSTANTS,
    "flowvision.data.auto_augment": _from(_VISION, "rand_augment_transform"),
    "flowvision.data.constants": _CONSTANTS,
    "flowvision.data.mixup": _from(_VISION, "Mixup"),
    "flowvision.data.random_erasing": _from(_VISION, "RandomErasing"),
    "flowvision.datasets": _from(_VISION, "CIFAR10 CIFAR100 ImageFolder MNIST"),
    "flowvision.layers": _from("torch.nn.init", "trunc_normal_"),
    "flowvision.layers.weight_init": _from("torch.nn.init", "trunc_normal_"),
    "flowvision.loss": {},
    "flowvision.loss.cross_entropy": _from(_VISION, "SoftTargetCrossEntropy LabelSmoothingCrossEntropy"),
    "flowvision.models": _from(_VISION, "to_2tuple"),
    "flowvision.transforms": _TRANSFORMS,
    "flowvision.transforms.functional": _from(_VISION, "str_to_interp_mode"),
    "flowvision.transforms.transforms": _TRANSFORMS,
}

#: Package or module → the one that has what the tables above lack; both use the same names.
FALLBACK = {"oneflow": "torch", "oneflow._C": f"{_LIVE}.oneflow.kernels", "flowvision": "torchvision"}

OUT_OF_SCOPE = {
    "oneflow.distributed": "start processes with torchrun",
    "oneflow.one_embedding": "use torch.nn.Embedding",
    "oneflow.nn.OneEmbedding": "use torch.nn.Embedding",
    "oneflow.nn.FusedMLP": "use torch.nn.Linear and an activation",
    "oneflow.data": "OneFlow's readers of records have no counterpart; use torch.utils.data",
}
