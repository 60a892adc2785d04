"""Reads signatures and registrations from source files, without importing anything.

``check`` reads the parameters of components here, so that it imports neither torch nor user code. Names are followed
through the imports and base classes that the source shows. Where it does not, a signature is *open*, and the
arguments of a config are not compared with it.
"""

from __future__ import annotations

import ast
import builtins
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from keyword import iskeyword

from etude.config.imports import Import, locate, locate_beside
from etude.fast_dataclass import field, record, replace
from etude.plan import NOWHERE

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST_HOPS = 12
#: Methods of a registry that enter what they decorate, here and in the systems whose configs are read.
_REGISTERING = ("register", "register_module")
#: Keywords that give an entry its name.
_NAMING = ("name", "key")
#: Decorators with which a function takes other words than those it is written with.
_RENAMING = ("deprecated_api_warning",)
#: Decorators with which a constructor or function takes all its arguments from a config as well.
_CONFIGURABLE = ("configurable",)


@record
class Parameter:
    """``default`` is its source text; None if the parameter is required. ``word`` False: positional only."""

    name: str
    annotation: str = ""
    default: str | None = None
    word: bool = True

    @property
    def required(self) -> bool:
        return self.default is None

    @property
    def key(self) -> str:
        """The parameter as a config writes it: ``from_``, which Python forces on us, is ``from``."""
        return self.name[:-1] if self.name.endswith("_") and iskeyword(self.name[:-1]) else self.name


@record
class Signature:
    """The parameters of a class or function. ``open``: it also takes arguments that the source does not show."""

    parameters: tuple[Parameter, ...] = ()
    open: bool = False
    #: ``module:attr`` of the known ancestors of a class; empty for a function.
    bases: tuple[str, ...] = ()
    is_class: bool = True
    doc: str = ""
    #: Whether further arguments go to the next class in the order of inheritance, as those of a mixin do.
    forwards: bool = False

    def __str__(self) -> str:
        shown = [_shown(parameter) for parameter in self.parameters]
        return f"({', '.join([*shown, '…'] if self.open else shown)})"


@record
class Registered:
    """One registration in a source file: its table (``HOOKS``), name and place."""

    table: str
    name: str
    target: str
    file: str
    line: int


#: Answers for targets that are known already, so that no source has to be read.
Known = Callable[[str], "Signature | None"]


