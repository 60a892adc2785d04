"""Secrets in texts: every form that is written in programs and configs is hidden, and what only looks like one stays."""

from __future__ import annotations

import ast
import os
import stat
import subprocess
import textwrap
from pathlib import Path

import pytest

from etude.config.secrets import REDACTED, hide_diff, hide_text, looks_random
from tests.zygote import etude

#: Every secret below has this in it, so that a leak shows; PARTS are joined here, or a scanner would find the file.
M = "Mark3r"
#: The name of a form → a program that has it.
IN_PROGRAMS = {
    "Bearer header": f'headers = {{"Authorization": "Bearer abc{M}123456"}}',
    "Bearer header in a string": f'x = "Authorization: Bearer ab{M}c123456"',
    "Bearer header under another name": f'x = ["-H", "Bearer ab{M}c123456"]',
    "Basic header": f'x = "Basic dXNlcjp{M}YXNz"',
    "AWS key": 'x = "' + "AKIA" + 'MARK3RODNN7EXAMP"',
    "sk- key": 'x = "' + f'sk-proj-{M}abc123456789xyz"',
    "Stripe key": 'x = "' + f'sk_live_{M}abc123456789"',
    "GitHub token": 'x = "' + f'ghp_{M}abcdefghijklmnopqrstuv"',
    "GitHub fine-grained token": 'x = "' + f'github_pat_11{M}_abcdefghijklmnopqrstuv"',
    "GitLab token": 'x = "' + f'glpat-{M}abcdefghijklmnop"',
    "Slack token": 'x = "' + f'xoxb-{M}-1234567890"',
    "Slack webhook": f'x = "https://hooks.slack.com/services/T00000/B00000/{M}1234567890"',
    "Hugging Face token": 'x = "' + f'hf_{M}abcdefghijklmnopqrstuv"',
    "Google key": 'x = "' + f'AIza{M}abcdefghijklmnopqrstuvwxyz0123"',
    "JSON web token": f'x = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJNQVJLIn0.{M}abcdefgh"',
    "address with a password": f'x = "https://me:{M}@example.org/x"',
    "address with a token alone": f'x = "https://{M}{"a" * 20}@example.org/x"',
    "address with a query": f'requests.get("https://x.org/?access_token={M}123&y=1")',
    "signed address": f'x = "https://x.org/a?X-Amz-Signature={M}abcdef&y=1"',
    "Azure connection": f'x = "Endpoint=sb://x;AccountKey={M}abc==;y=1"',
    "private key": f'x = """-----BEGIN RSA PRIVATE KEY-----\nMII{M}\n{M}abc=\n-----END RSA PRIVATE KEY-----"""\ny = 1',
    "private key in pieces": f'K = ("-----BEGIN PRIVATE KEY-----\\n"\n  "MII{M}\\n"\n  "-----END PRIVATE KEY-----")',
    "the end of a private key": f"  MII{M}{'a' * 40}\n  {M}{'b' * 40}\n  -----END PRIVATE KEY-----\n",
    "value in brackets on the next line": f'api_key = (\n    "{M}"\n)',
    "value after a backslash": f'api_key = \\\n    "{M}"',
    "item on the next line": f'{{"api_key":\n   "{M}"}}',
    "triple quotes": f'password = """\n{M}\n"""\ny = 1',
    "environment": f'os.environ["HF_TOKEN"] = "{M}"',
    "setdefault": f'os.environ.setdefault("HF_TOKEN", "{M}")',
    "default of getenv": f'x_token = os.getenv("HF_TOKEN", "{M}")',
    "default of a parameter": f'def f(a=1, token: str = "{M}"):',
    "argument": f'login(token="{M}", retries=3)',
    "argument in two pieces": f'login(token="{M}" "{M}2", retries=3)',
    "setter": f'set_password("{M}")',
    "bytes": f'secret = b"{M}"',
    "f-string": f'api_key = f"{M}-{{x}}"',
    "list": f'tokens = ["{M}1", "{M}2"]',
    "dict of secrets": f'SECRETS = {{"wandb": "{M}"}}',
    "comparison": f'if password == "{M}":',
    "words of a password": f'PASS_PHRASE: str = "{M}"',
    "attribute": f'self.client_secret = "{M}"',
    "annotated": f'api_key: Final[str] = "{M}"',
    "flag": f'run("cmd --password {M} x")',
    "environment file in a string": f'x = """\nTOKEN={M}\n"""',
    "comment": f"# api_key = {M}",
    "comment without a separator": f"# passwd {M}",
    "lower case in a comment": f"lr = 0.1  # password {M.lower().replace('3', 'e')}",
    "sentence in a comment": f"# the password of the server is {M}.",
    "key in a comment": f"# api key ab{M}9",
    "login in a string": f'x = "machine example.org login me password {M}"',
    "random value of a name that says little": f'key = "wJalrXUtn{M}K7MDENGbPxRfiCYzQ8s7d"',
}
#: The same for configs and other files.
IN_CONFIGS = {
    "YAML": f"api_key: {M}",
    "YAML with quotes": f'api_key: "{M}"',
    "YAML on the next line": f"api_key:\n  {M}\nnext: 1",
    "YAML block": f"api_key: |\n  {M}\n  {M}\nnext: 1",
    "YAML folded": f"api_key: >-\n  {M}\nnext: 1",
    "YAML short for a password": f"db_pw: {M}",
    "YAML in braces": f"hooks: [{{type: A, api_key: {M}, every: 1}}]",
    "YAML with spaces in braces": f"a: {{password: my {M} pass, b: 1}}",
    "YAML list": f"tokens:\n  - {M}\n  - {M}2\nnext: 1",
    "YAML header": f"headers:\n  Authorization: Bearer {M}1234567",
    "YAML private key": f"key: |\n  -----BEGIN PRIVATE KEY-----\n  {M}\n  {M}2\n  -----END PRIVATE KEY-----\nnext: 1",
    "JSON": f'{{"token": "{M}", "x": 1}}',
    "JSON on the next line": f'"token":\n    "{M}",\n"next": 1',
    "TOML": f'password = "{M}" # x',
    "TOML with triple quotes": f'secret = """\n{M}\n"""\nnext = 1',
    "environment file": f"TOKEN={M}",
    "shell": f"export TOKEN={M} x",
    "Dockerfile": f"ENV HF_TOKEN={M}",
    "XML": f"<password>{M}</password>",
    "flag": f"curl --token {M} x",
    "prose": f"password: a {M} b",
    "comment without a separator": f"# passwd {M}",
    "comment with a short word": f"lr: 1  # pwd '{M}'",
    "netrc": f"machine example.org login me password {M}",
    "secret in a sentence": f"# secret ab{M}x",
    "random value": f"key: wJalrXUtn{M}K7MDENGbPxRfiCYzQ8s7d",
}
HARMLESS = (
    'commit = "da39a3ee5e6b4b0d3255bfef95601890afd80709"',
    "digest: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "digest: sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
    "id: 550e8400-e29b-41d4-a716-446655440000",
    'data = base64.b64decode("aGVsbG8gd29ybGQgMTIzNDU2Nzg5MA==")',
    "image: iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    "max_tokens = 128",
    "max_tokens: 128",
    'tokenizer = "bert-base-uncased"',
    "x = tokens[0]",
    'monkey: "banana"',
    "key: val/accuracy",
    "url: https://example.org/a?b=1",
    "branch: task-2026-11-19-abcdef",
    "import secrets",
    "the bearer of good news",
    "lr: 1e-3  # as in the paper",
    "# token count of a batch",
    "# passwords are hashed and kept apart",
    "# the password is asked for",
    "# a secret sauce",
)
HARMLESS_PROGRAMS = (
    "token_ids = tokenizer(text)",
    "if token:\n    return x",
    'token = os.environ["HF_TOKEN"]',
    'class Token:\n    """A token."""',
    "def token_count(text): return len(text)",
    "password = None",
    "x = password if V2 else token",
    "assert password is SENTINEL_2",
    "def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:",
)


