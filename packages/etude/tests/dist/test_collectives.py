"""Who is to blame for a hang, from the collectives that each rank has begun."""

from __future__ import annotations

import json

import pytest

from etude.dist.jobs import collectives, reports
from tests.dist import project

WORDS = ("train", "config.yaml", "-q", "--folder")


def told(*calls, group="0", ranks=(0, 1)):
    """What a rank leaves: calls are a number, words, and whether it waits there."""
    return json.dumps({group: [list(ranks), [list(call) for call in calls]]})


def both(*texts):
    """What a rank leaves that is in several groups."""
    return json.dumps({name: value for text in texts for name, value in json.loads(text).items()})


REDUCE, OTHER = "all_reduce float32[8]", "broadcast float32[8]"


def test_the_rank_that_did_not_come_is_named_with_the_collective():
    verdict = collectives.judge({0: told((1, REDUCE, False), (2, OTHER, True)), 1: told((1, REDUCE, False))})
    assert verdict == ([1], f"rank 1 did not come to collective 2 ({OTHER}), where rank 0 waits")
    third = {rank: told((5, REDUCE, rank != 2), ranks=(0, 1, 2)) for rank in (0, 1)}
    verdict = collectives.judge({**third, 2: told((4, REDUCE, False), ranks=(0, 1, 2))})
    assert verdict == ([2], f"rank 2 did not come to collective 5 ({REDUCE}), where each of ranks 0, 1 waits")


def test_the_first_collective_on_which_ranks_disagree_is_named():
    verdict = collectives.judge(
        {0: told((1, REDUCE, False), (2, REDUCE, True)), 1: told((1, REDUCE, False), (2, OTHER, True))}
    )
    assert verdict == (
        [0, 1],
        f"the ranks disagree on collective 2 of their group: rank 0 calls {REDUCE}; rank 1 calls {OTHER}",
    )
    uneven = {0: told((1, "all_gather float32[8]", True)), 1: told((1, "all_gather float32[9]", True))}
    assert collectives.judge(uneven) is None


def test_ranks_that_wait_for_each_other_in_two_groups_are_both_named():
    one = both(told((3, REDUCE, True)), told((1, OTHER, False), group="1"))
    other = both(told((2, REDUCE, False)), told((2, OTHER, True), group="1"))
    verdict = collectives.judge({0: one, 1: other})
    assert verdict is not None and verdict.ranks == [0, 1] and "; " in verdict.why


def test_a_rank_that_waits_for_a_third_one_is_not_to_blame():
    texts = {
        0: told((3, REDUCE, True)),
        1: both(told((2, REDUCE, False)), told((7, OTHER, True), group="1", ranks=(1, 2))),
        2: told((6, OTHER, False), group="1", ranks=(1, 2)),
    }
    verdict = collectives.judge(texts)
    assert verdict is not None and verdict.ranks == [2]


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"0": 3}', '{"0": [[0], [["x", 1]]]}'])
def test_what_is_cut_or_no_report_blames_nobody(text):
    assert collectives.judge({0: text, 1: told((1, REDUCE, True))}) is None
    assert collectives.last(0, text) == []


def test_a_rank_that_moves_is_never_blamed():
    beats = [
        reports.Beat(0, 1, reports.time.monotonic(), still=9.0, doing="waits", waiting=True, calls=told((2, REDUCE, True))),
        reports.Beat(1, 2, reports.time.monotonic(), still=1.0, doing="trains", calls=told((1, REDUCE, False))),
    ]  # fmt: skip
    assert reports.judge(beats, 5.0) == ([], "")
    beats[1] = reports.replace(beats[1], still=4.0)
    guilty, why = reports.judge(beats, 5.0)
    assert [beat.rank for beat in guilty] == [1] and "did not come" in why


def test_ranks_that_call_different_collectives_are_told_so(jobs, tmp_path):
    project.make(tmp_path, hooks=[{"type": "job.Apart", "every": "3step"}])
    job = jobs.run(*WORDS, "apart", cwd=tmp_path, code=8, hang_timeout=4.0)
    assert "the ranks disagree on collective" in job.output
    assert "rank 0 calls all_reduce float32[4]" in job.output and "rank 1 calls broadcast float32[4]" in job.output
    assert job.output.count("dist.all_reduce") + job.output.count("distributed.all_reduce") >= 1
