"""The command line: one verb, one file, whose docstring is the help. Only the file of the verb in use is imported."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn

from etude import __version__
from etude.cli.escaped import escaped_output
from etude.config import no_code
from etude.errors import DataError, EtudeError, HookError, UserCodeError, UserError, printable
from etude.errors.advice import frames_of, is_library, lost_worker, missing_hint, raised_in_worker, release_hint
from etude.errors.own_code import own_folders
from etude.errors.spelling import elsewhere, nearest, suggest

#: verb → (module, one line for --help), in the order a new user meets them.
VERBS = {
    "train": ("train", "train a config"),
    "test": ("test", "evaluate a checkpoint on the test data"),
    "submit": ("submit", "train a config on a cluster: SLURM or Kubernetes"),
    "sweep": ("tuning.sweep", "search hyperparameters"),
    "lr-find": ("tuning.lr_find", "find a learning rate in one short run"),
    "fit-batch": ("tuning.fit_batch", "find the largest batch that fits into memory"),
    "predict": ("predict", "write a trained model's predictions to a file"),
    "export": ("export", "export a trained model: pt2, onnx, safetensors"),
    "fetch": ("fetch", "download the files that a config names by an address"),
    "check": ("configs.check", "find every mistake in a config without running it"),
    "plan": ("configs.plan", "show what will happen: steps, schedules, hooks, saves"),
    "config": ("configs.config", "print the resolved config and where each value came from"),
    "list": ("configs.components", "list the names a config can use"),
    "schema": ("configs.schema", "print the JSON Schema of configs, for editors"),
    "init": ("configs.init", "create a small project that runs at once"),
    "convert": ("configs.convert", "write an old config as a native one"),
    "exec": ("exec", "run a script written for another system"),
    "runs": ("looking.runs", "list the runs below a folder"),
    "show": ("looking.show", "show one run in the terminal"),
    "diff": ("looking.diff", "explain why two runs differ"),
    "bisect": ("looking.bisect", "find the step and the operator at which two runs part"),
    "replay": ("looking.replay", "run one step of a run again and look into it"),
    "attest": ("looking.attest", "write a statement: which config, code and data made these weights"),
    "verify": ("looking.verify", "check a run against its statement"),
    "report": ("looking.report", "write runs as one offline HTML page, or as a picture"),
    "board": ("looking.board", "watch all runs below a folder in the browser"),
    "ckpt": ("ckpt", "inspect, verify, convert and average checkpoints"),
    "verify-resume": ("verify_resume", "prove that a resumed run ends in the same bits"),
    "env": ("env", "print versions and machine, for bug reports"),
    "completion": ("completion", "print shell completion"),
}

#: The verbs that show what the folders of runs hold.
_READERS = ("runs", "show", "diff", "report", "ckpt")

EPILOG = """\
first steps:
  etude init my_project && cd my_project && etude train config.yaml
  etude check config.yaml                 find all mistakes, with file and line
  etude plan config.yaml                  see what will happen
  etude train config.yaml optim.lr=0.01   change a value for one run
  etude train config.yaml --resume        continue a stopped run

exit codes: 0 finished, 1 unexpected error, 2 mistake in config or command line, 3 your code raised, 4 diverged,
5 data, 6 checkpoint not written, 7 nothing usable to resume from, 8 another process was lost, 75 saved for re-queue,
130 Ctrl-C, 143 SIGTERM
"""


class Help(argparse.HelpFormatter):
    """Wraps help to the width of the terminal. Blocks with indented lines (examples) stay as they are.

    argparse makes a formatter for every flag, and imports shutil to learn the width: that takes too long.
    """

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, **{"width": _columns() - 2} | options)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = text.strip().split("\n\n")
        return "\n\n".join(
            block if "\n " in f"\n{block}" else super(Help, self)._fill_text(block, width, indent) for block in blocks
        )


def _columns() -> int:
    """Return the width of the terminal, as ``shutil.get_terminal_size`` does."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return 80


