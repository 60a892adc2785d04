"""An image to draw on: points, lines, boxes, polygons, masks, texts and feature maps, by matplotlib."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F

from etude.dialects.mmengine.live.visualization.backend import needed

Array = np.ndarray | torch.Tensor
Several = Any  # one value, or a list with one per drawn thing


class Drawing:
    """``set_image`` → ``draw_*`` (each returns the drawing) → ``get_image``, H × W × 3 in RGB."""

    def __init__(self, figure_options: dict[str, Any] | None = None) -> None:
        self._figure_options = figure_options or {}
        self.fig_show_cfg: dict[str, Any] = {"frameon": False}
        self.manager: Any = None
        self.dpi = 100
        self._image: np.ndarray | None = None
        self._figure: Any = None

    # -- the image -----------------------------------------------------------------------------------------------

    def set_image(self, image: np.ndarray) -> None:
        """Start from ``image``, in RGB."""
        assert image is not None
        self._image = np.asarray(image).astype("uint8")
        self.height, self.width = self._image.shape[:2]
        self._default_font_size = max(np.sqrt(self.height * self.width) // 90, 10)
        self._close()

    def get_image(self) -> np.ndarray:
        """The image with everything that was drawn."""
        assert self._image is not None, "Please set image using `set_image`"
        if self._figure is None:
            return self._image
        self._figure.canvas.draw()
        drawn = np.asarray(self._figure.canvas.buffer_rgba())
        rgb: np.ndarray = drawn[: self.height, : self.width, :3].astype("uint8")
        return rgb

    def show(
        self,
        drawn_img: np.ndarray | None = None,
        win_name: str = "image",
        wait_time: float = 0.0,
        continue_key: str = " ",
        backend: str = "matplotlib",
    ) -> None:
        """Show the image in a window, or with ``backend="cv2"`` in OpenCV's.

        It stays for ``wait_time`` seconds (0: until it is closed), or until ``continue_key`` is pressed.
        """
        if backend not in ("matplotlib", "cv2"):
            raise ValueError(f'backend should be "matplotlib" or "cv2", but got {backend} instead')
        image = self.get_image() if drawn_img is None else drawn_img
        if backend == "cv2":
            _show_in_opencv(str(id(self)), win_name, image, wait_time)
            return
        self._init_manager(win_name)
        figure = self.manager.canvas.figure
        figure.clear()
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        axes.imshow(image)
        self.manager.canvas.draw()
        wait_continue(figure, timeout=wait_time, continue_key=continue_key)

    def _init_manager(self, win_name: str) -> None:
        """The window, made when it is first needed and again when it was closed."""
        pyplot = needed("matplotlib.pyplot", "showing images", extra="plot")
        if self.manager is None or not pyplot.fignum_exists(self.manager.num):
            self.manager = pyplot.figure(win_name, **self.fig_show_cfg).canvas.manager
        self.manager.set_window_title(win_name)

    @property
    def fig_save(self) -> Any:
        """The figure over the image, for what subclasses draw by themselves."""
        return self._axes.figure

    @property
    def fig_save_canvas(self) -> Any:
        """The canvas of :attr:`fig_save`."""
        return self.fig_save.canvas

    @property
    def ax_save(self) -> Any:
        """The axes over the image."""
        return self._axes

    @property
    def _axes(self) -> Any:
        """The axes over the image, made when something is first drawn."""
        assert self._image is not None, "Please set image using `set_image`"
        if self._figure is None:
            figures = needed("matplotlib.figure", "drawing on images", extra="plot")
            canvases = needed("matplotlib.backends.backend_agg", "drawing on images", extra="plot")
            eps = 1e-2
            size = ((self.width + eps) / 100, (self.height + eps) / 100)
            self._figure = figures.Figure(figsize=size, dpi=100, **self._figure_options)
            canvases.FigureCanvasAgg(self._figure)
            axes = self._figure.add_axes((0, 0, 1, 1))
            axes.axis("off")
            axes.imshow(self._image, extent=(0, self.width, self.height, 0), interpolation="none")
        return self._figure.axes[0]

    def _close(self) -> None:
        self._figure = None

    def _check_inside(self, points: np.ndarray, what: str) -> None:
        xs, ys = points[..., 0], points[..., 1]
        if (xs < 0).any() or (xs > self.width).any() or (ys < 0).any() or (ys > self.height).any():
            warnings.warn(
                f"Warning: The {what} is out of bounds, the drawn {what} may not be in the image", stacklevel=3
            )

    # -- shapes --------------------------------------------------------------------------------------------------

    def draw_points(
        self, positions: Array, colors: Several = "g", marker: str | None = None, sizes: Several = None
    ) -> Self:
        """Points, N × 2."""
        points = _pairs("positions", positions)
        self._axes.scatter(points[:, 0], points[:, 1], c=_colours(colors), s=sizes, marker=marker)
        return self

    def draw_texts(
        self,
        texts: str | list[str],
        positions: Array,
        font_sizes: Several = None,
        colors: Several = "g",
        vertical_alignments: Several = "top",
        horizontal_alignments: Several = "left",
        font_families: Several = "sans-serif",
        bboxes: Several = None,
        font_properties: Several = None,
    ) -> Self:
        """Texts at positions, N × 2; ``bboxes`` describe a box behind each."""
        _check_kind("texts", texts, (str, list))
        _check_kind("font_sizes", font_sizes, (int, float, list))
        _check_kind("bboxes", bboxes, (dict, list))
        lines = [texts] if isinstance(texts, str) else texts
        places = _pairs("positions", positions)
        assert len(lines) == len(places), f"there are {len(lines)} texts for {len(places)} positions"
        self._check_inside(places, "text")
        options = {
            "size": font_sizes or self._default_font_size, "color": _colours(colors), "bbox": bboxes,
            "verticalalignment": vertical_alignments, "horizontalalignment": horizontal_alignments,
            "family": font_families, "fontproperties": font_properties,
        }  # fmt: skip
        each = {name: _spread(value, len(lines)) for name, value in options.items() if value is not None}
        for index, (line, (x, y)) in enumerate(zip(lines, places, strict=True)):
            self._axes.text(x, y, line, **{name: values[index] for name, values in each.items()})
        return self

    def draw_lines(
        self,
        x_datas: Array,
        y_datas: Array,
        colors: Several = "g",
        line_styles: Several = "-",
        line_widths: Several = 2,
    ) -> Self:
        """Lines from (x[0], y[0]) to (x[1], y[1]), each N × 2."""
        xs, ys = _pairs("x_datas", x_datas), _pairs("y_datas", y_datas)
        assert xs.shape == ys.shape, "`x_datas` and `y_datas` should have the same shape"
        lines = np.stack((xs, ys), axis=2)
        self._check_inside(lines, "line")
        self._collect("LineCollection", lines, colors=_colours(colors), linestyles=line_styles, linewidths=line_widths)
        return self

    def draw_circles(
        self,
        center: Array,
        radius: Array,
        edge_colors: Several = "g",
        line_styles: Several = "-",
        line_widths: Several = 2,
        face_colors: Several = "none",
        alpha: float | int = 0.8,
    ) -> Self:
        """Circles: centres N × 2, radii N."""
        centres, radii = _pairs("center", center), _array(radius).reshape(-1)
        assert len(centres) == len(radii), f"there are {len(centres)} centers for {len(radii)} radii"
        self._check_inside(np.concatenate([centres - radii[:, None], centres + radii[:, None]]), "circle")
        patches = needed("matplotlib.patches", "drawing on images", extra="plot")
        circles = [patches.Circle(tuple(point), float(size)) for point, size in zip(centres, radii, strict=True)]
        self._collect_shapes("PatchCollection", circles, edge_colors, line_styles, line_widths, face_colors, alpha)
        return self

    def draw_bboxes(
        self,
        bboxes: Array,
        edge_colors: Several = "g",
        line_styles: Several = "-",
        line_widths: Several = 2,
        face_colors: Several = "none",
        alpha: int | float = 0.8,
    ) -> Self:
        """Boxes (x1, y1, x2, y2), N × 4."""
        boxes = _array(bboxes)
        boxes = boxes[None] if boxes.ndim == 1 else boxes
        assert boxes.shape[-1] == 4, f"The shape of `bboxes` should be (N, 4), but got {boxes.shape}"
        assert (boxes[:, 0] <= boxes[:, 2]).all() and (boxes[:, 1] <= boxes[:, 3]).all(), "x1 ≤ x2 and y1 ≤ y2"
        self._check_inside(boxes.reshape(-1, 2, 2), "bbox")
        corners = boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
        return self.draw_polygons(list(corners), edge_colors, line_styles, line_widths, face_colors, alpha)

    def draw_polygons(
        self,
        polygons: Array | Sequence[Array],
        edge_colors: Several = "g",
        line_styles: Several = "-",
        line_widths: Several = 2,
        face_colors: Several = "none",
        alpha: int | float = 0.8,
    ) -> Self:
        """Polygons: each a list of corners, N × 2."""
        several: list[Any] = list(polygons) if isinstance(polygons, (list, tuple)) else [polygons]
        shapes = [_array(polygon) for polygon in several]
        for shape in shapes:
            assert shape.ndim == 2 and shape.shape[1] == 2, "The shape of each polygon in `polygons` should be (M, 2)"
            self._check_inside(shape, "polygon")
        widths = np.minimum(np.maximum(np.asarray(line_widths), 1), self._default_font_size / 4)
        self._collect_shapes("PolyCollection", shapes, edge_colors, line_styles, widths, face_colors, alpha)
        return self

    def draw_binary_masks(self, binary_masks: Array, colors: Several = (0, 255, 0), alphas: Several = 0.8) -> Self:
        """Colour the pixels of masks, N × H × W of bool."""
        masks = _array(binary_masks)
        assert masks.dtype == np.bool_, f"The dtype of binary_masks should be np.bool_, but got {masks.dtype}"
        masks = masks[None] if masks.ndim == 2 else masks
        image = self.get_image().astype(np.float32)
        assert image.shape[:2] == masks.shape[1:], "`binary_masks` must have the same shape with image"
        tints = [_rgb(colour) for colour in _spread(colors, len(masks))]
        for mask, tint, alpha in zip(masks, tints, _spread(alphas, len(masks)), strict=True):
            image[mask] = image[mask] * (1 - alpha) + np.asarray(tint, dtype=np.float32) * alpha
        self.set_image(image.clip(0, 255))
        return self

    def _collect_shapes(
        self,
        kind: str,
        shapes: list[Any],
        edges: Several,
        styles: Several,
        widths: Several,
        faces: Several,
        alpha: float,
    ) -> None:
        self._collect(
            kind, shapes, alpha=alpha, facecolor=_colours(faces), linestyles=styles, edgecolors=_colours(edges),
            linewidths=widths,
        )  # fmt: skip

    def _collect(self, kind: str, shapes: Any, **options: Any) -> None:
        collections = needed("matplotlib.collections", "drawing on images", extra="plot")
        self._axes.add_collection(getattr(collections, kind)(shapes, **options))

    # -- feature maps --------------------------------------------------------------------------------------------

    @staticmethod
    def draw_featmap(
        featmap: torch.Tensor,
        overlaid_image: np.ndarray | None = None,
        channel_reduction: str | None = "squeeze_mean",
        topk: int = 20,
        arrangement: tuple[int, int] = (4, 5),
        resize_shape: tuple[int, int] | None = None,
        alpha: float = 0.5,
    ) -> np.ndarray:
        """Channels of a feature map, C × H × W, as colours: one of all, or the ``topk`` strongest side by side."""
        assert isinstance(featmap, torch.Tensor), f"`featmap` should be torch.Tensor, but got {type(featmap)}"
        assert featmap.ndim == 3, f"Input dimension must be 3, but got {featmap.ndim}"
        assert channel_reduction in (None, "squeeze_mean", "select_max"), (
            f'Mode only support "squeeze_mean", "select_max", but got {channel_reduction}'
        )
        featmap = featmap.detach().cpu().float()
        if overlaid_image is not None and overlaid_image.shape[:2] != featmap.shape[1:]:
            warnings.warn(
                f"the feature map, {tuple(featmap.shape[1:])}, is resized to the image, {overlaid_image.shape[:2]}",
                stacklevel=2,
            )
        size = resize_shape or (overlaid_image.shape[:2] if overlaid_image is not None else None)
        if size is not None:
            featmap = F.interpolate(featmap[None], size, mode="bilinear", align_corners=False)[0]
        if channel_reduction == "squeeze_mean":
            return _heat(featmap.mean(0), overlaid_image, alpha)
        if channel_reduction == "select_max":
            return _heat(featmap[featmap.sum((1, 2)).argmax()], overlaid_image, alpha)
        if topk <= 0:
            assert featmap.shape[0] in (1, 3), "topk <= 0 draws the channels as they are: there must be 1 or 3"
            return _heat(featmap.mean(0), overlaid_image, alpha)
        rows, columns = arrangement
        assert rows * columns >= topk, "The product of row and col in the `arrangement` is less than topk"
        return _grid(featmap, min(topk, len(featmap)), rows, columns, overlaid_image, alpha)


def _grid(
    featmap: torch.Tensor, count: int, rows: int, columns: int, image: np.ndarray | None, alpha: float
) -> np.ndarray:
    best = featmap.sum((1, 2)).topk(count).indices.tolist()
    tiles = [_heat(featmap[channel], image, alpha) for channel in best]
    blank = np.full_like(tiles[0], 255)
    tiles += [blank] * (rows * columns - len(tiles))
    return np.concatenate(
        [np.concatenate(tiles[row * columns : (row + 1) * columns], axis=1) for row in range(rows)], axis=0
    )


def _heat(channel: torch.Tensor, image: np.ndarray | None, alpha: float) -> np.ndarray:
    """A channel as the jet colours, over ``image`` if given."""
    values = channel.numpy()
    span = values.max() - values.min()
    scaled = (values - values.min()) / span if span else np.zeros_like(values)
    colours = np.stack([np.clip(1.5 - np.abs(4 * scaled - centre), 0, 1) for centre in (3, 2, 1)], axis=-1) * 255
    if image is not None:
        colours = colours * alpha + image.astype(np.float32) * (1 - alpha)
    heat: np.ndarray = colours.astype(np.uint8)
    return heat


def _check_kind(name: str, value: Any, kinds: tuple[type, ...]) -> None:
    if value is not None and not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"`{name}` should be {wanted}, but got {type(value)}")


def _array(values: Array) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        return values.detach().cpu().numpy()
    if isinstance(values, np.ndarray):
        return values
    raise TypeError(f"an array or a tensor is needed, but got {type(values)}")


def _pairs(name: str, values: Array) -> np.ndarray:
    """N × 2 numbers; a single pair is given as two."""
    pairs = np.atleast_2d(_array(values))
    assert pairs.ndim == 2 and pairs.shape[1] == 2, f"The shape of `{name}` should be (N, 2), but got {pairs.shape}"
    return pairs


def _colours(colours: Several) -> Several:
    """Colours as matplotlib wants them: names, or numbers from 0 to 1 for those from 0 to 255."""
    if isinstance(colours, str):
        return colours
    if isinstance(colours, tuple):
        return tuple(float(part) / 255 for part in colours)
    return [_colours(colour) for colour in colours]


def _spread(value: Several, count: int) -> list[Any]:
    """One value per drawn thing."""
    if not isinstance(value, list):
        return [value] * count
    assert len(value) >= count, f"there are {len(value)} values for {count} things to draw"
    return value[:count]


def _rgb(colour: Any) -> Any:
    """A colour as three numbers of 0 to 255."""
    if not isinstance(colour, str):
        return colour
    converted = needed("matplotlib.colors", "drawing on images", extra="plot").to_rgb(colour)
    return tuple(int(channel * 255) for channel in converted)


def wait_continue(figure: Any, timeout: float = 0, continue_key: str = " ") -> int:
    """Wait for ``timeout`` seconds (0: without end), the key, or the end of the window; 1 if it was closed."""
    pyplot = needed("matplotlib.pyplot", "showing images", extra="plot")
    if "inline" in pyplot.get_backend():
        return 0
    if figure.canvas.manager:
        figure.show()
    seen: list[Any] = []

    def note(event: Any) -> None:
        seen.append(event)
        figure.canvas.stop_event_loop()

    connected = [figure.canvas.mpl_connect(name, note) for name in ("key_press_event", "close_event")]
    try:
        while True:
            seen.clear()
            figure.canvas.start_event_loop(timeout)
            if not seen or getattr(seen[-1], "key", None) == continue_key:
                return 0
            if seen[-1].name == "close_event":
                return 1
    finally:
        for number in connected:
            figure.canvas.mpl_disconnect(number)


def _show_in_opencv(window: str, title: str, image: np.ndarray, seconds: float) -> None:
    opencv = importlib.import_module("cv2")
    opencv.namedWindow(winname=window)
    opencv.setWindowTitle(window, title)
    opencv.imshow(window, image)
    opencv.waitKey(int(np.ceil(seconds * 1000)))