@record(frozen=False)
class Source:
    """One parsed file, with the meaning of its top-level names."""

    module: str
    file: str
    body: list[ast.stmt]
    folders: tuple[str, ...] = ()
    names: dict[str, ast.AST | str] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    docs: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for statement in statements(self.body):
            self._enter(statement)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the file but contexts; :func:`ast.walk` takes twice as long."""
        found: list[ast.AST] = list(self.body)
        for node in found:  # which grows meanwhile
            for value in [getattr(node, name, None) for name in node._fields if name != "ctx"]:
                if isinstance(value, ast.AST):
                    found.append(value)
                elif isinstance(value, list):
                    found += [item for item in value if isinstance(item, ast.AST)]
        return found

    def _enter(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if not any(_tail(decorator) == "overload" for decorator in statement.decorator_list):
                self.names[statement.name] = statement
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                self.names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(statement, ast.ImportFrom):
            origin = self.absolute(statement)
            for alias in statement.names:
                if alias.name == "*":
                    self.stars.append(origin)
                else:
                    self.names[alias.asname or alias.name] = f"{origin}:{alias.name}"
        elif isinstance(statement, ast.Assign):
            self._assign(statement.targets[0], statement.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Attribute) and target.attr == "__doc__" and isinstance(target.value, ast.Name):
            # torch.optim puts docstrings together from pieces; the one that tells begins with "Implements".
            texts = [text for node in ast.walk(value) if isinstance(node, ast.expr) and (text := _constant(node))]
            self.docs[target.value.id] = first_sentence(
                max(texts, key=lambda text: text.startswith("Implements"), default="")
            )

    def absolute(self, statement: ast.ImportFrom) -> str:
        """Return the absolute module that a ``from … import`` names."""
        if not statement.level:
            return statement.module or ""
        package = self.module.split(".")
        keep = len(package) - statement.level + (1 if os.path.basename(self.file) == "__init__.py" else 0)
        return ".".join([*package[: max(keep, 0)], *([statement.module] if statement.module else [])])


def _nothing(target: str) -> Signature | None:
    return None


def signature(target: str, *, folders: Sequence[str] = (), known: Known = _nothing) -> Signature | None:
    """Return the signature of ``module:attr``; None if the source does not show it. ``folders`` are searched first."""
    # The current folder is a part of the cache's key, since it may change during the process.
    return _signature(target, (*folders, os.getcwd()), known)


@lru_cache(maxsize=4096)
def _signature(target: str, folders: tuple[str, ...], known: Known) -> Signature | None:
    return _Scan(folders, known).signature(target)


def registrations(module: str, file: str, *, folders: Sequence[str] = ()) -> list[Registered]:
    """Return what importing ``file`` as ``module`` would register, also through files that it imports."""
    return [entry for source in reached(module, file, folders=folders) for entry in registered(source)]


def reached(module: str, file: str, *, folders: Sequence[str] = ()) -> Iterator[Source]:
    """Yield the file, and the files of the same package or folder that importing it would import."""
    waiting, seen = [(module, file)], set()
    while waiting:
        name, path = waiting.pop(0)
        source = parse(name, path)
        if source is None or path in seen:
            continue
        seen.add(path)
        yield source
        waiting.extend(_own_imports(source, tuple(folders)))


@lru_cache(maxsize=512)
def parse(module: str, file: str) -> Source | None:
    """Return the file's top-level names, or None if it is not valid Python."""
    try:
        with open(file, encoding="utf-8") as stream:
            return Source(module, file, ast.parse(stream.read(), file).body)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, also those below ``if`` and ``try``."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            yield from statements(statement.body)
            yield from statements(getattr(statement, "orelse", []))
            for handler in getattr(statement, "handlers", []):
                yield from statements(handler.body)


