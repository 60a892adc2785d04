"""Hides secrets in values and in texts: by the name of what holds them, and by the form of the secret itself."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

REDACTED = "REDACTED"
#: A value shorter than this could be anywhere in a text by chance.
SHORTEST = 6

_NAME = re.compile(
    r"token(?!i[sz])|secret|passw|pass_?(?:phrase|code)|pwd$|(?:^|[_-])pw$|[_-]key$|credential|authorization|bearer"
    r"|(?:api|access|account|private|shared|signing|encryption|master)[_-]?key",
    re.IGNORECASE,
)
#: Names whose numbers are hidden, too, and everything below them: a count of tokens is no secret, a PIN is.
_STRICT = re.compile(r"secret|passw|pass_?(?:phrase|code)|credential", re.IGNORECASE)
#: Names that hold a secret only if the value looks like one.
_PERHAPS = re.compile(r"(?:^|[\W_])(?:key|auth|salt|sid|pat|dsn|pass|cert|webhook)$|[a-z]Key$", re.IGNORECASE)

#: What secrets look like wherever they are written. The group ``lead``, if there is one, is kept.
FORMS: Mapping[str, str] = {
    "AWS key": r"\b(?:AKIA|ASIA|AGPA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{16}\b",
    "sk- key": r"\bsk-(?=[\w-]*\d)[\w-]{16,}",
    "Stripe key": r"\b[srp]k_(?:live|test)_[0-9A-Za-z]{10,}",
    "GitHub token": r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}",
    "GitLab token": r"\bgl(?:pat|ptt|dt|rt|cbt)-[\w-]{16,}",
    "Slack token": r"\bxox[a-z]-[\w-]{10,}|\bxapp-\d-[\w-]{10,}",
    "webhook": r"(?P<lead_1>hooks\.slack\.com/\w+/|discord(?:app)?\.com/api/webhooks/)[\w/-]{16,}",
    "Google key": r"\bAIza[\w-]{35}|\bya29\.[\w-]{20,}|\bGOCSPX-[\w-]{20,}",
    "Hugging Face token": r"\bhf_[A-Za-z0-9]{20,}|\bapi_org_[A-Za-z0-9]{20,}",
    "package index token": r"\bnpm_[A-Za-z0-9]{36}|\bpypi-[\w-]{30,}|\bdckr_pat_[\w-]{20,}",
    "SendGrid key": r"\bSG\.[\w-]{16,}\.[\w-]{16,}",
    "DigitalOcean token": r"\bdo[opr]_v1_[0-9a-f]{40,}",
    "Telegram token": r"\b\d{8,10}:AA[\w-]{32,}",
    "JSON web token": r"\beyJ[\w-]{8,}\.eyJ[\w-]{4,}(?:\.[\w-]*)?",
    "Bearer header": r"(?P<lead_2>\b[Bb]earer\s+)(?=[\w.~+/-]*\d)[\w.~+/-]{8,}=*",
    "Basic header": r"(?P<lead_3>\b[Bb]asic\s+)(?=[A-Za-z0-9+/]*[0-9=])[A-Za-z0-9+/]{8,}={0,2}",
    "user and password": r"(?P<lead_4>://)[^/\s:@\"']*:[^/\s@\"'{}]+(?=@)",
    "token as user": r"(?P<lead_5>://)[^/\s:@\"'{}]{16,}(?=@)",
    "signed address": r"(?P<lead_6>[?&](?:sig|signature|key|X-Amz-(?:Signature|Credential|Security-Token))=)"
    r"[^&\s\"'{}]{6,}",
    "Azure key": r"(?P<lead_7>\b(?:AccountKey|SharedAccessKey|SharedAccessSignature)=)[^;\s\"']{6,}",
}
_FORM = re.compile("|".join(f"(?:{form})" for form in FORMS.values()))
#: Most texts have none of these, which one search tells.
_MAY_HAVE_FORM = re.compile(
    r"A[KSGRIBC][A-Z]A|[srp]k[-_]|gh[pousr]_|github_pat|gl\w{2,3}-|xox|xapp|hooks\.|webhooks|AIza|ya29|GOCSPX|hf_|api_org_"
    r"|npm_|pypi-|dckr_|SG\.|do[opr]_v1|:AA|eyJ|[Bb]earer|[Bb]asic|://|[?&]|Account|Shared"
)
_PEM = re.compile(
    r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)(.*?)(-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)"
    r"|((?:^[^\S\n]*[+\-#\"' ]*[A-Za-z0-9+/=]{16,}[\"'\\n]*\n)+)(?=[^\n]{0,8}-----END [A-Z0-9 ]*PRIVATE KEY)",
    re.DOTALL | re.MULTILINE,
)
#: A key that has no end is hidden up to the first line that cannot belong to it.
_KEY_LINE = re.compile(r"[+\-#\"' \t]*(?:[A-Za-z0-9+/=\\]+|[A-Za-z-]+: .*)?[\"'\\n,)]*")

_TYPE = r"(?:\w+\.)?(?:Optional\[)?(?:str|bytes|int|Any|SecretStr|object)(?:\s*\|\s*(?:str|bytes|int|None))*\]?"
#: A name and what assigns, compares or maps it: ``name =``, ``"name":``, ``env["NAME"] =``, ``name: str =``.
_HOLDER = re.compile(
    rf"""(?<![\w.-])["'<]?-{{0,2}}([A-Za-z_][\w.-]*)(?:["']|>(?=[^\s=]))?\s*\]?\s*(?::\s*{_TYPE}\s*=(?!=)|=>|[!=]=|:=|[:=]|(?<=>))[^\S\n]*"""
)
#: ``set_token("…")``, ``setdefault("HF_TOKEN", "…")``, ``--password …``
_CALL = re.compile(r"""(?<![\w-])([\w.]+)\(\s*(?=[rbfu]{0,2}["'])""", re.IGNORECASE)
_PAIR = re.compile(r"""["']([\w.-]+)["']\s*,\s*(?=[rbfu]{0,2}["'])""", re.IGNORECASE)
_FLAG = re.compile(r"""(?<!\S)--?([\w-]+)[^\S\n]+(?=[^\s-])""")
_WORD = re.compile(r"""\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'{}]+""")
_LITERAL = re.compile(
    r"""([rbfuRBFU]{0,2})(\"{3}|'{3})(.*?)(?:\2|\Z)|([rbfuRBFU]{0,2})(["'])((?:\\.|(?!\5)[^\\\n])*)(?:\5|$)""",
    re.DOTALL | re.MULTILINE,
)
_VARIABLE = re.compile(r"(?:environ\s*\[|environ\.get\(|getenv\()\s*$")
_MAY_BE_RANDOM = re.compile(r"""[\[({\s]{0,4}[rbfuRBFU]{0,2}["']|[^\s"'&,;{}]{20}""")
#: Characters of a Python expression that are looked through for what it gives.
_MOST = 8000
#: A value that is written without quotes, inside braces and elsewhere.
_IN_BRACES = re.compile(r"""\[[^\]\n]*\]|"[^"\n]*"?|'[^'\n]*'?|[^\s,{}\[\]()"'][^,{}\[\]()\n"']*""")
#: A value in the middle of a string: without what a format puts in.
_IN_STRING = re.compile(r"""(?:(?:Bearer|Basic|Token)\s+)?((?!\{|%s)[^\s"'&,;{}]*)""", re.IGNORECASE)
#: What hides nothing, unless the name is that of a password.
_HARMLESS = re.compile(r"-?[\d._]+(?:e-?\d+)?|true|false|null|none|~", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"""[^&\s"']+""")
#: A line of a text inside a program, or a comment, that assigns what no expression is.
_WRITTEN = re.compile(
    r"""^[+-]?\s*#?\s*(?:-\s+)?(?:export\s+)?([A-Za-z_][\w-]*)\s*[:=]\s*(?=\S*[^\sA-Za-z_.])([^\s"'()\[\]{},\\]+)$""",
    re.MULTILINE,
)
#: A name and a value with nothing but a space between them, as people write it in comments, and ``.netrc`` has it.
_SPOKEN = re.compile(
    r"""(?<![\w.-])((?:api|access|auth|secret|private|signing)[ -]key|[A-Za-z_][\w-]*)[^\S\n]+"""
    r"""(?=(?:(?:(?:of|for)[^\S\n]+(?:\w+[^\S\n]+){1,4}?)?(is|was)[^\S\n]+)?["'`]?([^\s"'`(){}\[\],;:=]+))""",
    re.IGNORECASE,
)
_MAY_BE_SPOKEN = re.compile(
    r"(?:token|secret|passw\w*|pass_?phrase|passcode|pwd?|credentials?|key)[^\S\n]", re.IGNORECASE
)
_COMMENT = re.compile(r"(?:^[+-]?|\s)(?:#|//|--|;|/\*|<!--)")
_PASSWORD = re.compile(r"passw|pass_?(?:phrase|code)|pwd$|(?:^|[_-])pw$", re.IGNORECASE)
_BLOCK = re.compile(r"[|>][+-]?\d?\s*(?:#.*)?$")
_ORDINARY = re.compile(r"[a-z_./ -]{1,11}")
_START = re.compile(r"[+-]?\s*(?:-\s+)?")
#: The beginning of a line of a diff or a config before a name that is not inside braces.
_OUTSIDE = re.compile(r"[+-]?\s*(?:-\s+)*(?:export\s+|set\s+|ENV\s+|ARG\s+)?[\"']?")


