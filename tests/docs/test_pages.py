"""What the pages show is true: programs run, configs are good; commands exist."""

from __future__ import annotations

import json
import re
import shlex
from itertools import takewhile
from pathlib import Path

import pytest

from etude import cli
from etude.config.formats.from_yaml import parse_yaml
from etude.dialects.native.lower import READING_KEYS, SECTIONS
from tests.cli.commands import CONFIG, Commands
from tests.docs.blocks import ALL_PAGES, PAGES, ROOT, Block, blocks, name_of, program

WITH_PYTHON = [page for page in PAGES if blocks(page, "python")]
YAML = [(page, block) for page in PAGES for block in blocks(page, "yaml")]
WHOLE = ("model", "data", "optim", "train")
SHELL = {"&&", "||", "|", ";", ">", ">>", "&"}


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_the_python_of_a_page_runs_as_one_program(page, workdir, own_registries):
    exec(compile(program(page), str(page), "exec"), {"__name__": f"page_{page.stem}"})


@pytest.mark.parametrize(
    ("page", "block"), YAML, ids=lambda value: name_of(value) if isinstance(value, Path) else value.line
)
def test_a_config_of_a_page_is_good(page, block, workdir, capfd):
    config = Path("page.yaml")
    config.write_text(block.text, encoding="utf-8")
    if "imports: [parts.py]" in block.text and page in WITH_PYTHON:
        Path("parts.py").write_text(program(page), encoding="utf-8")
    keys = set(parse_yaml(block.text, str(config)).values)
    if keys.issuperset(WHOLE):
        assert cli.main(["check", str(config)]) == 0, capfd.readouterr().err
    assert keys <= {*SECTIONS, *READING_KEYS}


def commands(block: Block) -> list[list[str]]:
    """The words of every ``$ etude …`` of a block, without comments and without what the shell does around it."""
    found = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            words = shlex.split(line[2:], comments=True)
            while words:
                first = list(takewhile(lambda word: word not in SHELL, words))
                found += [first[1:]] if first[:1] == ["etude"] else []
                words = words[len(first) + 1 :]
    return found


COMMANDS = [
    pytest.param(words, id=f"{name_of(page)}:{block.line}-{' '.join(words)[:40]}")
    for page in ALL_PAGES
    for block in blocks(page, "console")
    for words in commands(block)
]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_of_a_page_exists_with_its_flags(words, capfd):
    parser = cli.full_parser()
    try:
        args, rest = parser.parse_known_args(words)
        cli.place_overrides(args, rest, parser)
    except SystemExit as stop:
        assert not stop.code, capfd.readouterr().err


def test_the_writers_of_the_docs_are_listed_and_take_part_in_a_run(capfd, workdir, own_registries):
    page = ROOT / "docs" / "trackers.md"
    Path("writers.py").write_text(program(page))
    Path("c.yaml").write_text(blocks(page, "yaml")[-1].text + CONFIG.replace("log: {every: 3step}\n", ""))
    etude = Commands(capfd)
    listed = etude("list", "writers", "--config", "c.yaml").out
    assert re.search(r"\bShout\(folder", listed) and re.search(r"\bmy_service\(folder", listed)
    said = etude("train", "c.yaml", "-q", "--folder", "r")
    assert said.code == 0 and "'accuracy'" in said.out and "?" in said.out
    assert json.loads(Path("r/trackers.json").read_text()) == {"my_service": "id-of-the-new-run"}
