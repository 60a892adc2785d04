"""Runs Python commands in forks of one process that has imported torch already, which takes four seconds of CPU otherwise.

``run("-m", "etude", "train", "c.yaml")`` is like ``subprocess.run([sys.executable, "-m", "etude", …])``: a process of its
own with its own working directory, environment, exit code and signals; it can be killed. A test of what an import costs or
brings along needs a fresh interpreter and calls :mod:`subprocess` itself.

The zygote imports, but runs no operation of torch and starts no thread, so its forks are as good as new. A command whose
path holds another version of something that the zygote has imported gets a fresh interpreter.

``run(…, after=Imports(path, code))`` forks from a zygote that has also run ``code``, the slow imports of a project on
``path``, say. That one is a fork of the first, and serves all tests of this process that ask for the same.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

#: Seconds; a machine may be very busy.
PATIENCE = 600.0
REPOSITORY = Path(__file__).resolve().parents[3]
PRELOADED = (
    "torch._dynamo", "torch.utils.tensorboard", "PIL.Image", "yaml", "omegaconf",
    "etude.cli.train", "etude.api", "etude.build", "etude.session.session",
)  # fmt: skip
#: Packages of torch that projects bring along, too, and that are the same to both in any version.
ANY_VERSION = ("tqdm", "_distutils_hack")
#: Settings of OpenMP, and of pyarrow, which pandas imports.
NO_THREADS = {"OMP_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_LONGEST = 1 << 20


@dataclass(frozen=True)
class Imports:
    """What a zygote runs before its forks: ``code``, with the folders ``path`` before all others."""

    path: tuple[str, ...] = ()
    code: str = ""


#: Dialects look for the installed originals when they are imported, so a command with a path of its own forks before this.
DIALECTS = Imports(
    code="""
import importlib
from etude import dialects
for one in dialects.known():
    if one.drives_itself:
        package = type(one).__module__.rpartition(".")[0]
        importlib.import_module(f"{package}.lower"), importlib.import_module(f"{package}.live.build")
"""
)


class Child:
    """A command that was started; the part of :class:`subprocess.Popen` that tests need."""

    def __init__(
        self, words: tuple[str, ...], cwd: str, env: Mapping[str, str], after: Imports, files: Sequence[int] = ()
    ) -> None:
        self.args, self.returncode = words, None
        self._streams = [tempfile.TemporaryFile() for _ in ("stdout", "stderr")]  # noqa: SIM115
        self._answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps({"words": words, "cwd": cwd, "env": dict(env)}).encode()
        with theirs, open(os.devnull) as nothing:
            own = [nothing.fileno(), *(stream.fileno() for stream in self._streams)]
            socket.send_fds(_zygote(after), [request], [*(files or own), theirs.fileno()])
        self._answers.settimeout(PATIENCE)
        self.pid = int(self._answers.recv(64))

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
        if self.returncode is None:
            self._answers.setblocking(False)
            try:
                self._receive()
            except BlockingIOError:
                return None
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        if self.returncode is None:
            self._answers.settimeout(timeout)
            self._receive()
        assert self.returncode is not None
        return self.returncode

    def _receive(self) -> None:
        self.returncode = int(self._answers.recv(64))
        self._answers.close()

    def communicate(self, timeout: float = PATIENCE) -> tuple[str, str]:
        """Wait for the end; return what was written to standard output and standard error."""
        self.wait(timeout)
        return self.output(0), self.output(1)

    def output(self, stream: int) -> str:
        """Return what has been written so far."""
        file = self._streams[stream].fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")

    def until(self, words: str) -> None:
        """Wait until ``words`` stand in its standard output."""
        while words not in self.output(0):
            if self.poll() is not None and words not in self.output(0):
                raise AssertionError(f"ended with {self.returncode}, never printed {words!r}:\n{self.output(1)}")
            time.sleep(0.01)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    *words: str,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    after: Imports | None = None,
    files: Sequence[int] = (),
) -> Child:
    """Start ``python words…``: ``-m module``, ``-c code`` or a script, with its arguments.

    ``files`` are its standard input, output and error; without them it reads nothing and :meth:`Child.output` has the rest.
    """
    env = os.environ if env is None else env
    if after is None:
        after = DIALECTS if env.get("PYTHONPATH") == os.environ.get("PYTHONPATH") else Imports()
    return Child(words, os.fspath(cwd or os.getcwd()), env, after, files)


def run(*words: str, check: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``python words…`` to its end, with its output."""
    child = start(*words, **options)
    try:
        out, err = child.communicate()
    finally:
        child.kill()
    done = subprocess.CompletedProcess(words, child.wait(), out, err)
    assert not check or done.returncode == 0, done.stderr
    return done


