"""Defines hooks, and the table that decides once which hooks act at which point.

.. code-block:: text

    before_run
      before_train
        before_epoch
          before_step  →  forward  →  after_forward  →  backward  →  before_update  →  update  →  after_step
        after_epoch
        before_eval  ( before_eval_step  after_eval_step )*  after_eval
      after_train                                   also when training failed
    after_run
    before_save · after_load · on_error             when they happen

A step point sees the number of the step it belongs to: ``run.step`` moves on after ``after_step``, ``run.epoch`` after
``after_epoch``. Hooks of one point act by priority, lower first; equal priorities keep the order they were given in.
"""

from __future__ import annotations

import inspect
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from etude.errors import ConfigError, EtudeError, Finding, Stopped, printable
from etude.errors.own_code import is_own
from etude.errors.spelling import suggest
from etude.inspection.points import EPOCH_POINTS as EPOCH_POINTS
from etude.inspection.points import FOREIGN_POINTS as FOREIGN_POINTS
from etude.inspection.points import POINTS as POINTS
from etude.inspection.points import STEP_POINTS as STEP_POINTS
from etude.inspection.points import meant_points
from etude.units import Amount, parse, parse_written

if TYPE_CHECKING:
    from etude.core.run import Run

Call = Callable[["Run"], Any]


class Hook:
    """Acts at points of a run. Override the points you need; the others are never called.

    ``every`` (``"50step"``, ``"2ep"``, ``"10min"``) calls step or epoch points only when due: after every 50th step,
    every 2nd epoch. ``essential = False`` turns an exception of this hook into a warning.

    >>> class Count(Hook):
    ...     every = "2step"
    ...     seen = 0
    ...     def after_step(self, run):
    ...         self.seen += 1
    >>> list(Count().calls())
    ['after_step']
    """

    priority: int = 50
    every: str | int | Amount | None = None
    essential: bool = True

    def before_run(self, run: Run) -> None: ...
    def before_train(self, run: Run) -> None: ...
    def before_epoch(self, run: Run) -> None: ...
    def before_step(self, run: Run) -> None: ...
    def after_forward(self, run: Run) -> None: ...
    def before_update(self, run: Run) -> None: ...
    def after_step(self, run: Run) -> None: ...
    def after_epoch(self, run: Run) -> None: ...
    def before_eval(self, run: Run) -> None: ...
    def before_eval_step(self, run: Run) -> None: ...
    def after_eval_step(self, run: Run) -> None: ...
    def after_eval(self, run: Run) -> None: ...
    def before_save(self, run: Run) -> None: ...
    def after_load(self, run: Run) -> None: ...
    def after_train(self, run: Run) -> None: ...
    def after_run(self, run: Run) -> None: ...
    def on_error(self, run: Run) -> None: ...

    def calls(self) -> Mapping[str, Call]:
        """Return the function to call at each point. Hooks of other systems override this."""
        return {point: getattr(self, point) for point in POINTS if _overrides(self, point)}

    def word_for(self, point: str) -> str:
        """Return the name that the author of this hook uses for ``point``, for messages."""
        return point

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def origin(self) -> str:
        return origin_of(type(self))


class WrappingHook(Hook):
    """Acts for ``hook``, a hook of another system: messages name that one."""

    hook: Any

    @property
    def name(self) -> str:
        return type(self.hook).__name__

    @property
    def origin(self) -> str:
        return origin_of(type(self.hook))


class FunctionHook(Hook):
    """Turns a plain function into a hook: it is called with the run at one point.

    >>> FunctionHook(print, "after_epoch", every="2ep").name
    'print'
    >>> FunctionHook(print, "after_epok")
    Traceback (most recent call last):
    etude.errors.ConfigError: no point is called 'after_epok'; did you mean 'after_epoch'?
    """

    def __init__(
        self, function: Call, point: str, *, every: str | int | Amount | None = None, priority: int = 50
    ) -> None:
        if point not in POINTS:
            meant = FOREIGN_POINTS.get(point, point)
            raise ConfigError(
                f"no point is called {point!r}",
                hint=f"did you mean {meant!r}?" if meant in POINTS else suggest(point, POINTS, most=len(POINTS)),
            )
        require_call(function, "hook", "run")
        every = None if every is None else parse_written(every)
        self.function, self.point, self.every, self.priority = function, point, every, priority

    def calls(self) -> Mapping[str, Call]:
        return {self.point: self.function}

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def origin(self) -> str:
        return origin_of(self.function)


