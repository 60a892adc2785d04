"""Pure-Python configs: stand-ins, bases by import, dumps that can be read back."""

from __future__ import annotations

import copy
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from etude_openmm.shared.config.config_v2 import Config
from etude_openmm.shared.config.dict_v2 import ConfigDict
from etude_openmm.shared.reading.lazy_objects import LazyAttr, LazyObject
from etude_openmm.shared.reading.lazy_style import ConfigParsingError
from etude_openmm.shared.registries.registry_v2 import Registry


@pytest.fixture
def read(tmp_path: Path):
    def read(text: str, name: str = "c.py", **files: str) -> Config:
        for other, content in files.items():
            path = tmp_path / f"{other.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        return Config.fromfile(tmp_path / name)

    return read


def test_stand_ins_import_when_they_are_built() -> None:
    assert LazyObject("json").build() is json
    assert LazyObject("os.path").build() is os.path
    assert LazyObject(["os.path"]).build() is os
    assert LazyObject("os.path", "join").build() is os.path.join
    attribute = LazyObject("json").decoder.JSONDecoder
    assert isinstance(attribute, LazyAttr)
    assert attribute.build() is json.decoder.JSONDecoder
    assert (attribute.module, str(attribute), attribute.dotpath) == (
        "json.decoder",
        "JSONDecoder",
        "json.decoder.JSONDecoder",
    )


def test_stand_ins_refuse_wrong_names_and_calls() -> None:
    with pytest.raises(TypeError):
        LazyObject(1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        LazyObject("json", ["x"])  # type: ignore[arg-type]
    with pytest.raises(RuntimeError):
        LazyObject("json")()
    with pytest.raises(RuntimeError):
        LazyObject("json").dumps({})


def test_stand_ins_survive_copies_and_pickles() -> None:
    made = ConfigDict(a=LazyObject("json"), b=[{"c": LazyObject("os.path", "join")}])
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), ConfigDict(made), made | {}):
        assert isinstance(other._to_lazy_dict()["a"], LazyObject)
        assert isinstance(other._to_lazy_dict()["b"][0]["c"], LazyObject)
        assert other.a is json
        assert other.b[0].c is os.path.join


def test_a_config_dict_never_gives_out_a_stand_in() -> None:
    made = ConfigDict(a=LazyObject("json"))
    assert [made.a, made["a"], made.get("a"), *made.values(), *(v for _, v in made.items())] == [json] * 5
    assert made.to_dict() == {"a": "json"}
    assert made.setdefault("a") is json
    assert made.pop("a") is json
    made.update(b=LazyObject("os"))
    assert made.b is os


def test_names_of_the_standard_library_are_real(read: Any) -> None:
    made = read(
        "import os\nimport os.path as osp\nfrom itertools import chain\nfrom torch.optim import SGD\n"
        "path = osp.join('a', 'b')\nchained = list(chain([1], [2]))\nexisted = os.path.exists('/')\n"
        "def helper():\n    return 1\nvalue = helper()\nopt = dict(type=SGD)\n"
    )
    assert made.to_dict() == {
        "path": "a/b", "chained": [1, 2], "existed": True, "value": 1, "opt": {"type": "torch.optim.SGD"}
    }  # fmt: skip


def test_importing_os_alone_does_not_change_the_style(read: Any) -> None:
    made = read("_base_ = 'base.py'\nimport os\na = os.path.join('x', 'y')\n", base="b = 1\n")
    assert made.to_dict() == {"b": 1, "a": "x/y"}


def test_bases_by_name_alias_and_star(read: Any) -> None:
    made = read(
        "from mmengine.config import read_base\n"
        "with read_base():\n    from .one import a, b as c\n    from ..q.two import *\n"
        "a.update(y=2)\nd.merge(dict(e=dict(_delete_=True, g=1)))\n",
        name="p/c.py",
        p__one="a = dict(x=1)\nb = [1]\nz = 3\n",
        q__two="from torch.nn import ReLU\nd = dict(e=dict(f=1))\nact = dict(type=ReLU)\n",
    )
    assert made.to_dict() == {
        "a": {"x": 1, "y": 2}, "c": [1], "d": {"e": {"g": 1}}, "act": {"type": "torch.nn.ReLU"}
    }  # fmt: skip


def test_a_name_that_a_base_does_not_have_is_answered(read: Any) -> None:
    with pytest.raises(KeyError, match="did you mean 'model'"):
        read("with read_base():\n    from .one import modle\n", one="model = 1\n")


@pytest.mark.parametrize(
    "text",
    [
        "with read_base():\n    from . import one\n",
        "with read_base():\n    import one\n",
        "with open('x') as f:\n    pass\n",
        "from torch import *\n",
        "from .one import *\n",
        "with read_base():\n    from .two import *\n",
    ],
)
def test_what_a_pure_python_config_must_not_contain(read: Any, text: str) -> None:
    with pytest.raises(ConfigParsingError):
        read(text, one="a = 1\n")


def test_styles_do_not_mix_along_a_chain(read: Any) -> None:
    with pytest.raises(RuntimeError, match=r"with read_base\(\)"):
        read("_base_ = './one.py'\n", one="from torch.optim import SGD\na = dict(type=SGD)\n")
    with pytest.raises(RuntimeError, match="_base_ ="):
        read("with read_base():\n    from .one import *\n", one="_base_ = './two.py'\n", two="a = 1\n")


def test_a_style_can_be_forced(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("import json as j\nfrom torch.optim import SGD\na = dict(type=SGD)\n")
    (tmp_path / "c.py").write_text("_base_ = './one.py'\nb = 1\n")
    assert Config.fromfile(tmp_path / "c.py", lazy_import=False).a["type"].__name__ == "SGD"


@pytest.mark.parametrize(
    "text",
    [
        "from json import error_name\n".replace("json", "numpy"),
        "import numpy\nerror_name = numpy.error_name\n",
        "import error_name\n",
    ],
)
def test_a_failed_import_names_the_config(read: Any, text: str, tmp_path: Path) -> None:
    made = read(text)
    with pytest.raises(ImportError, match=str(tmp_path / "c.py")):
        made.error_name


def test_imported_names_are_readable_but_no_keys(read: Any) -> None:
    made = read("from torch.optim import SGD\na = 1\n")
    assert list(made) == ["a"]
    assert made.SGD.__name__ == "SGD"
    assert made.to_dict(keep_imported=True) == {"SGD": "torch.optim.SGD", "a": 1}


def test_a_dump_reads_back_as_the_same_config(read: Any, tmp_path: Path) -> None:
    made = read("from torch import nn\nimport torch.optim as optim\na = dict(type=nn.ReLU, o=optim.SGD, l=[nn.GELU])\n")
    made.dump(tmp_path / "d.py")
    again = Config.fromfile(tmp_path / "d.py")
    assert again.to_dict() == made.to_dict() == {
        "a": {"type": "torch.nn.ReLU", "o": "torch.optim.SGD", "l": ["torch.nn.GELU"]}
    }  # fmt: skip
    assert made.a.type.__name__ == "ReLU"


def test_stand_ins_are_the_real_thing_wherever_a_config_is_unpacked_or_built(read: Any) -> None:
    made = read(
        "from collections import OrderedDict as O\nfrom torch.nn import Linear\nlayer = dict(type=Linear, in_features=2, out_features=3)\n"
    )
    assert {**made.layer}["type"].__name__ == "Linear"
    assert dict(made.layer)["type"].__name__ == "Linear"
    assert Registry("layer").build(made.layer).weight.shape == (3, 2)
