"""How a process of `stplan run` is served, and that nothing else in it changes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from conftest import FAKE_TORCH, Job
from stplan._run import before_cuda, choose
from stplan._settings import RUN_ENVIRONMENT, RunSettings, SettingsError

TRAINS = "import torch\ntorch.empty(1)\nprint('trained')"


def test_a_process_is_served_and_reported(job: Job) -> None:
    done = job.run_served(TRAINS, RANK="3", COUNTERS='{"0": {"allocations": 1}}')
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "asked 3: None auto\n")
    report = json.loads((job.reports / "train-rank3.json").read_text())
    assert report.pop("pid") > 0
    assert report == {
        "state": "serving", "name": "train-rank3", "rank": "3", "plan": None, "without": "", "cached": None, "similar": False, "call": [],
        "backend": "shim",
    }
    assert (job.reports / "train-rank3.device0").stat().st_size > 0


def test_moving_is_asked_for(job: Job) -> None:
    done = job.finish(job.start(TRAINS, {**job.run_environment(move="off"), "RANK": "3"}))
    assert (done.returncode, done.stderr) == (0, "asked 3: None auto, move off\n")


def test_it_waits_for_cuda(job: Job) -> None:
    """The stand-in asserts that torch is imported and CUDA is not initialised."""
    done = job.run_served("import torch\nprint(torch.cuda.device_count())\n")
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert job.said() == []


def test_torchs_function_is_put_back(job: Job) -> None:
    done = job.run_served(
        "import torch\nhooked = torch._C._cuda_init\ntorch.cuda.init()\n"
        "print(hooked is torch._C._cuda_init, torch._C._cuda_init.__module__)\n"
    )
    assert done.stdout == "False torch._C\n", done.stderr


def test_without_a_device_nothing_happens(job: Job) -> None:
    done = job.run_served("import torch\ntorch.cuda.devices = 0\ntorch.cuda.init()\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert job.said() == []


def test_a_torch_without_cuda_is_left_alone() -> None:
    torch = SimpleNamespace(_C=SimpleNamespace())
    before_cuda(torch, lambda: pytest.fail("called"))
    assert vars(torch._C) == {}


def test_a_process_that_cannot_be_served_trains_without_stplan(job: Job) -> None:
    done = job.run_served(TRAINS, REFUSE="no compiler")
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr == "stplan: cannot serve this process, PyTorch's own allocator stays: no compiler\n"
    (report,) = job.said()
    assert (report["state"], report["error"]) == ("failed", "no compiler")


def test_the_job_runs_if_its_report_cannot_be_written(job: Job) -> None:
    env = job.run_environment()
    script = f"import shutil\nshutil.rmtree({str(job.reports)!r})\n{TRAINS}"
    done = job.finish(job.start(script, env))
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr.startswith("stplan: cannot serve this process, PyTorch's own allocator stays: FileNotFoundError: ")


def test_a_rank_may_have_zeros_before_it(job: Job) -> None:
    (job.folder / "job-rank007.bin").touch()
    env = job.run_environment(plan=str(job.folder / "job-rank"), by_rank=True)
    done = job.finish(job.start("import os, torch\nos.environ['RANK'] = '7'\ntorch.empty(1)", env))
    assert done.stderr == "asked 7: job-rank007.bin auto\n"


def test_the_rank_is_read_when_cuda_is_initialised(job: Job) -> None:
    """A process that multiprocessing starts may set its rank itself."""
    for rank in "12":
        (job.folder / f"job-rank{rank}.bin").touch()
    env = job.run_environment(plan=str(job.folder / "job-rank"), by_rank=True)
    done = job.finish(job.start("import os, torch\nos.environ['RANK'] = '2'\ntorch.empty(1)", env))
    assert done.stderr == "asked 2: job-rank2.bin auto\n"


RANKS_OF_THEIR_OWN = """
import multiprocessing
import torch

def train(rank):
    torch.distributed.init_process_group(rank)
    torch.empty(1)

