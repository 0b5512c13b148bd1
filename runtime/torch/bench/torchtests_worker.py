"""Runs tests of one file in this process, and writes what happens to a file.

    python torchtests_worker.py REQUEST.json

torchtests.py starts it. Each event is one line of JSON that is written at once, so that
what happened before the process died is known. The request's fields:

    file      the test file
    tests     names of the tests to run, in this order; null to list all of them
    events    the file to write to
    log       the file that this process's output goes to
    preload   modules to import first
    wait      whether to wait for a line on standard input before the file is imported
    forks     whether the processes that tests spawn come from a server that has imported
              the file (fork_server)

A test's name is CLASS.METHOD. Only the standard library is imported before `preload`,
because under `stplan run` this process is a job like any other. A process that a test
spawns imports this file again, as the main module of its parent.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.abc
import importlib.machinery
import inspect
import io
import json
import linecache
import multiprocessing
import os
import resource
import sys
import time
import traceback
import types
import unittest
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

# Characters of a failure's text that are passed on; the end of the text is kept.
TEXT = 4000

# Names that files of torch 2.4 import and later releases do not have: those that have got
# another name, by module, and modules that are gone.
RENAMED = {
    "torch.testing._internal.inductor_utils": {"HAS_CUDA": "HAS_CUDA_AND_TRITON"},
    "torch.testing._internal.common_distributed": {"skip_if_rocm": "skip_if_rocm_multiprocess"},
}
GONE = ("torch.distributed._spmd", "torch.distributed._spmd.comm_tensor")


class OldNames(importlib.abc.MetaPathFinder):
    """Finds the modules of RENAMED, and adds the old names to them."""

    def find_spec(self, name: str, path: Optional[Sequence[str]], target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name in RENAMED else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            for old, new in RENAMED[name].items():
                if not hasattr(module, old) and hasattr(module, new):
                    setattr(module, old, getattr(module, new))

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class GoneModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of GONE if no other finder has. A test that calls anything of
    them is skipped."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name in GONE else None

    def exec_module(self, module: types.ModuleType) -> None:
        def skip(*arguments: Any, **options: Any) -> Any:
            raise unittest.SkipTest(f"the installed torch has no {module.__name__}")

        def __getattr__(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return skip

        module.__getattr__ = __getattr__  # type: ignore[method-assign]


# Here and not in main, because the processes that a test spawns import this file too.
sys.meta_path.insert(0, OldNames())
sys.meta_path.append(GoneModules())


class Events:
    """The file of events. A child that a test forked has a copy of this object, and may
    come through the same code: it writes nothing."""

    def __init__(self, path: str, log: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self._log = log
        self._pid = os.getpid()

    def say(self, event: str, **more: Any) -> None:
        if os.getpid() == self._pid:
            os.write(self._file, json.dumps({"event": event, **more}).encode() + b"\n")

    def written(self) -> int:
        """The length of the output so far, in bytes."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):
                continue  # a test has closed it or put something else in its place
        return os.stat(self._log).st_size


