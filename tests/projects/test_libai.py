"""LiBai 0.1.1, as the package index has it: its models and layers on Étude's engine, without OneFlow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import sampling

pytestmark = pytest.mark.pins("libai-0.1.1", "libai-needs")

DATA = """
import oneflow as flow
from oneflow.utils.data import Dataset
from libai.data.structures import DistTensorData, Instance


class Samples(Dataset):
    def __init__(self, kind, count=16):
        self.kind, self.count = kind, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        source = flow.Generator()
        source.manual_seed(index)
        if self.kind == "vit":
            label = flow.tensor(index % 4, dtype=flow.long)
            image = flow.randn(3, 16, 16, generator=source) + index % 4
            return Instance(images=DistTensorData(image), labels=DistTensorData(label, placement_idx=-1))
        words = flow.randint(0, 32, (9,), generator=source)
        last = {"labels" if self.kind == "gpt" else "lm_labels": DistTensorData(words[1:], placement_idx=-1)}
        if self.kind == "bert":
            one = flow.ones(8, dtype=flow.long)
            last["attention_mask"], last["tokentype_ids"] = DistTensorData(one), DistTensorData(one * 0)
            last["ns_labels"] = DistTensorData(flow.tensor(index % 2, dtype=flow.long), placement_idx=-1)
            last["loss_mask"] = DistTensorData(one.float(), placement_idx=-1)
        return Instance(input_ids=DistTensorData(words[:-1]), **last)
"""

CONFIG = """
from libai.config import LazyCall, get_config
from libai.data.build import build_image_train_loader
from libai.models import {model}
from samples import Samples

model = LazyCall({model})({arguments})
graph = get_config("common/models/graph.py").graph
train = get_config("common/train.py").train
optim = get_config("common/optim.py").optim
graph.enabled = False
dataset = LazyCall(Samples)(kind="{kind}")
dataloader = dict(train=LazyCall(build_image_train_loader)(dataset=[dataset], num_workers=0, mixup_func=None), test=[])
train.update(train_micro_batch_size=8, train_iter=3, log_period=1, output_dir="out")
train.evaluation.enabled = False
"""
_LAYERS = "hidden_layers=2, vocab_size=32, hidden_size=16, num_attention_heads=2"
_BERT = (
    "hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, max_position_embeddings=8, num_tokentypes=2, "
    "add_pooling_layer=True, initializer_range=0.02, layernorm_eps=1e-5, bias_gelu_fusion=True, "
    "bias_dropout_fusion=True, scale_mask_softmax_fusion=True, apply_query_key_layer_scaling=True, "
    "apply_residual_post_layernorm=False, add_binary_head=True, amp_enabled=False, intermediate_size=32"
)
_GPT = (
    "ffn_hidden_size=32, max_seq_length=8, embedding_dropout_prob=0.1, attention_dropout_prob=0.1, "
    "output_dropout_prob=0.1, layernorm_epsilon=1e-5, initializer_range=0.02, "
    "use_scaled_init_for_output_weights=True, bias_gelu_fusion=True, bias_dropout_fusion=True, "
    "scale_mask_softmax_fusion=True, apply_query_key_layer_scaling=True, apply_residual_post_layernorm=False, "
    "amp_enabled=False"
)
MODELS = {
    "vit": ("VisionTransformer", "img_size=16, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=4"),
    "gpt": ("GPTForPreTraining", f"cfg=dict({_LAYERS.replace('hidden_layers', 'num_layers')}, {_GPT})"),
    "bert": ("BertForPreTraining", f"cfg=dict({_LAYERS}, {_BERT})"),
}
SCRIPT = """
import random

import numpy as np
import oneflow as flow
from libai.config import LazyConfig, default_argument_parser
from libai.engine import DefaultTrainer, default_setup

