"""How many processors there are for us: the smallest of what affinity and control groups allow."""

from __future__ import annotations

import os
from pathlib import Path

from shunter.deploy import cpus


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def quota(tmp_path: Path, own: str) -> float | None:
    write(tmp_path / "own", own)
    return cpus._cgroup_quota(str(tmp_path / "sys"), str(tmp_path / "own"))


def test_no_limit__none(tmp_path: Path) -> None:
    write(tmp_path / "sys/cpu.max", "max 100000\n")

    assert quota(tmp_path, "0::/\n") is None


def test_container_with_quota__its_share(tmp_path: Path) -> None:
    write(tmp_path / "sys/cpu.max", "150000 100000\n")

    assert quota(tmp_path, "0::/\n") == 1.5


def test_nested_group__smallest_quota_on_the_way_up(tmp_path: Path) -> None:
    write(tmp_path / "sys/a.slice/cpu.max", "200000 100000\n")
    write(tmp_path / "sys/a.slice/b.service/cpu.max", "max 100000\n")

    assert quota(tmp_path, "0::/a.slice/b.service\n") == 2.0


def test_version_1__two_files(tmp_path: Path) -> None:
    write(tmp_path / "sys/cpu/docker/x/cpu.cfs_quota_us", "300000\n")
    write(tmp_path / "sys/cpu/docker/x/cpu.cfs_period_us", "100000\n")
    write(tmp_path / "sys/cpu/cpu.cfs_quota_us", "-1\n")
    write(tmp_path / "sys/cpu/cpu.cfs_period_us", "100000\n")

    assert quota(tmp_path, "12:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n") == 3.0


def test_no_control_groups__none(tmp_path: Path) -> None:
    assert cpus._cgroup_quota(str(tmp_path / "nowhere"), str(tmp_path / "nothing")) is None


def test_cpu_count__at_least_one_and_no_more_than_there_are() -> None:
    assert 1 <= cpus.cpu_count() <= (os.cpu_count() or 1)