@pytest.mark.parametrize("form", IN_PROGRAMS)
def test_a_secret_in_a_program_is_hidden_and_no_line_moves(form: str) -> None:
    text = IN_PROGRAMS[form]
    public = hide_text(text, python=True)
    assert M not in public and "MARK3R" not in public and REDACTED in public
    assert public.count("\n") == text.count("\n")


@pytest.mark.parametrize("form", IN_CONFIGS)
def test_a_secret_in_a_config_is_hidden_and_what_follows_stays(form: str) -> None:
    text = IN_CONFIGS[form]
    public = hide_text(text, python=False)
    assert M not in public and REDACTED in public
    assert public.count("\n") == text.count("\n")
    assert not (text.endswith("next: 1") and not public.endswith("next: 1"))


@pytest.mark.parametrize("form", [*IN_PROGRAMS, *IN_CONFIGS])
def test_a_secret_in_a_diff_is_hidden(form: str) -> None:
    inside, name = (IN_PROGRAMS[form], "a.py") if form in IN_PROGRAMS else (IN_CONFIGS[form], "a.cfg")
    added = "\n".join(f"+{line}" for line in inside.split("\n"))
    head = f"diff --git a/{name} b/{name}\nindex 1234567..89abcde 100644\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n"
    public = hide_diff(head + added + "\ndiff --git a/b.py b/b.py\n+lr = 0.1\n")
    assert M not in public and "MARK3R" not in public
    assert public.startswith(head) and public.endswith("\n+lr = 0.1\n")


@pytest.mark.parametrize("text", [*HARMLESS, *HARMLESS_PROGRAMS])
def test_what_is_no_secret_can_be_read(text: str) -> None:
    assert hide_text(text, python=True) == text
    if text in HARMLESS:
        assert hide_text(text, python=False) == text


