"""The runner, hooks and other parts of training of mmcv 1.x."""

from etude.dialects import imports

imports.install()

# Which mmcv is meant is decided when it is first imported. Modules below import mmengine, which would mean mmcv 2.x.
import mmcv  # noqa: E402, F401