class Parser(argparse.ArgumentParser):
    """argparse with short messages, and without abbreviated flags: ``--resum`` would fit two of them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**dict[str, Any](allow_abbrev=False, formatter_class=Help) | options)

    def error(self, message: str) -> NoReturn:
        message = printable(_in_plain_words(message))
        help_line = "" if message.endswith("?") else f"; see `{self.prog} --help`"
        print(f"etude: error: {message}{help_line}", file=sys.stderr)
        raise SystemExit(2)


def _in_plain_words(message: str) -> str:
    """Return a message of argparse as Étude would say it."""
    found = re.fullmatch(r"argument ([^:]+): (.*)", message, re.DOTALL)
    if found is None:
        return message
    name, said = found[1].partition("/")[0], found[2]
    if wrong := re.fullmatch(r"invalid (int|float) value: (.*)", said, re.DOTALL):
        return f"{name}: {wrong[2]} is not a {'whole ' if wrong[1] == 'int' else ''}number"
    if wrong := re.fullmatch(r"invalid choice: '(.*)' \(choose from (.*)\)", said, re.DOTALL):
        hint = suggest(wrong[1], [choice.strip("'") for choice in wrong[2].split(", ")])
        return f"no {name.lower()} {wrong[1]!r}; {hint}" if name[0] != "-" else f"{name}: no {wrong[1]!r}; {hint}"
    return f"{name}: {said}"


def _meant_command(word: str) -> str:
    """Return what was probably meant by a word that is no command: another one, or to train a config."""
    if not word.endswith((".yaml", ".yml", ".json", ".toml", ".py")):
        return suggest(word, VERBS)
    from etude.config.files import script_line

    try:
        with open(word, encoding="utf-8") as file:
            verb = "exec" if word.endswith(".py") and script_line(file.read()) else "train"
    except (OSError, UnicodeDecodeError):
        verb = "train"
    return f"did you mean `etude {verb} {printable(word)}`?"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code. A user's mistake is one message, never a traceback."""
    try:
        args = parse(list(sys.argv[1:] if argv is None else argv))
    except SystemExit as stop:
        return int(stop.code or 0)
    return guarded(args)


def parse(words: list[str]) -> argparse.Namespace:
    """Parse the command line; raise ``SystemExit`` after printing help or a mistake."""
    if words[:1] == ["help"]:  # as git and pip have it
        words = [*words[1:], "--help"]
    verb = next((word for word in words if not word.startswith("-")), None)
    if words and verb is not None and words[0] == verb and verb not in VERBS:
        print(f"etude: error: no command {printable(verb)!r}; {_meant_command(verb)}", file=sys.stderr)
        raise SystemExit(2)
    parser = make_parser(only=verb)
    args, rest = parser.parse_known_args(words)
    args.typed, args.verb = words, verb
    place_overrides(args, rest, parser)
    if not hasattr(args, "run"):
        parser.print_help()
        raise SystemExit(0)
    return args


def place_overrides(args: argparse.Namespace, rest: list[str], parser: argparse.ArgumentParser) -> None:
    """Allow ``key=value`` anywhere, also after a flag with an optional value, and report unknown flags."""
    overrides = getattr(args, "overrides", None)
    if overrides is not None:
        if "=" in (getattr(args, "resume", None) or "") and not os.path.exists(args.resume):
            overrides.append(args.resume)
            args.resume = ""
        overrides += [word for word in rest if _is_override(word)]
        rest = [word for word in rest if not _is_override(word)]
    if rest:
        known = [option for action in _actions(parser) for option in action.option_strings]
        hint = (_meant_key(rest) if overrides is not None else "") or _near_flag(rest[0], known)
        verb = f" {args.verb}" if args.verb else ""
        hint = hint or f"see `etude{verb} --help`"
        print(f"etude: error: unrecognized: {printable(' '.join(rest))}; {hint}", file=sys.stderr)
        raise SystemExit(2)


def _meant_key(rest: Sequence[str]) -> str:
    """Return ``write train.epochs=3`` for ``--epochs 3``: flags of other trainers are keys of the config here."""
    word, _, value = rest[0].partition("=")
    key = elsewhere(word[2:].replace("-", "_")) if word.startswith("--") else ""
    if not re.fullmatch(r"[a-z_.]+", key):
        return ""
    value = value or (rest[1] if len(rest) > 1 and not rest[1].startswith("-") else "…")
    return f"write {key}={printable(value)}"


