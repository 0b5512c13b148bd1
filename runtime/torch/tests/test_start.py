"""How the recorder is loaded into a process, and that nothing else in it changes."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import Any, Dict

import pytest

from conftest import FAKE_TORCH, Job
from stplan import STACKS, SettingsError, record
from stplan._settings import ENVIRONMENT, Settings


def with_sitecustomize(job: Job, text: str) -> Dict[str, str]:
    """The environment of a recorded job that has a sitecustomize module of its own."""
    other = job.folder / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text(text)
    env = job.environment()
    env["PYTHONPATH"] += os.pathsep + str(other)
    return env


def test_the_next_sitecustomize_on_the_path_runs_too(job: Job) -> None:
    env = with_sitecustomize(job, "import torch\ntorch.empty(5)\nNAME = 'other'\n")
    process = job.start("import sitecustomize\nprint(sitecustomize.NAME)", env)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "other\n"), err
    # It used CUDA before the script began, and its allocation is recorded.
    assert job.said()[0]["allocations"] == 1


HIDES = """
import sys
from importlib.machinery import PathFinder

class Finder:
    def find_spec(self, name, path=None, target=None):
        return PathFinder.find_spec(name, path) if name == "torch" else None

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("before", ["", "import torch\n"])
def test_a_finder_that_asks_no_other_one_hides_nothing(job: Job, before: str) -> None:
    env = with_sitecustomize(job, HIDES + before)
    process = job.start("import torch, _json, xml.dom\ntorch.empty(5)\nprint('trained')", env)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "trained\n"), err
    assert job.said()[0]["allocations"] == 1


def test_the_path_is_the_scripts_own(job: Job) -> None:
    done = job.run("import sys\nprint(sys.path[1])\nprint('stplan' in sys.modules)")
    assert done.stdout.splitlines()[0] == str(FAKE_TORCH)


@pytest.mark.parametrize(
    "settings",
    ["not json", "[]", "{}", '{"directory": "/nowhere at all", "steps": 4, "stacks": "none"}'],
)
def test_the_job_runs_if_its_settings_are_bad(job: Job, settings: str) -> None:
    env = {**job.environment(), ENVIRONMENT: settings}
    process = job.start("import torch\ntorch.empty(1)\nprint('trained')", env)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "trained\n")
    assert err.startswith("stplan: cannot record this process: STPLAN_RECORD: ")
    assert err.count("\n") == 1


def test_without_settings_nothing_happens(job: Job) -> None:
    env = job.environment()
    del env[ENVIRONMENT]
    process = job.start("import torch\ntorch.empty(1)", env)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0


@pytest.mark.parametrize(
    "settings, problem",
    [
        ({"steps": -1}, "steps: expected an integer of at least 0, found -1"),
        ({"steps": True}, "steps: expected an integer of at least 0, found True"),
        ({"steps": "4"}, "steps: expected an integer of at least 0, found '4'"),
        ({"stacks": "some"}, "stacks: expected one of none, python, all, found 'some'"),
        ({"directory": "/nowhere at all"}, "directory: expected an existing folder, found '/nowhere at all'"),
        ({"reports": 5}, "reports: expected an existing folder, found 5"),
        ({"colour": "red"}, "unexpected keyword argument 'colour'"),
    ],
)
def test_settings_are_checked(tmp_path: Path, settings: Any, problem: str) -> None:
    good = {"directory": str(tmp_path), "steps": 4, "stacks": "none"}
    assert Settings.from_environment({ENVIRONMENT: json.dumps(good)}) == Settings(str(tmp_path), 4, "none")
    with pytest.raises(SettingsError) as caught:
        Settings.from_environment({ENVIRONMENT: json.dumps({**good, **settings})})
    assert problem in str(caught.value)


def test_record_checks_its_arguments(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="stacks: expected one of " + ", ".join(STACKS)):
        record(str(tmp_path), stacks="some")


def test_a_launcher_inside_a_launcher(job: Job) -> None:
    """The process is recorded once, by the settings of the inner launcher."""
    env = job.environment()
    env["PYTHONPATH"] = env["PYTHONPATH"].split(os.pathsep)[0] + os.pathsep + env["PYTHONPATH"]
    process = job.start("import torch\ntorch.empty(1)", env)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert len(job.said()) == 1
    assert err.count("0 steps, 1 allocation;") == 1


def test_an_import_of_torch_that_fails_may_be_repeated(job: Job, tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "torch"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('no library')")
    done = job.run(
        textwrap.dedent(f"""
            import sys
            sys.path.insert(0, {str(broken.parent)!r})
            try:
                import torch
            except ImportError as error:
                print(error)
            sys.path.pop(0)
            import torch
            torch.empty(1)
            """)
    )
    assert (done.returncode, done.stdout) == (0, "no library\n"), done.stderr
    assert job.said()[0]["state"] == "written"


def test_looking_for_torch_without_importing_it(job: Job) -> None:
    done = job.run(
        "import importlib.util, sys\n"
        "print(importlib.util.find_spec('torch') is not None, 'torch' in sys.modules)\n"
        "import torch\ntorch.empty(1)\n"
    )
    assert (done.returncode, done.stdout) == (0, "True False\n"), done.stderr
    assert job.said()[0]["allocations"] == 1


def test_the_real_torch(job: Job) -> None:
    """Needs torch and a GPU."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    env = job.environment(steps=3)
    env["PYTHONPATH"] = env["PYTHONPATH"].replace(str(FAKE_TORCH), "")
    process = job.start(
        textwrap.dedent("""
            import torch
            model = torch.nn.Linear(64, 64).cuda()
            optimizer = torch.optim.AdamW(model.parameters())
            for _ in range(5):
                model(torch.randn(8, 64, device="cuda")).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            """),
        env,
    )
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    (report,) = job.said()
    assert (report["state"], report["steps"], report["why"]) == ("written", 3, "")
