"""Tells scripts from Python configs, before anything runs."""

from __future__ import annotations

import re

#: What a script does first that runs a project on Étude, and names that only a config would assign.
_INSTALLS = ("etude.compat.install()", "compat.install()")
_OF_CONFIGS = {"_base_", "model", "data", "train", "train_dataloader", "optim", "optimizer"}


def script_line(text: str) -> int:
    """Return the line that shows ``text`` to be a script and no config; 0 if none does.

    >>> script_line("import etude.compat\\netude.compat.install()\\n"), script_line("model = 'MLP'\\n")
    (2, 0)
    """
    if not re.search(r"compat\b[\s\S]*\binstall\(|__main__", text):
        return 0
    import ast

    from etude.config.from_python import assigned

    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return 0
    names = assigned(module)
    for statement in module.body:
        if isinstance(statement, ast.Expr) and ast.unparse(statement) in _INSTALLS:
            return statement.lineno
        if isinstance(statement, ast.If) and "__main__" in ast.unparse(statement.test) and not {*names} & _OF_CONFIGS:
            return statement.lineno
    return 0