def _near_flag(word: str, known: Sequence[str]) -> str:
    """Return ``did you mean '--resume'?`` for a misspelt flag; empty if no flag is similar, as a wrong guess
    misleads."""
    flags = {flag.lstrip("-"): flag for flag in known}
    near = nearest(word.split("=")[0].lstrip("-"), list(flags)) if word.startswith("--") else None
    return f"did you mean {flags[near]!r}?" if near else ""


def make_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all verbs, or of one, so that the others cost nothing."""
    parser = Parser(
        prog="etude",
        description="A fast training engine for PyTorch with exact resume, driven by configuration files.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"etude {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    if only in VERBS:
        add_verb(subparsers, str(only))
        return parser
    for verb, (_, help_line) in VERBS.items():
        subparsers.add_parser(verb, help=help_line)
    return parser


def full_parser() -> argparse.ArgumentParser:
    """Return the parser with the flags of every verb, as completion needs it."""
    parser = Parser(prog="etude")
    subparsers = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for verb in VERBS:
        add_verb(subparsers, verb)
    return parser


def add_verb(subparsers: Any, verb: str) -> None:
    """Add the parser of a verb. The docstring of the verb's module is its help."""
    module, line = VERBS[verb]
    loaded: Any = importlib.import_module(f"etude.cli.{module}")
    parser = subparsers.add_parser(verb, help=line, description=loaded.__doc__)
    parser.set_defaults(run=loaded.run)
    loaded.add_arguments(parser)


def guarded(args: argparse.Namespace) -> int:
    """Call the verb and turn what it raises into a message and an exit code."""
    try:
        with _prepared(args):
            return int(args.run(args) or 0)
    except (Exception, KeyboardInterrupt) as error:
        return _exit_code_of(error)


@contextmanager
def _prepared(args: argparse.Namespace) -> Iterator[None]:
    """Run a verb inside: its warnings are lines, what it shows of runs is escaped, and code may be forbidden."""
    escaped = escaped_output() if args.verb in _READERS else nullcontext()
    with _own_warnings(), no_code.forbidden(getattr(args, "no_python_config", False)), escaped:
        yield


def _exit_code_of(error: Exception | KeyboardInterrupt) -> int:
    if isinstance(error, KeyboardInterrupt):
        print("etude: stopped by Ctrl-C", file=sys.stderr)
        return 130
    if isinstance(error, BrokenPipeError):
        # Python flushes stdout once more at its end, which would print a second error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    from etude.dist.jobs import reports

    return reports.tell(error, lambda: _report_any(error))


def _report_any(error: Exception) -> int:
    """Report an exception, and the line of the config that it is about; return its exit code."""
    from etude.dialects.config_lines import line_about

    code = _report_kind(error)
    line = getattr(error, "etude_line", "") or line_about(str(error))
    if line:
        print(f"etude: {printable(line)}", file=sys.stderr)
    return code


def _report_kind(error: Exception) -> int:
    """Report an exception as a mistake in the config, in user code, in the data or in Étude; return its exit code."""
    if type(error) is UserCodeError and hasattr(error, "etude_where"):
        return _report(UserCodeError(f"{error.etude_where}: {error}"), cause=error.__cause__)
    if isinstance(error, EtudeError):
        return _report(getattr(error, "etude_reported", error))
    reported = getattr(error, "etude_reported", None) or lost_worker(error)
    if reported is not None:
        return _report(reported)
    import traceback

    if (path := _unusable_path(error)) and all(
        is_library(frame.filename) for frame in traceback.extract_tb(error.__traceback__)
    ):
        return _report(UserError(path))
    site = getattr(error, "etude_site", None)
    if site is None and hasattr(error, "etude_where"):
        message = f"{error.etude_where}: {type(error).__name__}: {error}"
        return _report(UserCodeError(message), cause=error)
    if site is None:
        return _report_unexpected(error)
    return _report(HookError(site.hook, site.word, site.step, site.origin, error), cause=error)