@record(frozen=False)
class _Scan:
    folders: tuple[str, ...]
    known: Known

    def signature(self, target: str, hops: int = 0) -> Signature | None:
        answer = self.known(target)
        # Modules may import a name from each other in a circle.
        if answer is not None or hops > _MOST_HOPS:
            return answer
        module, _, attribute = target.partition(":")
        source = self.source(module)
        if source is None or not attribute:
            return None
        first, _, rest = attribute.partition(".")
        node = source.names.get(first)
        if isinstance(node, str):
            return self.signature(self.joined(node, rest), hops + 1)
        if node is None:
            starred = (self.signature(f"{star}:{attribute}", hops + 1) for star in source.stars)
            return next((found for found in starred if found is not None), None)
        if rest:
            return None
        return self._of_node(source, node, hops)

    def joined(self, target: str, rest: str) -> str:
        """Return ``module:attr`` of an attribute of ``target`` (a module, or ``module:attr``)."""
        module, _, attribute = target.partition(":")
        if attribute and self.source(f"{module}.{attribute}") is not None:
            module, attribute = f"{module}.{attribute}", ""
        parts = [part for part in (*attribute.split("."), *rest.split(".")) if part]
        while not attribute and len(parts) > 1 and self.source(f"{module}.{parts[0]}") is not None:
            module = f"{module}.{parts.pop(0)}"
        return f"{module}:{'.'.join(parts)}"

    def source(self, module: str) -> Source | None:
        return find_source(module, self.folders)

    def _of_node(self, source: Source, node: ast.AST, hops: int) -> Signature | None:
        if isinstance(node, ast.ClassDef):
            return self._of_class(source, node, hops)
        if isinstance(node, _FUNCTIONS):
            parameters, is_open = _parameters(node.args, skip=0)
            plain = Signature(tuple(parameters), is_open, is_class=False, doc=_doc_of(node))
            return _from_config(plain) if _is_decorated(node, _CONFIGURABLE) else plain
        if isinstance(node, ast.Name | ast.Attribute):
            return self.signature(self.target_of(source, node), hops + 1)
        return None

    def target_of(self, source: Source, expression: ast.expr) -> str:
        """Return what a name or dotted name of ``source`` means, as ``module:attr``."""
        text = ast.unparse(expression)
        head, _, rest = text.partition(".")
        node = source.names.get(head)
        if isinstance(node, str):
            return self.joined(node, rest)
        return f"{source.module}:{text}"

    def _of_class(self, source: Source, node: ast.ClassDef, hops: int) -> Signature:
        expressions = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
        targets = [self.target_of(source, base) for base in expressions if isinstance(base, ast.Name | ast.Attribute)]
        parents = {target: self.signature(target, hops + 1) for target in targets if not _is_builtin(target, source)}
        above = [base for parent in parents.values() if parent for base in parent.bases]
        doc = _doc_of(node) or source.docs.get(node.name, "")
        own = Signature(bases=tuple(dict.fromkeys([*parents, *above])), doc=doc)
        if any(_tail(item.func if isinstance(item, ast.Call) else item) == "dataclass" for item in node.decorator_list):
            return replace(own, parameters=_fields(node, parents), open=None in parents.values())
        init = next((item for item in node.body if isinstance(item, _FUNCTIONS) and item.name == "__init__"), None)
        parent = _united(parents.values())
        if init is not None:
            return _with_init(own, init, self._called(source, node, init, parent, hops))
        if parent is None:
            return replace(own, open=True)
        return replace(own, parameters=parent.parameters, open=parent.open, forwards=parent.forwards)

    def _called(
        self,
        source: Source,
        node: ast.ClassDef,
        init: ast.FunctionDef | ast.AsyncFunctionDef,
        parent: Signature | None,
        hops: int,
    ) -> Signature | None:
        """Return the signature that ``__init__`` passes arguments on to: that of ``parent``, or of a class further
        up if ``super(Parent, self).__init__`` skips the parent."""
        call = _forwarding(init)
        above = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
        if not isinstance(above, ast.Call) or _tail(above.func) != "super" or not above.args:
            return parent
        if _tail(above.args[0]) == node.name or not isinstance(above.args[0], ast.Name | ast.Attribute):
            return parent
        skipped = class_of(self.target_of(source, above.args[0]), folders=self.folders)
        if skipped is None or len(skipped[1].bases) != 1:
            return None
        (base,) = skipped[1].bases
        if not isinstance(base, ast.Name | ast.Attribute):
            return None
        return self.signature(self.target_of(skipped[0], base), hops + 1)


def _united(parents: Iterable[Signature | None]) -> Signature | None:
    """Return what the ``__init__`` of several parents takes: that of the first, and of the next ones if each
    forwards what it does not know. None where a parent is not known."""
    found = Signature(forwards=True)
    for parent in parents:
        if parent is None:
            return None
        taken = {parameter.name for parameter in found.parameters}
        more = [parameter for parameter in parent.parameters if parameter.name not in taken]
        found = Signature((*found.parameters, *more), open=parent.open, forwards=parent.forwards)
        if not parent.forwards:
            break
    return found


def _with_init(own: Signature, init: ast.FunctionDef | ast.AsyncFunctionDef, parent: Signature | None) -> Signature:
    """Return ``own`` with the parameters of its ``__init__``, and those that it passes on to ``parent``'s (None: not
    known)."""
    parameters, is_open = _parameters(init.args, skip=1)
    if _is_decorated(init, _RENAMING):
        return replace(own, parameters=tuple(parameters), open=True)
    if _is_decorated(init, _CONFIGURABLE):
        return _from_config(replace(own, parameters=tuple(parameters)))
    call = _forwarding(init)
    if not is_open or call is None or parent is None:
        return replace(own, parameters=tuple(parameters), open=is_open)
    taken = {parameter.name for parameter in parameters} | {word.arg for word in call.keywords}
    given = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
    by_position = len([argument for argument in given if ast.unparse(argument) != "self"])
    more = [p for p in parent.parameters[by_position:] if p.name not in taken and p.word]
    return replace(own, parameters=(*parameters, *more), open=parent.open, forwards=parent.forwards)