if __name__ == "__main__":
    for rank in (1, 0):
        child = multiprocessing.get_context("{method}").Process(target=train, args=(rank,))
        child.start(); child.join()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("local", [None, "0"])
def test_a_rank_that_only_the_process_group_knows(job: Job, method: str, local: Optional[str]) -> None:
    asked = (1, 0)
    for rank in asked:
        (job.folder / f"job-rank{rank}.bin").touch()
    env = job.run_environment(plan=str(job.folder / "job-rank"), by_rank=True)
    if local is not None:
        env["LOCAL_RANK"] = local  # the rank on one node; the process group's rank comes first
    done = job.finish(job.start(RANKS_OF_THEIR_OWN.format(method=method), env))
    assert done.stderr == "".join(f"asked None: job-rank{rank}.bin auto\n" for rank in asked)
    assert [(r["name"], r["rank"]) for r in job.said()] == [("train-rank0", "0"), ("train-rank1", "1")]


def test_a_helper_of_a_rank_that_only_the_process_group_knows(job: Job) -> None:
    script = """
import subprocess, sys, torch
if len(sys.argv) == 1:
    torch.distributed.init_process_group(3)
torch.empty(1)
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "helper"], check=True)
"""
    env = {**job.run_environment(plan=str(job.folder / "plan.bin")), "COUNTERS": '{"0": {}}'}
    done = job.finish(job.start(script, env))
    assert done.stderr == "asked None: plan.bin auto\nasked None: None auto\n"


def test_a_forked_child_that_uses_cuda_before_its_parent_is_served(job: Job) -> None:
    script = """
import os, torch
if os.fork() == 0:
    torch.empty(1)
    os._exit(0)
os.wait()
torch.empty(1)
"""
    done = job.run_served(script, RANK="0")
    assert done.stderr == 2 * "asked 0: None auto\n"
    names = [report["name"] for report in job.said()]
    assert "train-rank0" in names and len(set(names)) == 2


def test_a_process_that_replaces_itself_is_served_again(job: Job) -> None:
    script = """
import os, sys, torch
torch.empty(1)
if len(sys.argv) < 3:
    os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
"""
    env = {**job.run_environment(plan=str(job.folder / "plan.bin")), "RANK": "0", "COUNTERS": '{"0": {}}'}
    done = job.finish(job.start(script, env))
    assert done.stderr == 3 * "asked 0: plan.bin auto\n"
    assert len(job.said()) == 3


def test_a_process_killed_during_installation_leaves_a_report(job: Job) -> None:
    script = """
import os, sys, torch
sys.modules["stplan._serving"].install = lambda *_: os.kill(os.getpid(), 9)
torch.empty(1)
"""
    assert job.run_served(script).returncode == -9
    (report,) = job.said()
    assert report["state"] == "installing"


def test_recorded_and_served_at_once(job: Job) -> None:
    served = job.folder / "served"
    served.mkdir()
    env = {**job.run_environment(reports=str(served)), **job.environment()}
    env["PYTHONPATH"] = job.run_environment()["PYTHONPATH"]
    done = job.finish(job.start(TRAINS, env))
    assert done.returncode == 0
    assert done.stderr.startswith("asked None: None auto\nstplan: ")
    (report,) = job.said()
    assert (report["state"], report["allocations"]) == ("written", 1)


