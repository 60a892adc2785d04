"""Tests of :mod:`etude.dist.layout.mesh`."""

from __future__ import annotations

from itertools import product

import pytest

from etude.dist.layout.mesh import AXES, Mesh
from etude.dist.world import World


@pytest.mark.parametrize(("copy", "tensor", "pipeline"), product([1, 2], [1, 2], [1, 3]))
def test_every_rank_has_a_place_of_its_own_and_the_last_axis_changes_fastest(copy, tensor, pipeline):
    size = copy * tensor * pipeline
    ranks = [Mesh(rank, copy=copy, tensor=tensor, pipeline=pipeline) for rank in range(size)]
    places = [tuple(mesh.place[axis] for axis in AXES) for mesh in ranks]
    assert places == sorted(set(places)) and all(mesh.size == size for mesh in ranks)
    assert {mesh.share for mesh in ranks} == {(number, copy) for number in range(copy)}
    assert sum(mesh.counts for mesh in ranks) == copy  # one rank of each share is counted
    assert all(mesh.is_split == (tensor * pipeline > 1) for mesh in ranks)


def test_tensor_parallel_ranks_draw_the_same_numbers_and_others_their_own():
    streams = [Mesh(rank, copy=2, tensor=2).stream for rank in range(4)]
    assert [(one.rank, one.size) for one in streams] == [(0, 2), (0, 2), (1, 2), (1, 2)]


def test_parts_of_sequences_make_gradients_of_their_own():
    assert [Mesh(rank, copy=2, context=2).gradient for rank in range(4)] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert Mesh.flat(World(rank=2, size=3)).share == (2, 3)
