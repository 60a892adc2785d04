"""Signatures and registrations, read from source alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from etude.inspection import signatures as scan

from .conftest import Write


@pytest.fixture
def signature_of(write: Write, tmp_path: Path):
    def reader(text: str, name: str = "Thing"):
        scan.forget()
        write("scanned_parts.py", text)
        return scan.signature(f"scanned_parts:{name}", folders=[str(tmp_path)])

    return reader


def test_a_class_shows_its_parameters_and_first_line(signature_of) -> None:
    found = signature_of(
        '''
        class Thing:
            """Does it.

            More about it."""
            def __init__(self, a, /, b: int, c: float = 1e-3, *rest, d: "str | None" = None): ...
        '''
    )
    assert str(found) == "(a, b: int, c: float = 0.001, d: 'str | None' = None)"
    assert [(p.name, p.required, p.word) for p in found.parameters] == [
        ("a", True, False), ("b", True, True), ("c", False, True), ("d", False, True),
    ]  # fmt: skip
    assert (found.doc, found.open, found.is_class) == ("Does it.", False, True)


def test_words_handed_on_to_the_parent_are_those_of_the_parent(signature_of) -> None:
    found = signature_of(
        """
        class Base:
            def __init__(self, x, y=1, z=2): ...
        class Thing(Base):
            def __init__(self, extra, **kwargs):
                super().__init__(3, z=4, **kwargs)
        """
    )
    assert (str(found), found.open, found.bases) == ("(extra, y=1)", False, ("scanned_parts:Base",))


@pytest.mark.parametrize(
    "text",
    [
        "class Thing:\n    def __init__(self, a, **kwargs):\n        self.options = kwargs\n",
        "from nowhere import Base\nclass Thing(Base):\n    def __init__(self, a, **kw):\n        super().__init__(**kw)\n",
        "from nowhere import Base\nclass Thing(Base): ...\n",
        "def Thing(a, **kwargs): ...\n",
    ],
)
def test_where_the_source_does_not_show_it_a_signature_is_open(signature_of, text: str) -> None:
    assert signature_of(text).open


def test_a_class_without_init_takes_what_its_parent_takes(signature_of) -> None:
    text = "class Mixin: ...\nclass Base:\n    def __init__(self, x): ...\nclass Thing(Mixin, Base): ...\n"
    assert str(signature_of(text)) == "(x)"


def test_dataclasses_show_their_fields_after_those_of_their_parents(signature_of) -> None:
    found = signature_of(
        """
        from dataclasses import dataclass, field
        from typing import ClassVar
        @dataclass
        class Base:
            a: int
            b: float = 1.0
        @dataclass(frozen=True)
        class Thing(Base):
            kind: ClassVar[str] = "x"
            b: float = 2.0
            c: list = field(default_factory=list)
            d: int = field(init=False, default=3)
        """
    )
    assert str(found) == "(a: int, b: float = 2.0, c: list = list())"


def test_names_are_followed_through_imports_aliases_and_stars(write: Write, tmp_path: Path) -> None:
    write("followed/__init__.py", "from .deep import *\nfrom . import other\nAlias = other.Second\n")
    write("followed/deep.py", "class First:\n    def __init__(self, x): ...\n")
    write("followed/other.py", "import followed.deep as d\nclass Second(d.First): ...\n")
    for name in ("First", "Alias", "other.Second"):
        assert str(scan.signature(f"followed:{name}", folders=[str(tmp_path)])) == "(x)", name
    assert "followed" not in sys.modules


def test_what_is_not_there_or_not_python_has_no_signature(write: Write, tmp_path: Path) -> None:
    write("broken_parts.py", "class Thing(:\n")
    write("circle_one.py", "from circle_two import Thing\n")
    write("circle_two.py", "from circle_one import Thing\n")
    for target in ("broken_parts:Thing", "no_such_module:Thing", "circle_one:Thing", "json:nothing", "math:sqrt"):
        assert scan.signature(target, folders=[str(tmp_path)]) is None


def test_registrations_are_found_in_every_form_also_through_imports_beside(write: Write) -> None:
    write("own_pkg/__init__.py", "from .nets import *\nfrom own_pkg import hooks\nimport json\n")
    write(
        "own_pkg/nets.py",
        """
        from etude.registry import MODELS
        @MODELS.register
        class Tiny: ...
        @MODELS.register("small")
        class Small: ...
        @MODELS.register(name="named", force=True)
        def make(): ...
        @MODELS.register_module()
        class Theirs: ...
        """,
    )
    path = write(
        "own_pkg/hooks.py",
        """
        import etude
        class Quiet: ...
        if True:
            etude.HOOKS.add("quiet", Quiet)
        etude.HOOKS.register(Quiet)
        """,
    )
    found = scan.registrations("own_pkg", str(path.parent / "__init__.py"))
    assert sorted((entry.table, entry.name, entry.target) for entry in found) == [
        ("HOOKS", "Quiet", "own_pkg.hooks:Quiet"),
        ("HOOKS", "quiet", "own_pkg.hooks:Quiet"),
        ("MODELS", "Theirs", "own_pkg.nets:Theirs"),
        ("MODELS", "Tiny", "own_pkg.nets:Tiny"),
        ("MODELS", "named", "own_pkg.nets:make"),
        ("MODELS", "small", "own_pkg.nets:Small"),
    ]