def _unusable_path(error: Exception) -> str:
    """Return what is wrong with a path that no file can have; empty for any other error."""
    if isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        name = str(error.filename or "a path")
        return f"{name if len(name) <= 120 else name[:120] + '…'}: {error.strerror}"
    if isinstance(error, ValueError) and "embedded null" in str(error):
        return "a path in the config or on the command line holds a null character"
    return ""


@contextmanager
def _own_warnings() -> Iterator[None]:
    """Print Étude's warnings as single lines; warnings of other code look as Python shows them."""
    plain = warnings.showwarning

    def show(
        message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: str | None = None
    ) -> None:
        if file is None and category is UserWarning and filename.startswith(own_folders()):
            print(f"etude: warning: {printable(str(message))}", file=sys.stderr)
        else:
            plain(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = plain


def _report(error: EtudeError, cause: BaseException | None = None) -> int:
    cause = cause or (error.__cause__ if isinstance(error, UserCodeError | DataError) else None)
    if cause is not None:
        print_user_frames(cause)
    for note in getattr(error, "__notes__", ()) if isinstance(error, DataError) else ():
        for line in note.rstrip().splitlines():
            print(printable(line), file=sys.stderr)
    for line in str(error).splitlines():
        print(f"etude: {'error: ' if not line.startswith(' ') else ''}{printable(line)}", file=sys.stderr)
    return error.exit_code


def _report_unexpected(error: Exception) -> int:
    """Report an unexpected exception: exit 3 if user-defined code raised it, or if torch refused what a model's step
    gave it; else 1, our bug."""
    import traceback

    in_worker = raised_in_worker(error)
    if in_worker is not None:
        print("\n".join(map(printable, str(error).splitlines())), file=sys.stderr)
        return _report(in_worker)
    frames = traceback.extract_tb(error.__traceback__)
    missing = missing_hint(error)
    hint = release_hint(str(error)) or (f"; {missing}" if missing else "")
    theirs = [frame for frame in frames if not is_library(frame.filename)] or (frames[-1:] if hint else [])
    if theirs:
        print_user_frames(error)
        last = theirs[-1]
        where = f"{last.filename}:{last.lineno}"
        said = " ".join(printable(line.strip()) for line in str(error).splitlines())
        print(f"etude: error: {where}: {type(error).__name__}: {said}{hint}", file=sys.stderr)
        return UserCodeError.exit_code
    if isinstance(error, SyntaxError) and error.filename and not is_library(error.filename):
        said = f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
        return _report(UserCodeError(f"{said}: {printable((error.text or '').strip())}"))
    step = _step_of(error)
    if step:
        return _report(UserCodeError(f"{step}: {type(error).__name__}: {error}"))
    traceback.print_exception(error)
    print("etude: this is a fault of the engine; `etude env` prints what a report needs", file=sys.stderr)
    return 1


def _step_of(error: Exception) -> str:
    """Return the model and the step that another package refused; empty if Étude's own code raised."""
    frames = [frame for frame, _ in frames_of(error)]
    if not frames or frames[-1].f_code.co_filename.startswith(own_folders()):
        return ""
    return str(getattr(error, "etude_step", ""))


def print_user_frames(error: BaseException, *, message: bool = True) -> None:
    """Print the lines of user code that led to ``error``, and its ``message``; nothing if no user code did."""
    import traceback

    frames = [f for f in traceback.extract_tb(error.__traceback__) if not is_library(f.filename)]
    if frames:
        print("Traceback (your code, most recent call last):", file=sys.stderr)
        print("".join(traceback.format_list(frames)), end="", file=sys.stderr)
    if frames and message:
        said = "\n  ".join(printable(line.strip()) for line in str(error).splitlines())
        print(f"{type(error).__name__}: {said}", file=sys.stderr)


def _is_override(word: str) -> bool:
    return not word.startswith("-") and ("=" in word or word.startswith("~"))


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    found = []
    for action in parser._actions:
        choices = getattr(action, "choices", None)
        if isinstance(action, argparse._SubParsersAction) and choices:
            found += [inner for sub in choices.values() for inner in sub._actions]
        found.append(action)
    return found