@pytest.mark.parametrize(
    "text",
    [
        "token=(" * 36_000,
        "key=(" * 50_000,
        "token = \n" * 25_000,
        "-----BEGIN PRIVATE KEY-----\n" * 9_000,
        "'" * 250_000,
        "eyJ" * 80_000,
        "a" * 250_000,
        "://" + "a" * 250_000,
        "api_key: |\n" * 20_000,
        'password="' * 20_000,
    ],
    ids=lambda text: text[:12],
)
@pytest.mark.parametrize("python", [True, False])
def test_no_text_of_the_size_of_a_program_holds_up_a_start(text: str, python: bool) -> None:
    # A search that is quadratic would take hours.
    assert hide_text(text, python=python).count("\n") == text.count("\n")


def test_a_digest_does_not_look_random() -> None:
    assert not looks_random("da39a3ee5e6b4b0d3255bfef95601890afd80709") and not looks_random("resnet50_a1_in1k")


CONFIG = f"""\
imports: [parts.py]
env: [SOME_VALUE]
extra: {{hf_token: {M}-planted-one, plain: 1}}
model: {{type: Tiny, source: "${{extra.hf_token}}"}}
loss: CrossEntropyLoss
data: {{train: {{dataset: Digits, batch_size: 512}}}}
optim: {{type: SGD, lr: 0.1}}
train: {{epochs: 1, threads: 1}}
"""
PARTS = """\
import torch
from etude import MODELS

@MODELS.register
class Tiny(torch.nn.Linear):
    def __init__(self, source=""):
        super().__init__(64, 10)
        self.source = source

    def forward(self, x):
        return super().forward(x.flatten(1))
"""


def _is_valid(text: str) -> bool:
    try:
        return bool(ast.parse(text)) and '"""' not in text
    except SyntaxError:
        return False


def git(*words: str) -> None:
    subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], check=True, capture_output=True)


def test_a_run_keeps_no_form_of_a_secret_and_its_code_is_for_its_owner_alone(workdir: Path) -> None:
    git("init", "-q", ".")
    Path("parts.py").write_text(PARTS)
    Path("config.yaml").write_text(CONFIG)
    git("add", "-A")
    git("commit", "-qm", "first")
    valid = [text for text in IN_PROGRAMS.values() if _is_valid(text)]
    assert len(valid) > 35
    Path("parts.py").write_text(PARTS + "def unused():\n" + textwrap.indent("\n".join(valid), "    ") + "\n")
    Path("config.yaml").write_text(f"{CONFIG}# api_key: {M}\n")
    before = os.umask(0)
    try:
        done = etude("train", "config.yaml", "--folder", "run", check=True)
    finally:
        os.umask(before)
    files = [path for path in Path("run").rglob("*") if path.is_file()]
    assert {"code.diff", "code.json", "plan.yaml"} <= {path.name for path in files}
    leaks = [str(path) for path in files if M.encode() in path.read_bytes() or b"MARK3R" in path.read_bytes()]
    assert leaks == [] and M not in done.stdout + done.stderr
    modes = {name: stat.S_IMODE(Path("run", name).stat().st_mode) for name in ("code.diff", "code.json")}
    assert modes == {"code.diff": 0o600, "code.json": 0o600}


def test_a_plan_shows_no_secret_that_a_value_refers_to(workdir: Path) -> None:
    Path("parts.py").write_text(PARTS)
    Path("config.yaml").write_text(CONFIG.replace("Tiny, source", "Tiny, name: x, source").replace("name: x, ", ""))
    shown = etude("plan", "config.yaml", check=True)
    shown_config = etude("config", "config.yaml", check=True)
    assert M not in shown.stdout + shown.stderr + shown_config.stdout
    assert "${extra.hf_token}" in shown_config.stdout


@pytest.mark.parametrize("name", ["run-${extra.hf_token}", "${env:ETUDE_HF_TOKEN}", "a-${extra.below}"])
@pytest.mark.parametrize("verb", ["plan", "train", "check"])
def test_no_run_is_named_after_a_secret(workdir: Path, name: str, verb: str) -> None:
    Path("parts.py").write_text(PARTS)
    text = CONFIG.replace("plain: 1", 'plain: 1, below: "${env:ETUDE_HF_TOKEN}"')
    Path("config.yaml").write_text(text + f'name: "{name}"\n')
    done = etude(verb, "config.yaml", env={**os.environ, "ETUDE_HF_TOKEN": f"{M}x"})
    said = done.stdout + done.stderr
    assert done.returncode == 2 and "config.yaml:9: name holds a secret" in said and M not in said
    assert not Path("runs").exists()


def test_a_plan_does_not_show_what_the_environment_gave(workdir: Path) -> None:
    Path("parts.py").write_text(PARTS)
    Path("config.yaml").write_text(CONFIG + 'name: "run-${env:SOME_VALUE}"\n')
    shown = etude("plan", "config.yaml", env={**os.environ, "SOME_VALUE": f"{M}-of-a-variable"}, check=True)
    assert M not in shown.stdout and f"run-{REDACTED}" in shown.stdout
