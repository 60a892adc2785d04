"""``get_event_storage()`` in a converted run: values that a model records there reach the native events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.core.hook import Hook
from etude.core.run import Run
from etude.events.record import Events
from etude_libai.live.detectron.hooks import writers as detectron
from etude_libai.live.events import storage as events


class _ForwardingStorage(events.EventStorage):
    """An EventStorage that also gives the recorded values to the native events."""

    def __init__(self, start_iter: int, notes: Events) -> None:
        super().__init__(start_iter)
        self.notes = notes

    def _put(self, name: str, value: Any, smoothing_hint: bool, iteration: int) -> None:
        super()._put(name, value, smoothing_hint, iteration)
        kept = events.held(value)
        kept = kept.reshape(()) if hasattr(kept, "reshape") else kept
        self.notes.put(self._current_prefix + name, kept, last=not smoothing_hint)

    def put_image(self, img_name: str, img_tensor: Any) -> None:
        self.notes.put_media("image", img_name, _channels_last(img_tensor))

    def put_histogram(self, hist_name: str, hist_tensor: Any, bins: int = 1000) -> None:
        self.notes.put_media("histogram", hist_name, hist_tensor.detach().cpu().numpy())


class _ForwardingDetectron2Storage(_ForwardingStorage, detectron.EventStorage):
    pass


def _channels_last(image: Any) -> Any:
    """Return a C×H×W image as H×W×C, which the native writers need."""
    array = image.detach().cpu().numpy() if hasattr(image, "detach") else image
    return array.transpose(1, 2, 0)


class Storage(Hook):
    """Opens the storage while a run trains, and sets its iteration.

    To do without it, leave out the hook, if no code of yours calls get_event_storage().
    """

    priority = 0
    storage_class: type[_ForwardingStorage] = _ForwardingStorage

    def __init__(self) -> None:
        self.storage: _ForwardingStorage | None = None
        self._left: Mapping[str, Any] | None = None

    def before_train(self, run: Run) -> None:
        self.storage = self.storage_class(run.step, run.events)
        if self._left is not None:
            self.storage.load_state_dict(self._left)
        self.storage.__enter__()

    def before_step(self, run: Run) -> None:
        if self.storage is not None:
            self.storage.iter = run.step

    def after_train(self, run: Run) -> None:
        if self.storage is not None:
            self.storage.__exit__()
            self.storage = None

    def state_dict(self) -> dict[str, Any]:
        return self.storage.state_dict() if self.storage is not None else dict(self._left or {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._left = state or None


class StorageDetectron2(Storage):
    """Opens detectron2's storage, in which scalars may have their own iteration."""

    storage_class = _ForwardingDetectron2Storage