class Periodic(Hook):
    """Acts every Nth step or epoch, and once more at the end.

    Override :meth:`act`. With ``every`` in epochs it acts at ``after_epoch``, otherwise at ``after_step``. If a run
    ends without a failure and the last step was not due, ``at_end`` calls :meth:`act` once more at ``after_train``.
    """

    at_end = True
    _acted_at = -1

    @abstractmethod
    def act(self, run: Run) -> None:
        """Act. ``run.done`` is the number of finished steps, whatever the point."""

    def calls(self) -> Mapping[str, Call]:
        unit = "step" if self.every is None else parse(self.every).unit
        point = "after_epoch" if unit == "epoch" else "after_step"
        ends = self.at_end or _overrides(self, "after_train")
        return {**super().calls(), point: self._act, **({"after_train": self._finish} if ends else {})}

    def _act(self, run: Run) -> None:
        self._acted_at = run.done
        self.act(run)

    def _finish(self, run: Run) -> None:
        self.after_train(run)
        late = self.at_end and run.error is None and run.done > 0
        if late and run.done != self._acted_at and self.wants_end(run):
            self._act(run)

    def wants_end(self, run: Run) -> bool:
        """Return whether to act once more at the end; not after a signal, which leaves only time to save."""
        return run.exit_code == 0

    def state_dict(self) -> dict[str, Any]:
        return {"acted_at": self._acted_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._acted_at = int(state["acted_at"])


@dataclass(frozen=True)
class Site:
    """Records where an exception came from. The table attaches it as ``etude_site``, and error reports read it."""

    hook: str
    point: str
    step: int
    origin: str
    actor: Hook | None = None

    @property
    def word(self) -> str:
        """The name of the point in the hook's own system."""
        return self.point if self.actor is None else self.actor.word_for(self.point)


class PointCalls:
    """Holds the hooks of one point. Periodic hooks cost one integer comparison while none of them is due."""

    def __init__(
        self,
        point: str,
        entries: list[tuple[Hook, Call]],
        steps_per_epoch: int | None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.point, self._clock = point, clock
        self._entries = entries
        self._counts_epochs = point in EPOCH_POINTS
        self._timings = [self._timing(hook, steps_per_epoch) for hook, _ in entries]
        self._clocked = any(seconds for _, seconds in self._timings)
        self._last = [clock()] * len(entries)
        self._constant = tuple(
            call for (_, call), timing in zip(entries, self._timings, strict=True) if timing == (1, 0.0)
        )
        self._periods = sorted({period for period, _ in self._timings if period > 1})
        self.rewind()

    def rewind(self) -> None:
        """Recompute what is due after the counters jumped back."""
        self._next_due: float = 0 if self._periods or self._clocked else float("inf")

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __call__(self, run: Run) -> None:
        number = run.epoch if self._counts_epochs else run.step
        call, outer = None, run.acting
        try:
            for call in self._constant if number < self._next_due else self._due(number):
                run.acting = call
                call(run)
        except Exception as error:
            self._annotate(error, call, run)
            raise
        run.acting = outer

    def each(self, run: Run, during: BaseException | None = None) -> None:
        """Call all of them, also when one raises: the end is everyone's. The first error is raised afterwards, unless
        there is one already; then (``during``) later ones are only warned of."""
        first: BaseException | None = None
        for hook, call in self._entries:
            run.acting = call
            try:
                call(run)
            except Stopped as stop:  # a signal in the last evaluation; later hooks still see the end
                if during is not None:
                    raise
                first = first or stop
            except Exception as error:
                self._annotate(error, call, run)
                if during is None and first is None:
                    first = error
                else:
                    _remark(hook, self.point, number_of(run, self.point), error)
        run.acting = None
        if first is not None:
            raise first

    def owner_of(self, call: Call | str | None) -> Hook | None:
        """Return the hook whose ``call`` acts here."""
        return next((hook for hook, candidate in self._entries if candidate is call), None)

    @property
    def hooks(self) -> list[Hook]:
        """Return the hooks that act here, in order."""
        return [hook for hook, _ in self._entries]

    def _due(self, number: int) -> list[Call]:
        """Return the calls of step or epoch ``number``, and set when to ask again."""
        count = number + 1
        waits = [period - number % period - 1 or period for period in self._periods]
        self._next_due = number + (1 if self._clocked else min(waits, default=float("inf")))
        return [
            call
            for index, ((_, call), (period, seconds)) in enumerate(zip(self._entries, self._timings, strict=True))
            if count % period == 0 and (not seconds or self._clock_due(index, seconds))
        ]

    def _clock_due(self, index: int, seconds: float) -> bool:
        now = self._clock()
        if now - self._last[index] < seconds:
            return False
        self._last[index] = now
        return True

    def _timing(self, hook: Hook, steps_per_epoch: int | None) -> tuple[int, float]:
        """Return the period of this point in steps or epochs, and the seconds between two calls (0: no clock)."""
        if hook.every is None or self.point not in STEP_POINTS + EPOCH_POINTS:
            return 1, 0.0
        amount = parse(hook.every)
        if amount.unit == "second":
            return 1, amount.value
        if self._counts_epochs:
            return (int(amount.value), 0.0) if amount.unit == "epoch" else (1, 0.0)
        return amount.steps(steps_per_epoch), 0.0

    def _annotate(self, error: Exception, call: Call | None, run: Run) -> None:
        if getattr(error, "etude_site", None) is not None:
            return
        hook = self.owner_of(call)
        if hook is None or (isinstance(error, EtudeError) and is_builtin(hook)):  # which says what is wrong
            return
        site = Site(hook.name, self.point, number_of(run, self.point), hook.origin, hook)
        error.etude_site = site  # type: ignore[attr-defined]
        error.add_note(f"in hook {site.hook} ({site.origin}) at {site.word}, step {site.step}")


class HookTable:
    """Holds all hooks of a run in order; ``table.before_step(run)`` calls those of one point.

    >>> late = FunctionHook(print, "after_step", priority=90)
    >>> table = HookTable([late, FunctionHook(repr, "after_step")])
    >>> [hook.name for hook in table]
    ['repr', 'print']
    """

    before_run: PointCalls
    before_train: PointCalls
    before_epoch: PointCalls
    before_step: PointCalls
    after_forward: PointCalls
    before_update: PointCalls
    after_step: PointCalls
    after_epoch: PointCalls
    before_eval: PointCalls
    before_eval_step: PointCalls
    after_eval_step: PointCalls
    after_eval: PointCalls
    before_save: PointCalls
    after_load: PointCalls
    after_train: PointCalls
    after_run: PointCalls
    on_error: PointCalls

    def __init__(
        self,
        hooks: Iterable[Hook] = (),
        *,
        steps_per_epoch: int | None = None,
        clock: Callable[[], float] = monotonic,
        wrap: Callable[[Hook, str, Call], Call] | None = None,
    ) -> None:
        self._hooks: list[Hook] = list(hooks)
        self.steps_per_epoch, self.clock = steps_per_epoch, clock
        #: Returns what is called instead of a hook's call at a point, for those who watch a run.
        self.wrap = wrap
        self.compile()

    def __iter__(self) -> Any:
        return iter(self.ordered())

    def __len__(self) -> int:
        return len(self._hooks)

    def ordered(self) -> list[Hook]:
        """Return the hooks in the order they act: by priority, equal ones as given."""
        return sorted(self._hooks, key=lambda hook: hook.priority)

    def add(self, hook: Hook) -> None:
        self._hooks.append(hook)
        self.compile()

    def remove(self, hook: Hook) -> None:
        self._hooks.remove(hook)
        self.compile()

    def compile(self) -> None:
        """Decide which hooks act where. Call it after adding hooks or changing a hook's ``every`` or ``priority``."""
        entries: dict[str, list[tuple[Hook, Call]]] = {point: [] for point in POINTS}
        for hook in self.ordered():
            if not callable(hook.calls):
                hint = "`calls` is the method that says where a hook acts"
                raise ConfigError(f"hook {hook.name} ({hook.origin}) has an attribute `calls`", hint=hint)
            for point, call in hook.calls().items():
                safe = call if hook.essential else _forgiven(hook, point, call)
                entries[point].append((hook, safe if self.wrap is None else self.wrap(hook, point, safe)))
        for point in POINTS:
            setattr(self, point, PointCalls(point, entries[point], self.steps_per_epoch, self.clock))

    def acting(self, call: Call | str | None) -> tuple[Hook, str] | None:
        """Return the hook whose ``call`` is at work, and the point."""
        owners = ((getattr(self, point).owner_of(call), point) for point in POINTS)
        return next(((hook, point) for hook, point in owners if hook is not None), None)

    def rewind(self) -> None:
        """Recompute what is due after the counters jumped (a resume, a rollback)."""
        for point in POINTS:
            getattr(self, point).rewind()


def misspelt_points(hook: Hook) -> dict[str, str]:
    """Map public methods that look like a point but are none to the point that was probably meant."""
    return meant_points(name for name, _ in inspect.getmembers(type(hook), inspect.isfunction))


def require_points(hook: Hook, *, at: str = "") -> None:
    """Raise a :class:`~etude.errors.ConfigError` for methods that would never be called, or not with the run alone."""
    wrong = misspelt_points(hook)
    if wrong:
        raise ConfigError(
            [
                Finding(at, f"hook {hook.name} has a method {name}, which is not a point", f"did you mean {near!r}?")
                for name, near in wrong.items()
            ]
        )
    for point in POINTS:
        if _overrides(hook, point):
            require_call(getattr(hook, point), "the method", "run", at=at)


def require_call(function: Call, what: str, *words: str, at: str = "") -> None:
    """Raise a :class:`~etude.errors.ConfigError` for a function that cannot be called with ``words``."""
    try:
        inspect.signature(function).bind(*words)
    except TypeError:
        name = getattr(function, "__qualname__", type(function).__name__)
        called = f"is called with {' and '.join(f'the {word}' for word in words)}"
        written = ", ".join(("self", *words) if inspect.ismethod(function) else words)
        short = name.rpartition(".")[2].strip("<>")
        raise ConfigError(f"{what} {name} {called}", at=at, hint=f"write def {short}({written})") from None
    except ValueError:  # a function written in C has no signature
        return


def with_subject(method: Callable[..., Any], subject: Any) -> Call:
    """Return a call of ``method`` with ``subject`` (another system's runner) in place of the run."""
    return lambda run: method(subject)


def number_of(run: Run, point: str) -> int:
    """Return the number of the step that ``point`` belongs to, counted from 1 as log lines and ``--chaos`` do."""
    return run.step + (point in STEP_POINTS)


def is_builtin(hook: object) -> bool:
    """Return whether ``hook`` is one of Étude's own."""
    return is_own(type(hook).__module__)


def origin_of(target: Any) -> str:
    """Return ``file:line`` where a class or function is defined, or its module."""
    try:
        return f"{inspect.getsourcefile(target)}:{inspect.getsourcelines(target)[1]}"
    except (OSError, TypeError):
        return str(getattr(target, "__module__", "?"))


def _overrides(hook: Hook, point: str) -> bool:
    if point in hook.__dict__:
        return True
    return getattr(type(hook), point) is not getattr(Hook, point)


def _forgiven(hook: Hook, point: str, call: Call) -> Call:
    """Wrap ``call`` so that its failures are reported, each kind once, and do not end the run."""
    reported: set[type[Exception]] = set()

    def guarded(run: Run) -> None:
        try:
            call(run)
        except Exception as error:
            if type(error) not in reported:
                reported.add(type(error))
                _remark(
                    hook,
                    point,
                    number_of(run, point),
                    error,
                    why=", is not essential; training continues (reported once)",
                )

    return guarded


def _remark(hook: Hook, point: str, step: int, error: Exception, *, why: str = "") -> None:
    what = f"{type(error).__name__}: {printable(str(error))}"
    warnings.warn(f"hook {hook.name} failed at {hook.word_for(point)}, step {step}{why}: {what}", stacklevel=3)