def etude(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``etude words…`` to its end, with its output."""
    return run("-m", "etude", *words, **options)


def ranks(number: int, *words: str, **options: Any) -> list[Child]:
    """Start ``number`` processes that meet through the environment, as a launcher starts them on one machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {"WORLD_SIZE": number, "LOCAL_WORLD_SIZE": number, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    own = [world | {"RANK": rank, "LOCAL_RANK": rank} for rank in range(number)]
    return [start(*words, env={**os.environ, **{k: str(v) for k, v in env.items()}}, **options) for env in own]


@functools.cache
def _zygote(after: Imports = Imports()) -> socket.socket:
    """Start the zygote of this process that has run ``after``; it ends when the socket is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LONGEST)
    with theirs:
        if after == Imports():
            process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=os.environ | NO_THREADS,
            )  # fmt: skip
            atexit.register(process.wait)
        else:
            socket.send_fds(_zygote(), [json.dumps({"after": asdict(after)}).encode()], [0, 1, 2, theirs.fileno()])
            ours.recv(64)  # the number of its process
    atexit.register(_hang_up, ours, os.getpid())
    return ours


def _hang_up(line: socket.socket, owner: int) -> None:
    """End the zygote, unless this is a fork of the process that it serves."""
    if os.getpid() == owner:
        # Workers of loaders that were forked since hold the socket, too: to close it here alone would not end the zygote.
        line.shutdown(socket.SHUT_RDWR)


def _serve(control: socket.socket) -> tuple[dict[str, Any], int] | None:
    """Fork a child per request. Return the request and the line to who asks in each child, and None in the zygote when
    nobody asks any more."""
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    replies: dict[int, tuple[int, socket.socket]] = {}  # by file descriptor of the process
    while True:
        for key, _ in selector.select():
            if key.fd != control.fileno():
                selector.unregister(key.fd)
                os.close(key.fd)
                pid, reply = replies.pop(key.fd)
                _answer(reply, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                reply.close()
                continue
            message, fds, _, _ = socket.recv_fds(control, _LONGEST, 4)
            if not message:
                return None
            pid = os.fork()
            if pid == 0:
                for number, fd in enumerate(fds[:3]):
                    os.dup2(fd, number)
                for fd in (*fds[:3], *replies, control.detach(), *(reply.detach() for _, reply in replies.values())):
                    os.close(fd)
                selector.close()
                return json.loads(message), fds[3]
            reply = socket.socket(fileno=fds.pop())
            for fd in fds:
                os.close(fd)
            _answer(reply, pid)
            watched = os.pidfd_open(pid)
            replies[watched] = pid, reply
            selector.register(watched, selectors.EVENT_READ)


def _answer(reply: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the test has given up
        reply.send(str(number).encode())


def _become(words: list[str], cwd: str, env: dict[str, str], path: list[str], known: list[str]) -> None:
    """Do what the interpreter does between its start and the command, and run the command. The zygote has imported from
    the folders ``known``."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    kind, *arguments = words
    first = {"-m": cwd, "-c": ""}.get(kind, str(Path(cwd, kind).parent))
    own = [first, *map(os.path.abspath, filter(None, env.get("PYTHONPATH", "").split(os.pathsep)))]
    if _brings_others([folder for folder in own if folder not in known]):
        os.execve(sys.executable, [sys.executable, *words], env)
    sys.path[:] = own + path
    importlib.invalidate_caches()
    random.seed()
    sys.modules["numpy"].random.seed()
    if kind == "-m":
        sys.argv[:] = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv[:] = ["-c", *arguments[1:]]
        main = type(sys)("__main__")
        sys.modules["__main__"] = main
        exec(compile(arguments[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv[:] = words
        runpy.run_path(kind, run_name="__main__")


def _brings_others(folders: list[str]) -> bool:
    """Does a folder hold a package that the zygote has imported from elsewhere?"""
    loaded = {name: module for name, module in list(sys.modules.items()) if "." not in name and name != "__main__"}
    for folder in folders:
        for entry in os.listdir(folder or ".") if os.path.isdir(folder or ".") else ():
            module = loaded.get(entry.removesuffix(".py")) if entry not in ANY_VERSION else None
            file = getattr(module, "__file__", None) or ""
            if module is not None and not file.startswith(os.path.abspath(folder) + os.sep):
                return True
    return False


def _main() -> None:
    given = [os.path.abspath(folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    path = [folder for folder in sys.path[1:] if folder not in given]
    # The tests of all packages are one namespace package.
    path += [str(REPOSITORY), *map(str, sorted(REPOSITORY.glob("packages/*")))]
    sys.path[:] = [*given, *path]  # without the folder of this file
    for name in PRELOADED:
        importlib.import_module(name)
    _forget_what_torch_does_at_exit()
    control, known = socket.socket(fileno=int(sys.argv[1])), list[str]()
    while True:
        gc.freeze()
        assert len(os.listdir("/proc/self/task")) == 1, "a fork has the lock of another thread, but not the thread"
        if (asked := _serve(control)) is None:
            return
        request, line = asked
        if "after" not in request:
            break
        control, known = socket.socket(fileno=line), request["after"]["path"]
        sys.path[:] = known + path
        exec(request["after"]["code"], {})
    os.close(line)
    if os.environ.get("ETUDE_TEST_ALL"):
        _become(**request, path=path, known=known)
    else:
        _end(_code_of(request, path, known))


def _forget_what_torch_does_at_exit() -> None:
    """A table of compile times that nobody sees, and taking apart libraries of operators."""
    atexit.unregister(sys.modules["torch._dynamo.utils"].dump_compile_times)
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False


def _code_of(request: dict[str, Any], path: list[str], known: list[str]) -> int:
    """Run the command and return its exit code, as the interpreter finds it."""
    try:
        _become(**request, path=path, known=known)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            return -signal.SIGINT
        return 1
    return 0


def _end(code: int) -> None:
    """End the process as the interpreter does, but do not take apart the modules of the zygote: freeing all that torch
    has imported copies the memory that the two share, which takes longer than most commands. ``make test-all`` does it.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # joins threads; what exits waits for them before atexit
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it
            stream.flush()
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


if __name__ == "__main__":
    _main()