@pytest.mark.parametrize("settings", ["not json", "[]", "{}"])
def test_the_job_runs_if_its_settings_are_bad(job: Job, settings: str) -> None:
    done = job.run_served(TRAINS, STPLAN_RUN=settings)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr.startswith("stplan: cannot serve this process: STPLAN_RUN: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "settings, problem",
    [
        ({"plan": 5}, "plan: expected a path or null, found 5"),
        ({"by_rank": 1}, "by_rank: expected true or false, and false without a plan, found 1"),
        ({"plan": None, "by_rank": True}, "by_rank: expected true or false, and false without a plan, found True"),
        ({"memory": 5}, "memory: expected a name, found 5"),
        ({"move": False}, "move: expected a name, found False"),
        ({"reports": None}, "reports: expected an existing folder, found None"),
        ({"plan": None, "cache": "/nowhere"}, "cache: expected an existing folder, found '/nowhere'"),
        ({"cache": "/"}, "cache: expected none with a plan, found '/'"),
        ({"versions": 5}, "versions: expected a text, found 5"),
        ({"learn": 4}, "learn: expected an integer of at least 0, and 0 without a cache, found 4"),
        ({"plan": None, "cache": "/", "learn": True}, "learn: expected an integer of at least 0, and 0 without a cache, found True"),
    ],
)
def test_settings_are_checked(tmp_path: Path, settings: Any, problem: str) -> None:
    good = {"plan": "plan.bin", "by_rank": False, "memory": "auto", "move": "off", "reports": str(tmp_path)}
    found = RunSettings.from_environment({RUN_ENVIRONMENT: json.dumps(good)})
    assert found == RunSettings("plan.bin", False, "auto", "off", str(tmp_path))
    with pytest.raises(SettingsError) as caught:
        RunSettings.from_environment({RUN_ENVIRONMENT: json.dumps({**good, **settings})})
    assert problem in str(caught.value)


def test_plans_by_rank(tmp_path: Path) -> None:
    (tmp_path / "train-rank1.bin").touch()
    settings = RunSettings(str(tmp_path / "train-rank"), True, "auto", "auto", str(tmp_path))
    assert choose(settings, "1") == (str(tmp_path / "train-rank1.bin"), "")
    assert choose(settings, "2") == (None, "no plan for its rank")
    assert choose(settings, None) == (None, "no rank to choose its plan by (RANK, LOCAL_RANK or torch.distributed)")
    assert choose(RunSettings("plan.bin", False, "auto", "auto", ""), "7") == ("plan.bin", "")
    assert choose(RunSettings(None, False, "auto", "auto", ""), "7") == (None, "")


@pytest.mark.parametrize(
    "uses, rank, asked",
    [
        ("torch.empty(1)", None, "None"),  # a helper of the process that trains
        ("torch.empty(1)", "1", "plan.bin"),  # a process with a rank of its own
        ("torch.cuda.init()", None, "plan.bin"),  # the parent has allocated nothing
    ],
)
def test_a_process_started_by_one_with_a_plan(job: Job, uses: str, rank: Optional[str], asked: str) -> None:
    script = f"""
import os, subprocess, sys, torch
{uses}
if len(sys.argv) == 1:
    own = {{**os.environ, **({{"RANK": "{rank}"}} if {rank} else {{}})}}
    subprocess.run([sys.executable, __file__, "helper"], env=own, check=True)
"""
    counters = "{}" if "init" in uses else '{"0": {}}'
    env = {**job.run_environment(plan=str(job.folder / "plan.bin")), "COUNTERS": counters}
    done = job.finish(job.start(script, env))
    assert done.stderr == f"asked None: plan.bin auto\nasked {rank}: {asked} auto\n"
    reasons = {report["without"] for report in job.said()}
    assert any(reason.startswith("it was started by train-pid") for reason in reasons) == (asked == "None")


@pytest.mark.parametrize(
    "use", ["torch.empty(1, device='cuda')", "torch.cuda.init()", "torch.cuda.current_stream()"]
)
def test_the_real_torch_calls_the_hook(job: Job, use: str) -> None:
    """Needs torch. Without a GPU `use` fails after the hook was called."""
    pytest.importorskip("torch", reason="torch is not installed")
    env = job.run_environment()
    env["PYTHONPATH"] = env["PYTHONPATH"].replace(str(FAKE_TORCH), "")
    script = f"""
import torch
torch.cuda.device_count = lambda: 1
try:
    {use}
except Exception as error:
    print(error)
"""
    done = job.finish(job.start(script, env))
    assert done.returncode == 0
    assert done.stderr == "asked None: None auto\n"