def _is_decorated(node: ast.FunctionDef | ast.AsyncFunctionDef, names: Sequence[str]) -> bool:
    return any(_tail(d.func if isinstance(d, ast.Call) else d) in names for d in node.decorator_list)


def _from_config(written: Signature) -> Signature:
    """Return the signature under ``@configurable``: ``cfg`` in place of any argument, and whatever else its
    ``from_config``, which a subclass may replace, takes in addition."""
    optional = [replace(p, default="..." if p.default is None else p.default) for p in written.parameters]
    return replace(written, parameters=(Parameter("cfg", default="..."), *optional), open=True)


def find_source(module: str, folders: Sequence[str] = ()) -> Source | None:
    """Find the source of a module in the config's folder, the current one or on ``sys.path``. Its parents are not
    imported."""
    file = _find_file(module, (*folders, os.getcwd()))
    return parse(module, file) if file else None


@lru_cache(maxsize=1024)
def _find_file(module: str, folders: tuple[str, ...]) -> str:
    """Return the file that holds the source of a module; empty if there is none."""
    found = _located(module, folders) if module else None
    return found.file if found is not None and found.file and found.file.endswith(".py") else ""


def _located(module: str, folders: tuple[str, ...]) -> Import | None:
    """Find a module in the first folder, on ``sys.path`` or in the other folders."""
    first, *others = folders
    found = locate(module, NOWHERE, first)
    return found or next(filter(None, (locate_beside(module, NOWHERE, folder) for folder in others)), None)


def class_of(target: str, *, folders: Sequence[str] = ()) -> tuple[Source, ast.ClassDef] | None:
    """Return the definition of the class ``module:attr``, and its file."""
    module, _, attribute = target.partition(":")
    source = find_source(module, folders)
    node = source.names.get(attribute) if source else None
    if isinstance(node, str):
        return class_of(node, folders=folders) if ":" in node else None
    if isinstance(node, ast.Name) and node.id != attribute:  # ``OldName = NewName``
        return class_of(f"{module}:{node.id}", folders=folders)
    return (source, node) if source is not None and isinstance(node, ast.ClassDef) else None


@lru_cache(maxsize=1024)
def words_in(target: str, *, folders: tuple[str, ...] = ()) -> frozenset[str]:
    """Return the strings in the source of the class ``module:attr`` and of its bases in the same package."""
    found = class_of(target, folders=folders)
    if found is None:
        return frozenset()
    source, node = found
    words = {item.value for item in ast.walk(node) if isinstance(item, ast.Constant) and isinstance(item.value, str)}
    scanned = _Scan((*folders, os.getcwd()), _nothing)
    bases = [scanned.target_of(source, base) for base in node.bases if isinstance(base, ast.Name | ast.Attribute)]
    package = source.module.partition(".")[0]
    own = [base for base in bases if base.partition(".")[0] == package and base != target]
    return frozenset(words).union(*(words_in(base, folders=folders) for base in own))


def names_in(source: Source, folders: Sequence[str] = (), hops: int = 4) -> set[str]:
    """Return the top-level names of a module, including those of ``import *``."""
    found = set(source.names)
    for star in source.stars if hops else ():
        inner = find_source(star, folders)
        found |= names_in(inner, folders, hops - 1) if inner else {"__getattr__"}
    return found


def forget() -> None:
    """Forget all parsed sources, for files that change during the process."""
    for cache in (_signature, _find_file, parse, words_in):
        cache.cache_clear()


def has_module(module: str, folders: Sequence[str] = ()) -> bool:
    """Return whether a module can be found, with or without a source that can be read."""
    return _located(module, (*folders, os.getcwd())) is not None


