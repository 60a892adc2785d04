"""The folder of a run: chosen, made with its first records, and removed again if the run never begins."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from etude.building.options import Options
from etude.config.dump import public_files, snapshot
from etude.config.tree import Tree
from etude.config.tuples import places_of_tuples
from etude.core.run import Run
from etude.dist import group
from etude.dist.jobs import reports
from etude.errors import ConfigError, printable
from etude.session import folder as folders
from etude.session.watch import lives
from etude.session.watch.status import write_facts


class RunFolder:
    """Opens a run's folder. ``private``: only the owner may read it."""

    def __init__(
        self,
        run: Run,
        options: Options,
        tree: Tree | None,
        *,
        flags: Mapping[str, Any],
        fresh: Collection[Path] = (),
        private: bool = True,
    ) -> None:
        self.run, self.options, self.tree, self.private = run, options, tree, private
        self.flags, self._fresh = flags, fresh
        #: Folders that this start has made, the run's own first; none where that was there before.
        self.made: list[Path] = []
        self.before = lives.Before()

    def open(self) -> None:
        run = self.run
        if run.folder is None:
            run.folder = group.first(self._choose_folder) if run.peers is not None else self._choose_folder()
        if run.folder is None or not run.world.is_main:
            return
        self.before = lives.look_before(run.folder)
        reports.remember_folder(run.folder)
        self.made = list(takewhile(self._is_new, [run.folder, *run.folder.parents]))
        self.record(run.folder, anew=self.options.restart)

    def record(self, folder: Path, *, anew: bool) -> None:
        folders.make(
            folder,
            plan_text=self.plan_text(),
            files=public_files(self.tree) if self.tree else {},
            anew=anew,
            private=self.private,
            data=folders.fingerprints(self.run.data),
            flags=self.flags,
            tuples=places_of_tuples(self.tree.values) if self.tree else (),
            learnt=folders.learnt_from(self.run.data),
        )

    def renew(self) -> None:
        """Record the run once more in a folder that was deleted meanwhile."""
        if self.run.folder is not None:
            self.record(self.run.folder, anew=True)
            write_facts(self.run.folder, self.run, self.tree)

    def _choose_folder(self) -> Path | None:
        plan = self.run.plan
        return folders.choose_folder(plan, self.options) if plan is not None else self.options.folder

    def _is_new(self, path: Path) -> bool:
        return not path.exists() or path.absolute() in self._fresh

    def plan_text(self) -> str:
        if self.tree is None:
            return ""
        return snapshot(self.tree) if self.run.plan is not None else f"{folders.HEADER}\n{snapshot(self.tree)}"

    def discard(self) -> None:
        """Remove the folder that this start has made, and parents that are empty again."""
        if self.made:
            shutil.rmtree(self.made[0], ignore_errors=True)
        with suppress(OSError):
            for folder in self.made[1:]:
                folder.rmdir()

    def is_unused(self) -> bool:
        """Return whether this start has made the folder, and the run has saved nothing in it."""
        folder = self.run.folder
        if not self.made or folder is None or self.run.done:
            return False
        return not any((folder / "checkpoints").glob("*")) and not any(folder.glob("**/*.pth"))

    def changed_code(self) -> Iterator[str]:
        """Yield which files of the project have changed since the run began; refuse that under ``--strict``."""
        folder = self.run.folder
        files = list(self.tree.files)[:1] if self.tree is not None else []
        changed = folders.changed_code(folder, folders.code_roots(files)) if folder is not None else []
        if changed and self.options.strict:
            names = ", ".join(printable(str(one)) for one in changed)
            raise ConfigError(f"the code has changed since the run began: {names}", hint="--strict does not accept it")
        for one in changed:
            yield (f"changed since the run began: {printable(str(one))}")
            for line in one.first:
                yield (f"    {printable(line)}")