args = default_argument_parser().parse_args()
cfg = LazyConfig.apply_overrides(LazyConfig.load(args.config_file), args.opts)
default_setup(cfg, args)
seed = cfg.train.seed + flow.env.get_rank()
flow.manual_seed(seed)
np.random.seed(seed)
random.seed(seed)
DefaultTrainer(cfg).train()
"""


def write(folder: Path, kind: str) -> None:
    model, arguments = MODELS[kind]
    (folder / "samples.py").write_text(DATA)
    (folder / "config.py").write_text(CONFIG.format(model=model, arguments=arguments, kind=kind))
    (folder / "train_net.py").write_text(SCRIPT)


def losses(folder: Path) -> list[float]:
    lines = (folder / "metrics.json").read_text().splitlines()
    return [json.loads(line)["total_loss"] for line in lines]


@pytest.mark.parametrize("kind", MODELS if sampling.ALL else ["gpt"])
def test_a_model_of_libai_trains_the_same_by_train_and_by_exec(projects, kind):
    write(projects.cwd, kind)
    checked = projects.etude("check", "config.py")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    trained = projects.etude("train", "config.py", "train.output_dir=one")
    assert trained.returncode == 0, trained.stderr
    scripted = projects.etude("exec", "train_net.py", "--config-file", "config.py", "train.output_dir=two")
    assert scripted.returncode == 0, scripted.stderr
    first = losses(projects.cwd / "one")
    assert len(first) == 3 and first == losses(projects.cwd / "two")


def test_check_and_list_read_the_sources_and_import_neither_libai_nor_torch(projects):
    write(projects.cwd, "vit")
    code = "import sys; from etude.cli import main; main(['list', 'models', '--config', 'config.py'])\n"
    code += "main(['check', 'config.py']); print('torch' in sys.modules)"
    checked = projects.run("-c", code, fresh=True)
    assert "model\tlibai.models.VisionTransformer\tVision Transformer in LiBai." in checked.stdout.splitlines()
    assert checked.stdout.splitlines()[-2:] == ["config.py: no mistakes found", "False"], checked.stderr
    text = (projects.cwd / "config.py").read_text()
    for wrong, right, said in (
        ("VisionTransfomer", "VisionTransformer", "did you mean 'VisionTransformer'?"),
        ("embed_dimm", "embed_dim", "unknown key model.embed_dimm; did you mean 'embed_dim'?"),
        ("(Samples)(knid", "(Samples)(kind", "takes no argument 'knid'; did you mean 'kind'?"),
    ):
        (projects.cwd / "config.py").write_text(text.replace(right, wrong))
        checked = projects.etude("check", "config.py")
        assert checked.returncode == 2 and said in checked.stdout, checked.stdout


def test_check_reads_configs_that_are_imported_by_their_full_names(projects):
    write(projects.cwd, "vit")
    own, (common, project) = (projects.cwd / "config.py").read_text(), ("configs/common", "projects/own/configs")
    for folder in (common, project):
        (projects.cwd / folder).mkdir(parents=True)
    (projects.cwd / common / "train.py").write_text(
        "from libai.config import get_config\ntrain = get_config('common/train.py').train\ntrain.log_period = 7\n"
    )
    (projects.cwd / "projects/own/sizes.py").write_text("classes = dict(count=4)\n")
    lines = "from configs.common.train import train\nfrom sizes import classes\n"
    own = lines + own.replace("num_classes=4", 'num_classes=classes["count"]')
    own = own.replace('train = get_config("common/train.py").train\n', "")
    config = projects.cwd / project / "config.py"
    config.write_text(own + "train.lr_scheduler_type = 'cosine'\ntrain.log_perriod = 3\n")
    checked = projects.etude("check", f"{project}/config.py")
    wrong = [line for line in checked.stdout.splitlines() if "config.py:" in line and "Étude runs" not in line]
    assert "warning: unknown key train.lr_scheduler_type" in wrong[0]
    assert "unknown key train.log_perriod; did you mean 'log_period'?" in wrong[1]
    assert checked.returncode == 2 and wrong[2].endswith("1 mistake, 1 warning"), checked.stdout
    config.write_text(own)
    listed = projects.etude("list", "models", "--config", f"{project}/config.py").stdout
    assert "model\tlibai.models.VisionTransformer\tVision Transformer in LiBai." in listed.splitlines()
    listed = projects.etude("list", "--config", f"{project}/config.py").stdout
    assert "data set\tsamples.Samples\t" in listed.splitlines()
    schema = json.loads(projects.etude("schema", "--config", f"{project}/config.py").stdout)
    assert schema["properties"]["model"]["properties"]["embed_dim"] == {"description": "default 192"}
    planned = projects.etude("train", f"{project}/config.py", "train.log_period=1")
    assert planned.returncode == 0, planned.stderr


def test_a_train_loader_of_the_users_own_needs_no_dataloader_train(projects):
    write(projects.cwd, "vit")
    config = (projects.cwd / "config.py").read_text().replace("dataloader = dict(", "dataloader = dict(other=")
    (projects.cwd / "config.py").write_text(config.replace("other=train=", "other="))
    script = SCRIPT.replace(
        "DefaultTrainer(cfg).train()",
        "from libai.config import instantiate\n\n"
        "class Own(DefaultTrainer):\n"
        "    @classmethod\n"
        "    def build_train_loader(cls, cfg, tokenizer=None):\n"
        "        loader = cfg.dataloader.other\n"
        "        loader.train_batch_size, loader.test_batch_size = 8, 8\n"
        "        return instantiate(loader, _recursive_=False)\n\n"
        "Own(cfg).train()",
    )
    (projects.cwd / "train_net.py").write_text(script)
    done = projects.etude("exec", "train_net.py", "--config-file", "config.py")
    assert done.returncode == 0, done.stderr
    assert len(losses(projects.cwd / "out")) == 3


def test_the_kernels_of_oneflow_are_torchs(projects):
    code = """
