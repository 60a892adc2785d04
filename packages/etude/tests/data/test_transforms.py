"""What the transforms and collate functions do to the numbers of an image and its label."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch

from etude.data import transforms
from etude.data.collate import CutMix, Lists, Mixup, Pad
from etude.data.datasets.digits import Digits
from etude.data.loader import Loader
from etude.data.order import Sliced
from etude.data.to_device import ahead, move
from etude.data.transforms import Chain, Normalize, RandomFlip, RandomShift, Transformed
from etude.errors import ConfigError, DataError

Pair = namedtuple("Pair", "x y")


def test_each_channel_is_normalized_with_its_own_numbers() -> None:
    image = torch.tensor([[[1.0, 3.0]], [[5.0, 9.0]]])
    made = transforms.Normalize([1.0, 5.0], [2.0, 4.0])(image)
    assert made.tolist() == [[[0.0, 1.0]], [[0.0, 1.0]]]


def test_the_first_part_of_a_sample_is_transformed_or_the_sample() -> None:
    assert transforms.Transformed([(1, 2, 3)], lambda x: x + 10)[0] == (11, 2, 3)
    assert transforms.Transformed([1], lambda x: x + 10)[0] == 11
    assert transforms.Chain([lambda x: x + 1, lambda x: x * 3])(1) == 6


def test_a_flip_is_certain_or_never_happens_at_the_bounds() -> None:
    image = torch.arange(6.0).reshape(1, 2, 3)
    assert torch.equal(transforms.RandomFlip(1.0)(image), image.flip(-1))
    assert torch.equal(transforms.RandomFlip(0.0)(image), image)


def test_a_shift_goes_by_so_many_pixels_at_most_and_reaches_them() -> None:
    torch.manual_seed(0)
    image = torch.zeros(1, 5, 5)
    image[0, 2, 2] = 1
    seen = {tuple(transforms.RandomShift()(image)[0].nonzero()[0].tolist()) for _ in range(200)}
    assert seen == {(row, column) for row in (1, 2, 3) for column in (1, 2, 3)}
    assert {transforms.RandomShift()(torch.ones(2, 3, 5)).shape for _ in range(9)} == {(2, 3, 5)}


def test_mixup_shares_images_and_targets_alike() -> None:
    torch.manual_seed(0)
    samples = [(torch.full((1, 2, 2), float(label)), label) for label in range(4)]
    for _ in range(5):
        images, targets = Mixup(4, alpha=1.0)(samples)
        assert torch.allclose(targets.sum(1), torch.ones(4)) and targets.min() >= 0
        assert torch.allclose(images[:, 0, 0, 0], targets @ torch.arange(4.0))


def test_a_cut_has_the_area_that_its_target_says() -> None:
    torch.manual_seed(0)
    samples = [(torch.full((1, 6, 8), float(label)), label) for label in range(4)]
    areas = set()
    for _ in range(30):
        images, targets = CutMix(4)(samples)
        assert torch.allclose(images.mean((1, 2, 3)), targets @ torch.arange(4.0), atol=1e-6)
        assert torch.allclose(targets.sum(1), torch.ones(4)) and targets.min() >= 0
        areas.add(round(float(targets.max()), 4))
    assert len(areas) > 8


def test_a_cut_has_the_sides_of_its_share_and_reaches_the_borders() -> None:
    torch.manual_seed(0)
    labels = torch.arange(4.0).reshape(4, 1, 1, 1)
    samples = [(torch.full((1, 40, 100), float(label)), label) for label in range(4)]
    seen = {"rows": [], "columns": []}
    for _ in range(60):
        images, _ = CutMix(4, alpha=1e6)(samples)  # the share is always a half
        other = (images != labels).any(0)[0]
        seen["rows"].append(other.any(1).nonzero().flatten().tolist())
        seen["columns"].append(other.any(0).nonzero().flatten().tolist())
    for name, size, longest in (("rows", 40, 28), ("columns", 100, 70)):
        assert max(len(places) for places in seen[name]) == longest
        assert {0, size - 1} <= {place for places in seen[name] for place in places}


def test_images_without_a_channel_are_cut_too() -> None:
    torch.manual_seed(0)
    images, targets = CutMix(2)([(torch.full((6, 8), float(label)), label) for label in range(2)])
    assert images.shape == (2, 6, 8) and torch.allclose(images.mean((1, 2)), targets[:, 1])


@pytest.mark.parametrize(("mixup", "ways"), [(0.0, {"cut"}), (0.5, {"cut", "mixed"})])
def test_a_batch_is_cut_or_mixed_where_both_are_asked_for(mixup: float, ways: set[str]) -> None:
    torch.manual_seed(0)
    samples = [(torch.full((1, 6, 8), float(label)), label) for label in range(4)]
    found = [CutMix(4, mixup=mixup)(samples)[0] for _ in range(20)]
    assert {"cut" if torch.equal(images, images.round()) else "mixed" for images in found} == ways


def test_a_batch_of_one_sample_and_one_of_numbers_are_collated_too() -> None:
    assert Pad()([torch.ones(2)]).tolist() == [[1, 1]] and Lists()([torch.ones(2)])[0].tolist() == [1, 1]
    assert Pad()([(1, "a")]) == (torch.tensor([1]), ["a"]) and Lists()([{"x": 1}]) == {"x": [1]}
    assert Pad()([torch.tensor(1), torch.tensor(2)]).tolist() == [1, 2]


def test_sequences_are_padded_and_lists_stay_apart() -> None:
    samples = [{"x": torch.ones(2), "y": (1, torch.ones(1))}, {"x": torch.ones(3), "y": (2, torch.ones(1))}]
    padded = Pad(-1.0)(samples)
    assert padded["x"].tolist() == [[1, 1, -1], [1, 1, 1]] and padded["y"][0].tolist() == [1, 2]
    assert Lists()([{"x": 1}, {"x": 2}]) == {"x": [1, 2]} and Lists()([(1, 2), (3, 4)]) == ([1, 3], [2, 4])
    assert Lists()([1, 2]) == [1, 2]


def test_a_batch_of_any_form_is_cut_along_its_first_dimension() -> None:
    batch = Pair({"a": torch.arange(4), "scale": torch.tensor(2)}, [torch.arange(8).reshape(4, 2), "text"])
    (part,) = Sliced([batch], (1, 2))
    assert type(part) is Pair and part.x["a"].tolist() == [2, 3] and part.x["scale"] == 2
    assert part.y[0].tolist() == [[4, 5], [6, 7]] and part.y[1] == "text"
    assert len(Sliced([batch], (0, 2))) == 1 and Sliced([batch], (0, 2)).weight == 1.0
    with pytest.raises(DataError, match="a batch of str cannot be shared among processes"):
        list(Sliced(["text"], (0, 2)))


def test_a_batch_moves_with_its_form_and_items_are_prepared_one_ahead() -> None:
    moved = move(Pair({"a": torch.ones(2)}, [torch.ones(1), "text"]), "meta")
    assert type(moved) is Pair and moved.x["a"].device.type == moved.y[0].device.type == "meta" and moved.y[1] == "text"
    done: list[int] = []
    items = ahead(iter(range(3)), lambda item: done.append(item) or item)
    assert next(items) == 0 and done == [0, 1] and list(items) == [1, 2]


@pytest.mark.parametrize("by", [0.25, 0.5, 1.0])
def test_fewer_levels_and_an_inversion_have_their_numbers(by: float) -> None:
    image = torch.linspace(0, 1, 256).reshape(1, 16, 16)
    levels = transforms._posterize(image, -by)
    assert len(levels.unique()) == 2 ** (8 - round(4 * by)) and (levels.min(), levels.max()) == (0, 1)
    made = transforms._solarize(image, -by)
    assert torch.equal(made[image < 1 - by], image[image < 1 - by]) and torch.equal(
        made[image >= 1 - by], 1 - image[image >= 1 - by]
    )


@pytest.mark.parametrize("by", [0.0, 0.25, 1.0])
def test_levels_are_of_the_same_width(by: float) -> None:
    width = 2 ** round(4 * by)
    made = transforms._posterize((torch.arange(256) + 0.4).reshape(1, 16, 16) / 255, by)
    assert torch.equal(made.flatten(), torch.arange(256).div(width, rounding_mode="floor") / (256 // width - 1))


def test_an_inversion_begins_at_its_threshold() -> None:
    assert transforms._solarize(torch.tensor([0.5, 0.75, 1.0]), 0.25).tolist() == [0.5, 0.25, 0.0]


def test_a_histogram_is_made_even_over_the_levels_of_each_channel() -> None:
    image = torch.tensor([[[0.0, 1.0, 99.6, 100.4]], [[-30.0, 0.0, 255.0, 300.0]]]) / 255
    assert transforms._equalize(image, 1.0).tolist() == [[[0.25, 0.5, 1.0, 1.0]], [[0.5, 0.5, 1.0, 1.0]]]


def test_contrast_and_sharpness_move_away_from_the_mean_or_towards_it() -> None:
    image = torch.tensor([[[0.25, 0.75]]])
    assert transforms._contrast(image, 0.5).flatten().tolist() == pytest.approx([0.1375, 0.8625])
    assert transforms._contrast(image, -1.0).flatten().tolist() == pytest.approx([0.475, 0.525])
    dot = torch.zeros(2, 3, 3)
    dot[:, 1, 1] = 0.9
    assert transforms._sharpness(dot, 1.0)[0].flatten().tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert torch.allclose(transforms._sharpness(dot, -1.0), dot * 0.1 + 0.09)


def test_a_rotation_by_three_times_the_most_is_a_quarter_of_a_turn() -> None:
    image = torch.rand(3, 5, 5)
    assert torch.allclose(transforms._rotate(image, 3.0), image.rot90(1, (1, 2)), atol=1e-5)
    assert torch.allclose(transforms._rotate(image, -3.0), image.rot90(-1, (1, 2)), atol=1e-5)


def test_a_change_is_drawn_with_the_strength_and_either_sign() -> None:
    torch.manual_seed(0)
    image = torch.rand(1, 6, 6)
    for strength, by in ((10, 1.0), (5, 0.5), (0, 0.0)):
        known = [change(image, sign * by) for change in transforms._CHANGES for sign in (1, -1)]
        made = [transforms.RandAugment(1, strength)(image) for _ in range(30)]
        assert all(any(torch.equal(one, other) for other in known) for one in made)
        one_way = known[::2]
        assert all(any(torch.equal(one, other) for other in one_way) for one in made) == (strength == 0)
    for strength in (-0.1, 10.5):
        with pytest.raises(ConfigError, match=f"strength is {strength}; it goes from 0 to 10"):
            transforms.RandAugment(strength=strength)


def test_augmented_images_stay_images(tmp_path):
    from etude.data.transforms import RandAugment

    torch.manual_seed(0)
    image = torch.rand(3, 12, 12)
    changed = [RandAugment(count=2)(image) for _ in range(60)]
    assert all(one.shape == image.shape and float(one.min()) >= 0 and float(one.max()) <= 1 + 1e-6 for one in changed)
    assert sum(not torch.equal(one, image) for one in changed) > 50
    with pytest.raises(ConfigError, match="from 0 to 10"):
        RandAugment(strength=11)


def test_transforms_draw_by_epoch_and_sample():
    chain = Chain([RandomFlip(), RandomShift(1), Normalize([0.5], [0.25])])
    loader = Loader(Transformed(Digits("val", flat=False), chain), batch_size=360)
    (first,), (second,) = list(loader), list(loader)
    assert first[0].shape == (360, 1, 8, 8) and first[0].min() == -2.0
    assert torch.equal(first[1], second[1]) and not torch.equal(first[0], second[0])
    loader.set_epoch(0)
    (again,) = list(loader)
    assert torch.equal(again[0], first[0])
