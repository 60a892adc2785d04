"""What launchers put into the environment, as torch reads it."""

from __future__ import annotations

import os

import pytest

from etude_openmm.shared.live import processes

SLURM = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_NODELIST": "gpu[007-009]"}
MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}


@pytest.mark.parametrize(
    ("launcher", "given", "expected"),
    [
        ("slurm", SLURM, ("5", "8", "1", "gpu007", "29500")),
        ("slurm", {**SLURM, "MASTER_ADDR": "here", "MASTER_PORT": "1"}, ("5", "8", "1", "here", "1")),
        ("mpi", {**MPI, "MASTER_ADDR": "there"}, ("3", "4", "1", "there", "29500")),
    ],
)
def test_torch_finds_rank_size_and_meeting_place(
    launcher: str, given: dict[str, str], expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(given))
    processes._announce(launcher, None)
    assert (
        tuple(os.environ[key] for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")) == expected
    )


def test_a_port_of_the_config_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {**SLURM, "MASTER_PORT": "1"})
    processes._announce("slurm", 23456)
    assert os.environ["MASTER_PORT"] == "23456"


def test_without_a_meeting_place_mpi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(MPI))
    with pytest.raises(KeyError, match="MASTER_ADDR"):
        processes._announce("mpi", None)


def test_an_unknown_launcher_is_refused() -> None:
    with pytest.raises(ValueError, match="Invalid launcher type: 'ray'"):
        processes.join("ray", "gloo")