class Result(unittest.TestResult):
    """Reports each test when it begins and when it ends."""

    def __init__(self, events: Events, names: Dict[int, str]) -> None:
        """names: the tests' names, by the id of the test object."""
        super().__init__()
        self._events = events
        self._names = names
        self._outcome, self._why, self._text = "", "", ""
        self._begin = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._outcome, self._why, self._text = "", "", ""
        self._events.say("begin", test=self._name(test), log=self._events.written())
        self._begin = time.monotonic()

    def stopTest(self, test: unittest.TestCase) -> None:
        seconds = time.monotonic() - self._begin
        super().stopTest(test)
        self._events.say(
            "end",
            test=self._name(test),
            outcome=self._outcome or "passed",
            why=self._why,
            text=self._text[-TEXT:],
            seconds=round(seconds, 3),
            log=self._events.written(),
        )

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        if not self._fixture(test, "skipped", reason, ""):
            self._outcome = self._outcome or "skipped"
            self._why = self._why or reason

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._failed(test, err)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._failed(test, err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._failed(test, err)

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        super().addUnexpectedSuccess(test)
        self._outcome, self._why = "failed", "unexpected success"

    def _failed(self, test: unittest.TestCase, err: Any) -> None:
        text = "".join(traceback.format_exception(*err))
        if self._fixture(test, "failed", short(err), text):
            return
        if self._outcome != "failed":  # of several failures the first counts
            self._outcome, self._why, self._text = "failed", short(err), text

    def _fixture(self, test: Any, outcome: str, why: str, text: str) -> bool:
        """Reports the failure of a setUpClass and the like. unittest passes an object
        with a description, such as "setUpClass (module.Class)", in place of a test."""
        if isinstance(test, unittest.TestCase):
            return False
        self._events.say("fixture", what=str(test), outcome=outcome, why=why, text=text[-TEXT:])
        return True

    def _name(self, test: unittest.TestCase) -> str:
        return self._names.get(id(test), test.id())


def short(err: Any) -> str:
    """The exception on one line, without PyTorch's advice how to repeat the test."""
    text = "".join(traceback.format_exception_only(err[0], err[1]))
    for advice in ("\nTo execute this test, run", "\nThis message can be suppressed", "\nException raised from"):
        text = text.split(advice)[0]
    return " ".join(text.split())[:300]


def load(path: str) -> Any:
    """Imports the file. It is not the main module, so that processes which a test spawns
    find its classes by their module's name."""
    module = importlib.import_module(Path(path).stem)
    # PyTorch's run_tests calls this; some of its settings have no usable default.
    common = sys.modules.get("torch.testing._internal.common_utils")
    if common is not None and hasattr(common, "parse_cmd_line_args"):
        common.parse_cmd_line_args()
    return module


def tests_of(module: Any) -> Dict[str, unittest.TestCase]:
    """The tests of a module by name, in the order of unittest's loader, which follows the
    module's load_tests. A class that the module has under two names counts once."""
    loader = unittest.TestLoader()
    found: Dict[str, unittest.TestCase] = {}
    for test in flat(loader.loadTestsFromModule(module)):
        cls = type(test)
        name = f"{cls.__qualname__}.{test._testMethodName}"
        if name in found and type(found[name]) is not cls:
            name = f"{cls.__module__}.{name}"
        found.setdefault(name, test)
    if loader.errors:
        raise ImportError(loader.errors[0])
    return found


def flat(suite: Any) -> Iterator[unittest.TestCase]:
    for item in suite:
        if isinstance(item, unittest.TestCase):
            yield item
        else:
            yield from flat(item)


def decorators(test: unittest.TestCase) -> List[str]:
    """The lines between the first decorator of the test's function and its "def", read
    from the source, and the names of its pytest marks. (serialTest leaves no mark if
    pytest is not installed, and largeTensorTest never does.)"""
    method = getattr(test, test._testMethodName)
    marks = [f"@{mark.name}" for mark in getattr(method, "pytestmark", [])]
    code = getattr(inspect.unwrap(method), "__code__", None)
    if code is None:
        return marks
    lines = []
    for line in linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]:
        if line.lstrip().startswith(("def ", "async def ")):
            break
        if not line.lstrip().startswith("#"):
            lines.append(line.strip())
    return lines + marks


def fork_server(module: str, preloaded: Sequence[str]) -> bool:
    """Lets the processes of torch's MultiProcessTestCase be forked from a server that has
    imported the test's module: the import takes much longer than most tests do. A child is
    tried first, because CUDA cannot be used in a child of a process that has used it, and
    importing the file may. Returns whether children come from the server."""
    common = importlib.import_module("torch.testing._internal.common_distributed")
    # Otherwise torch asks CUDA, and not NVML, whether there is a device.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*preloaded, module])
    trial = context.Process(target=uses_cuda)
    trial.start()
    trial.join()
    if trial.exitcode != 0:
        return False
    common.MultiProcessTestCase._spawn_processes = lambda self: self._start_processes(context.Process)
    return True


def uses_cuda() -> None:
    torch = sys.modules["torch"]
    torch.zeros(1, device="cuda").item()


def preload(names: List[str]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            continue


def run(request: Dict[str, Any], events: Events) -> None:
    try:
        module = load(request["file"])
        found = tests_of(module)
        if request["forks"] and request["tests"] is not None and not fork_server(module.__name__, request["preload"]):
            print("torchtests: the processes of tests are spawned, because a forked one cannot use CUDA")
    except unittest.SkipTest as skip:
        events.say("unloadable", outcome="skipped", why=str(skip), text="")
        return
    except BaseException as error:  # SystemExit too: some files end so if they cannot run
        events.say("unloadable", outcome="failed", why=short((type(error), error)), text=traceback.format_exc()[-TEXT:])
        return
    asked: Optional[List[str]] = request["tests"]
    if asked is None:
        listed: List[Tuple[str, List[str]]] = [(name, decorators(test)) for name, test in found.items()]
        events.say("listed", tests=listed)
        return
    events.say("loaded", missing=[name for name in asked if name not in found])
    chosen = [(name, found[name]) for name in asked if name in found]
    names = {id(test): name for name, test in chosen}
    unittest.TestSuite(test for _, test in chosen).run(Result(events, names))


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    events = Events(request["events"], request["log"])
    events.say("started", pid=os.getpid())
    faulthandler.enable()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # so that the last lines of a death are known
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    # As if Python had been called with the file: this file's folder is not on the path.
    sys.argv = [request["file"]]
    sys.path[0] = os.path.dirname(request["file"])
    preload(request["preload"])
    if request["wait"]:
        events.say("ready")
        os.read(0, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    events.say("going")
    run(request, events)
    events.say("done")


if __name__ == "__main__":
    main()