def _parameters(arguments: ast.arguments, *, skip: int) -> tuple[list[Parameter], bool]:
    """Return the parameters of a ``def`` (without ``self``), and whether it takes any keyword."""
    positional = [*arguments.posonlyargs, *arguments.args]
    padding: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults = [*padding, *arguments.defaults]
    found = [
        _parameter(argument, default, word=argument not in arguments.posonlyargs)
        for argument, default in list(zip(positional, defaults, strict=True))[skip:]
    ]
    found += [_parameter(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return found, arguments.kwarg is not None


def _parameter(argument: ast.arg, default: ast.expr | None, *, word: bool = True) -> Parameter:
    annotation = ast.unparse(argument.annotation) if argument.annotation else ""
    return Parameter(argument.arg, annotation, None if default is None else ast.unparse(default), word)


def _forwarding(init: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.Call | None:
    """Return the call of a parent's ``__init__`` that gets ``**kwargs``; None if they go elsewhere."""
    if init.args.kwarg is None:
        return None
    name = init.args.kwarg.arg
    for node in ast.walk(init):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
            for word in node.keywords:
                if word.arg is None and isinstance(word.value, ast.Name) and word.value.id == name:
                    return node
    return None


def _fields(node: ast.ClassDef, parents: Mapping[str, Signature | None]) -> tuple[Parameter, ...]:
    """Return the fields of a dataclass after those of its parents, in the order of its ``__init__``."""
    found = {p.name: p for parent in reversed(list(parents.values())) if parent for p in parent.parameters}
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        annotation = ast.unparse(item.annotation)
        if "ClassVar" in annotation or annotation.endswith("KW_ONLY"):
            continue
        wanted, default = _field_default(item.value)
        if wanted:
            found[item.target.id] = Parameter(item.target.id, annotation, default)
        else:
            found.pop(item.target.id, None)
    return tuple(found.values())


def _field_default(value: ast.expr | None) -> tuple[bool, str | None]:
    if isinstance(value, ast.Call) and _tail(value.func) == "field":
        words = {word.arg: word.value for word in value.keywords}
        wanted = not ("init" in words and ast.unparse(words["init"]) == "False")
        given = words.get("default", words.get("default_factory"))
        if given is None:
            return wanted, None
        return wanted, ast.unparse(given) + ("()" if "default_factory" in words else "")
    return True, None if value is None else ast.unparse(value)


def registers_unreadably(module: str, file: str) -> bool:
    """Return whether a file registers something under a name that its source does not show, as in a loop."""
    source = parse(module, file)
    if source is None:
        return True
    asked = sum(isinstance(node, ast.Attribute) and node.attr in _REGISTERING for node in source.nodes)
    return asked > sum(1 for _ in registered(source))


def registered(source: Source) -> Iterator[Registered]:
    """Return what one file itself enters into registries."""
    for statement in statements(source.body):
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in statement.decorator_list:
                target = f"{source.module}:{statement.name}"
                for table, name in _decorated(decorator, statement.name, source):
                    yield Registered(table, name, target, source.file, statement.lineno)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            yield from _added(statement.value, source)
        elif isinstance(statement, ast.For):
            yield from _added_in_loop(statement, source)


def _decorated(decorator: ast.expr, own_name: str, source: Source) -> Iterator[tuple[str, str]]:
    """Yield table and name, for each name, of ``@HOOKS.register``, ``@HOOKS.register("name")`` and
    ``@HOOKS.register_module(name=("name", "other"))``."""
    call = decorator if isinstance(decorator, ast.Call) else None
    method = call.func if call else decorator
    if not isinstance(method, ast.Attribute) or method.attr not in _REGISTERING:
        return
    given = [
        *(call.args[:1] if call else ()),
        *(word.value for word in (call.keywords if call else ()) if word.arg in _NAMING),
    ]
    written = [value for value in given if not (isinstance(value, ast.Constant) and value.value is None)]
    last = written[-1] if written else None
    names = [_text(name, source) for name in (last.elts if isinstance(last, ast.Tuple | ast.List) else written[-1:])]
    for name in names if written else [own_name]:
        if name:
            yield _table(method.value, source), name


def _added_in_loop(loop: ast.For, source: Source) -> Iterator[Registered]:
    """Yield registrations in a loop: ``for layer in [nn.ReLU, nn.Tanh]: MODELS.register_module(module=layer)``."""
    items = loop.iter.elts if isinstance(loop.iter, ast.List | ast.Tuple) else []
    for call in (item.value for item in loop.body if isinstance(item, ast.Expr) and isinstance(item.value, ast.Call)):
        words = [*call.args, *(word.value for word in call.keywords)]
        over = isinstance(loop.target, ast.Name) and [ast.unparse(word) for word in words] == [loop.target.id]
        method = call.func
        if over and isinstance(method, ast.Attribute) and method.attr in _REGISTERING:
            for item in items:
                target = f"{source.module}:{ast.unparse(item)}"
                yield Registered(_table(method.value, source), _tail(item), target, source.file, call.lineno)


def _added(call: ast.Call, source: Source) -> Iterator[Registered]:
    """Yield registrations by call: ``HOOKS.add("name", Target)``, ``HOOKS.register(Target)``,
    ``HOOKS.register("name")(Target)``."""
    targets = call.args
    if isinstance(call.func, ast.Call):
        call = call.func
    method = call.func
    if not isinstance(method, ast.Attribute) or method.attr not in ("add", *_REGISTERING):
        return
    named = [word.value for word in call.keywords if word.arg in _NAMING]
    values = [*call.args, *targets, *named, *(word.value for word in call.keywords if word.arg == "module")]
    name = next((text for value in values if (text := _text(value, source))), "")
    references = [one for one in values if isinstance(one, ast.Name | ast.Attribute) and not _text(one, source)]
    target = ast.unparse(references[0]) if references else ""
    if name or target:
        where = f"{source.module}:{target or name}"
        yield Registered(
            _table(method.value, source), name or target.rpartition(".")[2], where, source.file, call.lineno
        )


def _text(value: ast.expr, source: Source) -> str:
    """Return a string literal, or the string that the file assigns to a name."""
    if isinstance(value, ast.Name):
        known = source.names.get(value.id)
        return _constant(known) if isinstance(known, ast.expr) else ""
    return _constant(value)


def _table(expression: ast.expr, source: Source) -> str:
    """Return the registry's own name, even if it was imported under another."""
    name = _tail(expression)
    origin = source.names.get(name) if isinstance(expression, ast.Name) else None
    return origin.partition(":")[2] if isinstance(origin, str) and ":" in origin else name


def _own_imports(source: Source, folders: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the modules that a file imports from its own package or folder, because these may register things, too."""
    near = os.path.dirname(source.file)
    where = (near, *folders, os.getcwd())

    def is_elsewhere(package: str) -> bool:
        file = _find_file(package, where)
        return file != "" and not os.path.dirname(file).startswith(near)

    own = source.module.partition(".")[0]
    for name in _imported_names(source):
        top = name.partition(".")[0]
        if top != own and is_elsewhere(top):
            continue  # not parsed: torch alone would take longer than the whole check
        file = _find_file(name, where)
        if file and (top == own or os.path.dirname(file).startswith(near)):
            yield name, file


def _imported_names(source: Source) -> Iterator[str]:
    """Yield the modules that a file imports, and what may be one."""
    for statement in statements(source.body):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            origin = source.absolute(statement)
            yield from (origin, *(f"{origin}.{alias.name}" for alias in statement.names))


def _is_builtin(target: str, source: Source) -> bool:
    """Return whether a base class (``object``, ``Protocol``, ``Generic`` …) adds no parameters."""
    module, _, name = target.partition(":")
    if module in ("typing", "abc", "typing_extensions"):
        return True
    known = name in source.names or (bool(source.stars) and not hasattr(builtins, name))
    return module == source.module and not known


def _constant(value: ast.expr) -> str:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _tail(expression: ast.expr) -> str:
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""


def _doc_of(node: ast.AST) -> str:
    assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    return first_sentence(ast.get_docstring(node, clean=False) or "")


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, on one line.

    >>> first_sentence("Keep parameters fixed, from\\n    ``begin`` on. Modules stay still.")
    'Keep parameters fixed, from ``begin`` on.'
    """
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0]


def _shown(parameter: Parameter) -> str:
    annotation = f": {parameter.annotation}" if parameter.annotation else ""
    if parameter.default is None:
        return f"{parameter.key}{annotation}"
    return f"{parameter.key}{annotation}{' = ' if annotation else '='}{parameter.default}"