import oneflow as flow, torch
from oneflow.nn.modules.batchnorm import BatchNorm2d
from oneflow.utils.data.dataset import ConcatDataset
from oneflow.utils.global_view import global_mode
a, b = torch.randn(2, 3, 4), torch.randn(5, 4)
assert torch.allclose(flow.matmul(a, b, transpose_b=True, alpha=2.0), 2 * a @ b.T, atol=1e-6)
scores = torch.randn(2, 2, 3, 3)
with torch.no_grad():
    causal, before = flow._C.fused_scale_tril_softmax_mask_scale(
        scores, p=0.5, diagonal=0, tril_scale_value=0.5, tril_fill_value=-10000.0)
expected = torch.softmax((scores * 0.5).masked_fill(torch.ones(3, 3).triu(1).bool(), -10000.0), -1)
assert torch.allclose(causal, expected) and torch.equal(causal, before)
unscaled, _ = flow._C.fused_scale_mask_softmax_dropout(scores, torch.ones(3, 3), fill_value=-1.0, scale=None, p=0.0)
assert torch.equal(unscaled, torch.softmax(scores, -1))
import numpy
assert numpy.float is float  # as LiBai's projects write it
x = torch.randn(4, 2, 24)
scores, value = flow._C.fused_self_attention(x, head_size=4, alpha=1)
assert scores.shape == (2, 2, 4, 4) and value.shape == (2, 2, 4, 4)
layer = flow.nn.Linear(2, 2).to_global(placement=flow.placement("cuda", ranks=[0]), sbp=flow.sbp.broadcast)
assert layer.weight.sbp == (flow.sbp.broadcast,) and not layer.weight.is_global
optimizer = flow.optim.SGD(layer.parameters(), lr=1.0)
warm = flow.optim.lr_scheduler.WarmUpLR(flow.optim.lr_scheduler.CosineDecayLR(optimizer, decay_steps=10),
                                        warmup_factor=0.1, warmup_iters=2)
assert abs(warm.get_last_lr()[0] - 0.1) < 1e-12
print("fine")
"""
    (projects.cwd / "script.py").write_text(code)
    done = projects.etude("exec", "script.py")
    assert done.stdout.strip().endswith("fine"), done.stderr
