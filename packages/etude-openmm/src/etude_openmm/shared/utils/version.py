"""Compares version numbers, and finds the git commit and installed packages."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from importlib import metadata

_PARTS = re.compile(
    r"v?(?P<release>\d+(?:\.\d+)*)(?:[-_.]?(?P<pre>alpha|beta|preview|pre|a|b|c|rc)[-_.]?(?P<pre_n>\d*))?"
    r"(?:[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_n>\d*)|-(?P<post_m>\d+))?(?P<dev>[-_.]?dev\d*)?(?:\+.*)?",
    re.IGNORECASE,
)
# PEP 440's other spellings.
_NAMES = {"alpha": "a", "beta": "b", "preview": "rc", "pre": "rc", "c": "rc"}
_RANK = {"a": -3, "b": -2, "rc": -1}


def _parse(version: str) -> tuple[list[int], tuple[str, int] | None, int | None, bool]:
    match = _PARTS.fullmatch(version.strip())
    if match is None:
        raise AssertionError(f"failed to parse version {version}")
    release = [int(part) for part in match["release"].split(".")]
    pre = match["pre"] and (_NAMES.get(match["pre"].lower(), match["pre"].lower()), int(match["pre_n"] or 0))
    post = int(match["post_n"] or match["post_m"] or 0) if match["post"] or match["post_m"] else None
    return release, pre or None, post, bool(match["dev"])


def digit_version(version_str: str, length: int = 4) -> tuple[int, ...]:
    """Convert a version to numbers that compare: ``"1.7.2rc1"`` → ``(1, 7, 2, 0, -1, 1)``."""
    if "parrots" in version_str:
        raise AssertionError(f"{version_str} is not a version of torch")
    release, pre, post, dev = _parse(version_str)
    release = (release + [0] * length)[: max(length, 0)]
    if pre is not None:
        return (*release, _RANK[pre[0]], pre[1])
    if dev:
        return (*release, -4, 0)
    return (*release, 1, post) if post is not None else (*release, 0, 0)


def parse_version_info(version_str: str, length: int = 4) -> tuple[int | str, ...]:
    """Split a version into its parts: ``"2.0.0rc1"`` → ``(2, 0, 0, 0, 'rc', 1)``."""
    release, pre, post, _ = _parse(version_str)
    release = (release + [0] * length)[: max(length, 0)]
    if pre is not None:
        return (*release, *pre)
    return (*release, "post", post) if post is not None else (*release, 0, 0)


def get_git_hash(fallback: str = "unknown", digits: int | None = None) -> str:
    """Return the git commit of the current folder."""
    if digits is not None and not isinstance(digits, int):
        raise TypeError("digits must be None or an integer")
    try:
        out = _minimal_ext_cmd(["git", "rev-parse", "HEAD"])
    except OSError:
        return fallback
    sha = out.strip().decode("ascii", "replace")
    return (sha[:digits] if digits is not None else sha) if sha else fallback


def _minimal_ext_cmd(cmd: list[str]) -> bytes:
    """Return the output of a command, run with the language set to English."""
    environment = {name: os.environ[name] for name in ("SYSTEMROOT", "PATH", "HOME") if name in os.environ}
    environment.update(LANGUAGE="C", LANG="C", LC_ALL="C")
    return subprocess.run(cmd, capture_output=True, env=environment, check=False).stdout


def is_installed(package: str) -> bool:
    """Return whether ``package``, a distribution or an import name, is installed."""
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        try:
            return importlib.util.find_spec(package) is not None
        except (ImportError, ValueError):
            return False
    return True


def get_installed_path(package: str) -> str:
    """Return the folder of an installed package."""
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.submodule_search_locations:
        return str(next(iter(spec.submodule_search_locations)))
    try:
        found = metadata.distribution(package)
    except metadata.PackageNotFoundError as error:
        raise metadata.PackageNotFoundError(package) from error
    top = (found.read_text("top_level.txt") or package).split()[0]
    return os.path.join(str(found.locate_file("")), top)


def call_command(cmd: list[str]) -> None:
    subprocess.check_call(cmd)


def install_package(package: str) -> None:
    """Raise an error if a package is missing: Étude installs nothing by itself."""
    if not is_installed(package):
        raise RuntimeError(f"the package {package!r} is not installed: pip install {package}")