def is_secret_key(key: Any) -> bool:
    """Return whether a key is called like a secret: ``hf_token``, ``password``, ``api_key``."""
    return isinstance(key, str) and bool(_NAME.search(key))


def is_secret(key: Any, value: Any) -> bool:
    """Return whether the value of ``key`` is to be hidden.

    >>> is_secret("hf_token", "abc"), is_secret("max_tokens", 512), is_secret("password", 123456)
    (True, False, True)
    """
    if not isinstance(key, str):
        return False
    if isinstance(value, str):
        return bool(_NAME.search(key)) or (bool(_PERHAPS.search(key)) and looks_random(value))
    if isinstance(value, list | tuple):
        return bool(_NAME.search(key))
    if isinstance(value, Mapping):
        return bool(re.search(r"(?:secret|credential|password)s?$", key, re.IGNORECASE))
    return isinstance(value, int) and not isinstance(value, bool) and value > 99_999 and bool(_STRICT.search(key))


def hidden(value: Any) -> Any:
    """Return the value of a secret key with everything in it hidden but what refers to the environment."""
    if isinstance(value, Mapping):
        return {key: hidden(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [hidden(item) for item in value]
    return REDACTED if isinstance(value, str) or (type(value) is int and value > 99_999) else value


def looks_random(text: str) -> bool:
    """Return whether ``text`` looks as if it were drawn at random, and is no digest of something.

    >>> looks_random("wJalrXUtnFEMI/K7MDENG/bPxRfiCY"), looks_random("da39a3ee5e6b4b0d3255bfef95601890afd80709")
    (True, False)
    """
    if len(text) < 20 or " " in text or re.fullmatch(r"(?:[0-9a-f]+|[0-9A-F]+|(?:sha\d+|md5)[:-].*)", text):
        return False
    kinds = sum(bool(re.search(kind, text)) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    counts = Counter(text)
    return kinds == 3 and -sum(n / len(text) * math.log2(n / len(text)) for n in counts.values()) > 3.5


def repeated(value: Any) -> bool:
    """Return whether a secret may be looked for in other texts: no ordinary short word, which they may well have."""
    return isinstance(value, str) and len(value) >= SHORTEST and not re.fullmatch(r"[a-z_./ -]{1,20}", value)


# -- by form -----------------------------------------------------------------------------------------------------------


def hide_forms(text: str, mark: str = REDACTED) -> str:
    """Return ``text`` without what has the form of a secret: keys of known services, headers, private keys.

    >>> hide_forms("git clone https://me:abc@example.org/x")
    'git clone https://REDACTED@example.org/x'
    """
    if "PRIVATE KEY" in text:
        text = _PEM.sub(lambda found: _without_key(found, mark), text)
    if _MAY_HAVE_FORM.search(text) is None:
        return text
    return _FORM.sub(lambda found: next(filter(None, found.groups()), "") + mark, text)


def _without_key(found: re.Match[str], mark: str) -> str:
    """Hide the lines of a private key, one by one: the lines after it keep their numbers."""
    if found[4]:
        return "".join(f"{_margin(line)}{mark}\n" for line in found[4].splitlines())
    if found[3]:
        return found[1] + _masked(found[2], mark) + found[3]
    lines = found[2].split("\n")
    length = next((number for number, line in enumerate(lines) if number and not _KEY_LINE.fullmatch(line)), len(lines))
    return found[1] + _masked("\n".join(lines[:length]), mark) + "".join(f"\n{line}" for line in lines[length:])


def _masked(text: str, mark: str) -> str:
    lines = text.split("\n")
    kept = [mark if lines[0].strip() else ""] + [f"{_margin(line)}{mark}" for line in lines[1:-1]]
    return "\n".join([*kept, _margin(lines[-1])] if len(lines) > 1 else kept)


def _margin(line: str) -> str:
    """Return what a diff, a comment or an indentation puts before a line."""
    return line[: len(line) - len(line.lstrip("+-# \t\"'"))]


# -- by name -----------------------------------------------------------------------------------------------------------


def hide_line(text: str, mark: str = REDACTED) -> str:
    """Return a line of a config or a program without the values of names that are called like secrets.

    >>> hide_line("hooks: [{type: Report, api_key: abc}]"), hide_line("Authorization: Bearer abc")
    ('hooks: [{type: Report, api_key: REDACTED}]', 'Authorization: REDACTED')
    """
    kept, end = "", 0
    for found in _HOLDER.finditer(text):
        if found.start() < end or not is_secret_key(_last(found[1])):
            continue
        inside = not _OUTSIDE.fullmatch(text[: found.start(1)])
        in_address = text[: found.start(1)][-1:] in ("?", "&")
        value = (_IN_ADDRESS if in_address else _IN_BRACES).match(text, found.end())
        if value is None or (_HARMLESS.fullmatch(value[0].strip()) and not _STRICT.search(found[1])):
            continue
        stop = value.end() if inside or value[0][0] in "\"'[" else len(text)
        kept, end = kept + text[end : found.end()] + _quoted(value[0], mark, text[found.end() - 1]), stop
    return hide_forms(kept + text[end:], mark)


def _quoted(value: str, mark: str, before: str) -> str:
    quote = value[0]
    if before == ">":
        return mark + value[value.find("<") :] if "<" in value else mark
    return f"{quote}{mark}{quote}" if quote in "\"'" and len(value) > 1 and value[-1] == quote else mark


def _last(name: str) -> str:
    return name.rpartition(".")[2] or name


def hide_text(text: str, *, python: bool, mark: str = REDACTED) -> str:
    """Return the text of a file without secrets: by names, over several lines where a value has them, and by forms.

    Every line stays where it is. ``python``: the file is a program, in which only strings can hold a secret.

    >>> hide_text('login(token="abc", retries=3)', python=True)
    'login(token="REDACTED", retries=3)'
    """
    text = _hide_in_python(text, mark) if python else _hide_in_lines(text, mark)
    return hide_forms("\n".join(_hide_spoken(line, mark) for line in text.split("\n")), mark)


def hide_diff(text: str, mark: str = REDACTED) -> str:
    """Return a diff of git without secrets; each file is taken for what its name says."""
    parts = re.split(r"(?m)^(?=diff --git )", text)
    return "".join(
        hide_text(part, python=part.partition("\n")[0].rstrip('"').endswith((".py", ".pyi")), mark=mark)
        for part in parts
    )


def _hide_spoken(line: str, mark: str) -> str:
    """Hide what follows a name after a space: ``# password abc``, ``login me password a1b2``.

    An ordinary word is hidden only where it ends a comment about a password.
    """
    if _MAY_BE_SPOKEN.search(line) is None:
        return line
    comment = _COMMENT.search(line)
    cuts = []
    for found in _SPOKEN.finditer(line):
        name, link, value = found[1], found[2], found[3].rstrip(".!")
        commented = comment is not None and comment.start() <= found.start()
        if not is_secret_key(name.replace(" ", "_")) or (link and not commented) or not value:
            continue
        password = _PASSWORD.search(name) is not None
        last = commented and not line[found.end(3) :].strip("\"'`*/-> ")
        if (password and last and value.lower() not in ("is", "was")) or _is_mixed(value, 4 if password else 8):
            cuts.append((found.start(3), found.start(3) + len(value), mark))
    return _cut(line, cuts)


def _is_mixed(value: str, least: int) -> bool:
    """Return whether a word is of letters and other characters, as passwords are, and no name with underscores."""
    return len(value) >= least and bool(re.search(r"[A-Za-z]", value)) and bool(re.search(r"[0-9!$%&*+?@^~]", value))


def _hide_in_python(text: str, mark: str) -> str:
    """Hide the strings of what is assigned to a name that is called like a secret, of an argument or an item of it."""
    cuts: list[tuple[int, int, str]] = []
    for pattern in (_HOLDER, _CALL, _PAIR, _FLAG):
        past = 0
        for found in pattern.finditer(text):
            if found.start() < past:  # inside of an expression that was looked through
                continue
            name = _last(found[1])
            known = is_secret_key(name)
            if not known and not (
                pattern is _HOLDER and _PERHAPS.search(name) and _MAY_BE_RANDOM.match(text, found.end())
            ):
                continue
            if pattern is _FLAG:
                word = _WORD.match(text, found.end())
                cuts += [(word.start(), word.end(), mark)] if word and not _ORDINARY.fullmatch(word[0]) else []
                continue
            if pattern is _HOLDER and _is_in_string(text, found):
                word = _IN_STRING.match(text, found.end())
                if word and word[1] and (looks_random(word[1]) if not known else not _ORDINARY.fullmatch(word[1])):
                    cuts.append((*word.span(1), mark))
                continue
            most = _MOST if known else 200
            literals, end = _literals(text, found.end(), found[0].rstrip()[-1:], most)
            past = end if known and pattern is _HOLDER else 0
            if pattern is not _HOLDER:
                literals = [one for one in literals[:1] if pattern is _CALL or repeated(one[3])]
            cuts += [
                (start, end, shape.replace("\0", mark))
                for start, end, shape, inner in literals
                if known or looks_random(inner)
            ]
            number = re.compile(r"\d{6,}\b").match(text, found.end())
            if number and _STRICT.search(name):
                cuts.append((number.start(), number.end(), mark))
    for found in _WRITTEN.finditer(text):
        if is_secret_key(found[1]) and not found[2].isdigit():
            cuts.append((*found.span(2), mark))
    return _cut(text, cuts)


def _literals(text: str, start: int, operator: str, most: int) -> tuple[list[tuple[int, int, str, str]], int]:
    """Return the strings of the expression at ``start``, and its end.

    Of each string: begin, end, what replaces it (NUL for the mark), content.
    """
    found: list[tuple[int, int, str, str]] = []
    depth, at, end = 0, start, min(len(text), start + most)
    while at < end:
        sign = text[at]
        if sign in "([{":
            depth += 1
        elif (sign in ")]}" and (depth := depth - 1) < 0) or (sign == "," and not depth):
            break
        elif sign == "#":
            at = _line_end(text, at)
            continue
        elif sign == "\\" and text[at + 1 : at + 2] == "\n":
            at += 1
        elif sign == "\n" and not depth and (found or not _goes_on(text, at, operator)):
            break
        elif (sign in "\"'" or sign in "rbfuRBFU") and (literal := _LITERAL.match(text, at)):
            inner = literal[3] if literal[2] else literal[6]
            prefix, quote = (literal[1], literal[2]) if literal[2] else (literal[4], literal[5])
            if inner and not _VARIABLE.search(text, max(0, at - 20), at):
                shape = f"{prefix}{quote}\0" + "\n" * inner.count("\n") + quote
                found.append((at, literal.end(), shape, inner))
            at = literal.end()
            continue
        elif sign.isalnum() or sign == "_":
            word = re.compile(r"\w+").match(text, at)
            at = word.end() if word else at + 1
            continue
        at += 1
    return found, at


def _is_in_string(text: str, found: re.Match[str]) -> bool:
    """Return whether a name and what follows it are inside of one string of a single line."""
    at = text.rfind("\n", max(0, found.start() - 4000), found.start()) + 1 or max(0, found.start() - 4000)
    if text.find('"', at, found.start()) < 0 and text.find("'", at, found.start()) < 0:
        return False
    for literal in _LITERAL.finditer(text, at, min(len(text), found.end() + 400)):
        if literal.start() >= found.start():
            return False
        if literal.end() >= found.end():
            return literal[2] is None
    return False


def _goes_on(text: str, at: int, operator: str) -> bool:
    """Return whether the value of a name follows on the next line: a string alone, and no docstring."""
    below = re.compile(r"""\n[+ -]?\s*[rbfu]{0,2}(["']{1,3})""", re.IGNORECASE).match(text, at)
    return operator in ":=" and bool(below) and not (below and len(below[1]) == 3 and operator == ":")


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _cut(text: str, cuts: list[tuple[int, int, str]]) -> str:
    kept, end = [], 0
    for start, stop, put in sorted(set(cuts)):
        if start >= end:
            kept += [text[end:start], put]
            end = stop
    return "".join([*kept, text[end:]])


def _hide_in_lines(text: str, mark: str) -> str:
    """Hide values in YAML, TOML, JSON, ``.env`` and shell: the rest of the line, or the lines below that belong to
    it."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        opened = _opened(line) if _NAME.search(line) else None
        if opened is None:
            lines[at] = _perhaps(_flags(hide_line(line, mark), mark), mark)
            at += 1
            continue
        at += 1
        while at < len(lines) and (taken := _belongs(lines[at], line, opened)):
            if lines[at].strip() != opened:
                lines[at] = _START.match(lines[at])[0] + mark  # type: ignore[index]
            at += 1
            if taken == "last":
                break
    return "\n".join(lines)


def _flags(line: str, mark: str) -> str:
    """Hide the values of ``--password abc``."""
    cuts = []
    for found in _FLAG.finditer(line):
        word = _WORD.match(line, found.end())
        if word is not None and is_secret_key(found[1]) and not _ORDINARY.fullmatch(word[0]):
            cuts.append((word.start(), word.end(), mark))
    return _cut(line, cuts)


def _perhaps(line: str, mark: str) -> str:
    cuts = []
    for found in _HOLDER.finditer(line):
        value = _IN_BRACES.match(line, found.end())
        inner = value[0].strip("\"' ") if value else ""
        if value and _PERHAPS.search(_last(found[1])) and looks_random(inner):
            start = line.index(inner, found.end())
            cuts.append((start, start + len(inner), mark))
    return _cut(line, cuts)


def _opened(line: str) -> str | None:
    """Return what a line with a secret's name leaves to the next lines: ``block``, ``next``, or quotes to close."""
    for found in _HOLDER.finditer(line):
        if not is_secret_key(_last(found[1])):
            continue
        rest = line[found.end() :].strip()
        if not rest or rest in ("\\", "(", "["):
            return "next" if rest != "[" else "list"
        if _BLOCK.fullmatch(rest):
            return "block"
        if rest[:3] in ('"""', "'''") and rest.count(rest[:3]) == 1:
            return rest[:3]
    return None


def _belongs(line: str, above: str, opened: str) -> str:
    """Return whether a line below the name is still of its value: empty for no, ``last`` for the end of it."""
    bare = line.lstrip("+-") if line[:1] in "+-" and above[:1] in "+-" else line
    head = above.lstrip("+-") if above[:1] in "+-" else above
    if not bare.strip():
        return ""
    if opened in ('"""', "'''"):
        return "last" if opened in bare else "more"
    deeper = len(bare) - len(bare.lstrip()) > len(head) - len(head.lstrip())
    if opened == "block":
        return "more" if deeper else ""
    is_key = re.match(r"\s*(?:-\s+)?[\"']?[\w.-]+[\"']?\s*[:=](?:\s|$)", bare) is not None
    if opened == "list":
        return "" if bare.strip()[:1] in "]}" else "more"
    if bare.lstrip().startswith("- "):
        return "more" if not is_key else ""
    return "last" if (deeper or head.rstrip().endswith("\\")) and not is_key and bare.strip()[:1] not in "]}{" else ""
