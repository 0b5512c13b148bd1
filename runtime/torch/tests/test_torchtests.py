"""torchtests.py, with a fake checkout, a fake stplan, and neither torch nor a device."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Tuple

import pytest

from benches import BENCH, cells

import torchtests
import torchtests_outcomes
import torchtests_pack
import torchtests_process
import torchtests_table
from torchtests_outcomes import ALONE, DIED, FAILED, HUNG, NOT_RUN, PASSED, SKIPPED, Ended, File, Outcome

# stplan run, with a summary as the real one writes it. The job sees its mode in MODE.
STPLAN = f"""#!{sys.executable}
import json, os, subprocess, sys
options, command = sys.argv[1:sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1:]
assert options[:2] == ["run", "-q"], options
mode = "no plan" if "--no-plan" in options else "plan"
if mode == "plan" and open(options[-1]).read() != "the plan":
    sys.exit("stplan: a broken plan")
code = subprocess.call(command, env={{**os.environ, "MODE": mode}})
device = {{"allocations": 10, "planned_allocations": 4, "refused_frees": 0}}
processes = [{{"backend": "shim", "error": None, "devices": [device]}}, {{"backend": None, "error": "no compiler", "devices": []}}]
with open(options[options.index("--summary") + 1], "w") as out:
    json.dump({{"processes": processes if not os.environ.get("IDLE") else []}}, out)
sys.exit(code if code >= 0 else 128 - code)
"""

# Imported by the test files. counted returns how often a test has begun before, in
# this mode.
HELPER = """
import os, signal, sys, time, unittest
from pathlib import Path

MODE = os.environ.get("MODE", "native")
SERVED = MODE != "native"

def counted(name):
    path = Path(os.environ["COUNTS"]) / f"{name} {MODE}"
    with open(path, "a") as file:
        file.write("x")
    return path.stat().st_size - 1

def die(number=signal.SIGSEGV):
    os.kill(os.getpid(), number)
"""

ROOT = "test/test_fake.py"


class Checkout:
    """A folder with test files, and torchtests.py's results for them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.out = folder / "checkout", folder / "out"
        for made in (self.folder / "test", self.out, folder / "counts"):
            made.mkdir(parents=True)
        (self.folder / "test" / "helper.py").write_text(HELPER)
        self.stplan, self.plan = folder / "stplan", folder / "plan.bin"
        self.stplan.write_text(STPLAN)
        self.stplan.chmod(0o755)
        self.plan.write_text("the plan")
        self.monkeypatch = monkeypatch
        monkeypatch.setenv("COUNTS", str(folder / "counts"))
        monkeypatch.setattr(torchtests, "about", lambda: "a fake")
        monkeypatch.setattr(torchtests_process, "GRACE", 1.0)
        monkeypatch.setattr(torchtests_process, "PRELOAD", ())

    def write(self, text: str, path: str = ROOT) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("from helper import *\n" + text)

    def call(self, *options: str, files: Iterable[str] = (ROOT,), served: bool = True) -> int:
        command = ["torchtests.py", str(self.folder), *files, "--out", str(self.out), *options]
        command += ["--stplan", str(self.stplan), "--plan", str(self.plan)] if served else []
        self.monkeypatch.setattr(sys, "argv", command)
        self.code = torchtests.main()
        return self.code

    @property
    def kept(self) -> Dict[str, Any]:
        kept: Dict[str, Any] = json.loads((self.out / "torchtests.json").read_text())
        return kept

    @property
    def document(self) -> List[str]:
        return (self.out / "torchtests.md").read_text().splitlines()

    def outcomes(self, test: str, mode: str = "native") -> List[str]:
        """A test's outcome in each run."""
        return [o["outcome"] for o in self.all(test, mode)]

    def all(self, test: str, mode: str = "native") -> List[Dict[str, Any]]:
        return [o for o in self.kept["outcomes"] if o["test"] == test and o["mode"] == mode]

    def differing(self) -> Dict[Tuple[str, str], Tuple[str, str]]:
        """The rows of the table of differences: runs and reason by test and mode."""
        begin = [i for i, row in enumerate(self.document) if row.startswith("| file | test |")]
        rows = [cells(row) for row in self.document[begin[0] + 2 :] if row.startswith("|")] if begin else []
        return {(row[1], row[2]): (row[3], row[4]) for row in rows}

    def row(self, path: str = ROOT) -> List[str]:
        """A file's row: its tests; passed, failed and skipped natively; what differs."""
        return next(cells(row)[1:] for row in self.document if row.startswith(f"| {path} | "))

    def complete(self, runs: int, modes: int = 3) -> None:
        """Nothing is lost or counted twice."""
        counts = Counter((o["file"], o["class"], o["test"], o["mode"], o["run"]) for o in self.kept["outcomes"])
        assert set(counts.values()) == {1}
        tests = {key[:3] for key in counts if key[1] != "(process)"}
        assert sum(key[1] != "(process)" for key in counts) == len(tests) * runs * modes
        assert len(tests) == sum(file["tests"] for file in self.kept["files"])


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    return Checkout(tmp_path, monkeypatch)


SAME = """
class TestSame(unittest.TestCase):
    def test_passes(self):
        print("quiet")
    def test_fails(self):
        self.fail("as everywhere | always")
    def test_is_skipped(self):
        self.skipTest("no reason")
    def test_expects_a_failure(self):
        pass
    @unittest.expectedFailure
    def test_fails_as_expected(self):
        self.fail()
    def test_with_parts(self):
        for part in range(3):
            with self.subTest(part=part):
                self.assertNotEqual(part, 1)
    def test_prints_much(self):
        for line in range(20000):
            print(f"line {line} " + 50 * "x")
        os.write(2, b"the last of much\\n")
        self.fail("much")
"""


def test_without_differences(checkout: Checkout) -> None:
    checkout.write(SAME)
    assert checkout.call("--runs", "2") == 0
    checkout.complete(2)
    assert checkout.row() == ["7", "3", "3", "1", "0 of 3", "0 of 3"]
    assert "What is good in every native run and not in another mode: nothing." in checkout.document
    assert checkout.document[-1] == "Problems: none."
    for mode in ("native", "no plan", "plan"):
        assert checkout.outcomes("test_fails_as_expected", mode) == [PASSED] * 2
        assert checkout.outcomes("test_with_parts", mode) == [FAILED] * 2
        assert checkout.outcomes("chunk 1", mode) == [PASSED] * 2
    (first, _) = checkout.all("test_prints_much")
    assert first["why"] == "AssertionError: much" and 5 <= len(first["output"]) <= torchtests_process.LINES
    assert any("line 19999" in line for line in first["output"]) or "the last of much" in first["output"]
    assert all(0 <= o["seconds"] < 60 for o in checkout.kept["outcomes"])
    # 6 processes counted: one for each run, and one for the second and third failure of
    # the reference, which runs under no stplan.
    assert checkout.kept["served"]["plan"]["allocations"] == 20
    assert "- plan: 2 processes used CUDA" not in checkout.document
    assert any(line.startswith("- plan: 4 processes used CUDA, 20 allocations, 0 refused frees; 2 were not served: no compiler") for line in checkout.document)


DIFFERENT = """
class TestDifferent(unittest.TestCase):
    def test_1_fails_served(self):
        self.assertFalse(SERVED, "served")
    def test_2_after_it(self):
        pass
    def test_3_dies_with_a_plan(self):
        print("about to die")
        if MODE == "plan":
            die()
    def test_4_after_the_death(self):
        pass
    def test_5_aborts_without_a_plan(self):
        if MODE == "no plan":
            os.write(2, b"terminate called after throwing an instance of 'c10::Error'\\n  what():  CUDA error: unspecified\\n")
            die(signal.SIGABRT)
    def test_6_leaves(self):
        if SERVED:
            os._exit(0)
    def test_7_is_skipped_served(self):
        if SERVED:
            self.skipTest("not with this allocator")
    def test_8_hangs_with_a_plan(self):
        if MODE == "plan":
            time.sleep(600)
    def test_9_last(self):
        pass
"""


def test_differences_are_reported_and_take_no_other_test_along(checkout: Checkout) -> None:
    checkout.write(DIFFERENT)
    assert checkout.call("--runs", "2", "--test-limit", "3") == 1
    checkout.complete(2)
    found = checkout.differing()
    name = "TestDifferent.test_"
    assert found.pop((f"{name}1_fails_served", "plan")) == ("2 of 2", "failed: AssertionError: True is not false : served")
    assert found.pop((f"{name}1_fails_served", "no plan"))[0] == "2 of 2"
    runs, why = found.pop((f"{name}3_dies_with_a_plan", "plan"))
    assert runs == "2 of 2" and re.match(r"died: signal 11 \(SIGSEGV\): File .*helper.py.*, line \d+ in die", why), why
    assert found.pop((f"{name}5_aborts_without_a_plan", "no plan")) == ("2 of 2", "died: signal 6 (SIGABRT): what(): CUDA error: unspecified")
    for mode in ("no plan", "plan"):
        assert found.pop((f"{name}6_leaves", mode))[1].startswith("died: exit code 0")
        assert found.pop((f"{name}7_is_skipped_served", mode)) == ("2 of 2", "skipped: not with this allocator")
    assert found.pop((f"{name}8_hangs_with_a_plan", "plan")) == ("2 of 2", "hung: still running after 3 s")
    assert found == {}
    assert checkout.row() == ["9", "9", "0", "0", "4 of 9", "5 of 9"]
    (died, _) = checkout.all("test_3_dies_with_a_plan", "plan")
    assert "about to die" in died["output"] and died["chunk"] == "chunk 1"
    (hung, _) = checkout.all("test_8_hangs_with_a_plan", "plan")
    assert 3 <= hung["seconds"] < 30 and any("time.sleep" in line or "in test_8_hangs" in line for line in hung["output"])


POISON = """
poisoned = False

class TestPoison(unittest.TestCase):
    def setUp(self):
        if poisoned:
            self.fail("a sticky error")
    def test_1(self):
        pass
    def test_2_poisons(self):
        global poisoned
        poisoned = MODE in WHERE
        self.assertFalse(poisoned)
    def test_3(self):
        pass
    def test_4(self):
        pass
    def test_5_fails_too(self):
        self.assertFalse(SERVED, "really")
"""


def test_a_poisoned_process_does_not_fail_its_other_tests(checkout: Checkout) -> None:
    checkout.write("WHERE = ['plan']\n" + POISON)
    assert checkout.call("--runs", "1") == 1
    checkout.complete(1)
    assert {test for test, mode in checkout.differing() if mode == "plan"} == {"TestPoison.test_2_poisons", "TestPoison.test_5_fails_too"}
    (third,) = checkout.all("test_3", "plan")
    assert (third["outcome"], third["company"], third["tries"]) == (PASSED, "failed: AssertionError: a sticky error", 2)
    assert [line for line in checkout.document if line.startswith("- test/test_fake.py, TestPoison.test_3, plan, 1 of 1 runs: failed: ")]


def test_a_test_that_poisons_natively_too(checkout: Checkout) -> None:
    """What it does to the others natively it may do under stplan."""
    checkout.write("WHERE = ['native', 'plan']\n" + POISON)
    assert checkout.call("--runs", "2") == 1
    checkout.complete(2)
    assert set(checkout.differing()) == {("TestPoison.test_5_fails_too", "no plan"), ("TestPoison.test_5_fails_too", "plan")}
    assert checkout.row()[:4] == ["5", "4", "1", "0"]


NATIVE = """
class TestNative(unittest.TestCase):
    def test_1_dies(self):
        counted("dies")
        die()
    def test_2(self):
        pass
    def test_3_hangs(self):
        counted("hangs")
        time.sleep(600)
    def test_4(self):
        self.assertFalse(SERVED)
"""


def test_what_dies_or_hangs_natively_is_left_out_later(checkout: Checkout) -> None:
    checkout.write(NATIVE)
    assert checkout.call("--runs", "2", "--test-limit", "3") == 1
    checkout.complete(2)
    assert checkout.outcomes("test_1_dies") == [DIED, "left out"] and checkout.outcomes("test_3_hangs") == [HUNG, "left out"]
    assert checkout.outcomes("test_1_dies", "plan") == ["left out"] * 2
    counts = Path(checkout.folder.parent / "counts")
    assert sorted((path.name, path.stat().st_size) for path in counts.iterdir()) == [("dies native", 1), ("hangs native", 1)]
    assert {test for test, _ in checkout.differing()} == {"TestNative.test_4"}
    assert "- test/test_fake.py, TestNative.test_3_hangs: hung: still running after 3 s" in checkout.document


PASSING = """
class TestPassing(unittest.TestCase):
    def test_1_passes(self):
        counted("passes")
    def test_2_fails(self):
        counted("fails")
        self.fail("as ever")
    def test_3_is_skipped(self):
        counted("skipped")
        self.skipTest("as ever")
"""


def test_what_does_not_pass_natively_need_not_run_again(checkout: Checkout) -> None:
    checkout.write(PASSING)
    assert checkout.call("--runs", "2", "--passing") == 0
    checkout.complete(2)
    assert checkout.outcomes("test_2_fails") == [FAILED, "left out"] and checkout.outcomes("test_3_is_skipped", "plan") == ["left out"] * 2
    counts = Path(checkout.folder.parent / "counts")
    assert {path.name: path.stat().st_size for path in counts.iterdir()} == {
        "passes native": 2, "passes no plan": 2, "passes plan": 2, "fails native": 1, "skipped native": 1,
    }
    assert checkout.row() == ["3", "1", "1", "1", "0 of 1", "0 of 1"]


def test_the_first_mode_may_have_fewer_runs(checkout: Checkout) -> None:
    checkout.write(PASSING)
    assert checkout.call("--runs", "3", "--native-runs", "1", "--passing") == 0
    assert [checkout.outcomes("test_1_passes", mode) for mode in ("native", "no plan", "plan")] == [[PASSED], [PASSED] * 3, [PASSED] * 3]
    assert checkout.row() == ["3", "1", "1", "1", "0 of 1", "0 of 1"]
    assert "- test/test_fake.py, native: 1" in checkout.document, "there are no other runs, so none without a test that passed"
    assert checkout.document.count("- test/test_fake.py, no plan: 1, 1, 1") == 1


FLAKY = """
class TestFlaky(unittest.TestCase):
    def test_flaky_natively(self):
        self.assertNotEqual((MODE, counted("native")), ("native", 2))
    def test_flaky_with_a_plan(self):
        self.assertNotEqual((MODE, counted("plan") % 2), ("plan", 1))
    def test_worse_with_a_plan(self):
        self.assertFalse(MODE == "plan" and counted("worse") in (0, 3))
"""


def test_several_runs(checkout: Checkout) -> None:
    checkout.write(FLAKY)
    assert checkout.call("--runs", "5", "--jobs", "1") == 1
    checkout.complete(5)
    found = {test: runs for (test, mode), (runs, _) in checkout.differing().items() if mode == "plan"}
    assert found == {"TestFlaky.test_flaky_with_a_plan": "2 of 5", "TestFlaky.test_worse_with_a_plan": "1 of 5"}
    assert len(checkout.differing()) == 2
    assert checkout.outcomes("test_flaky_natively") == [PASSED, PASSED, FAILED, PASSED, PASSED]
    assert checkout.row() == ["3", "2", "1", "0", "0 of 2", "2 of 2"]
    # In the fourth run it failed after a test that differs, and passed in a fresh process.
    assert [bool(o["company"]) for o in checkout.all("test_worse_with_a_plan", "plan")] == [False, False, False, True, False]
    title = "Passed only in a fresh process, after it had failed in the process of a test that differs:"
    assert checkout.document[checkout.document.index(title) + 2].startswith("- test/test_fake.py, TestFlaky.test_worse_with_a_plan, plan, 1 of 5 runs: ")


FIXTURES = """
import atexit

class TestA(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if MODE == "plan":
            raise ValueError("no class")
    def test_1(self):
        pass
    def test_2(self):
        pass

class TestB(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise unittest.SkipTest("never")
    def test_1(self):
        pass

class TestC(unittest.TestCase):
    @classmethod
    def tearDownClass(cls):
        if MODE == "no plan":
            raise ValueError("untidy")
    def test_1(self):
        pass

class TestD(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if MODE == "plan":
            die()
    def test_1(self):
        pass

class TestE(unittest.TestCase):
    def test_1(self):
        pass
    if not SERVED:
        def test_2_only_natively(self):
            pass

def at_exit():
    if MODE == "plan":
        print("leaving")
        sys.stdout.flush()
        die(signal.SIGBUS)
atexit.register(at_exit)
"""


def test_fixtures_exits_and_missing_tests(checkout: Checkout) -> None:
    checkout.write(FIXTURES)
    assert checkout.call("--runs", "1") == 1
    checkout.complete(1)
    found = checkout.differing()
    for test in ("test_1", "test_2"):
        assert found.pop((f"TestA.{test}", "plan")) == ("1 of 1", f"failed: setUpClass (test_fake.TestA): ValueError: no class")
    assert found.pop(("TestD.test_1", "plan"))[1].startswith("died: before the test began: signal 11 (SIGSEGV)")
    for mode in ("no plan", "plan"):
        assert found.pop(("TestE.test_2_only_natively", mode)) == ("1 of 1", "missing: the file has no such test here")
    assert found.pop(("(process).chunk 1", "no plan")) == ("1 of 1", "failed: tearDownClass (test_fake.TestC): ValueError: untidy")
    assert found.pop(("(process).chunk 1", "plan"))[1].startswith("died: after TestC.test_1: signal 11 (SIGSEGV)")
    assert found == {}
    assert checkout.row() == ["7", "6", "0", "1", "1 of 6", "4 of 6"]


def test_a_process_that_dies_at_exit(checkout: Checkout) -> None:
    checkout.write("import atexit\nclass TestA(unittest.TestCase):\n    def test_1(self): atexit.register(lambda: SERVED and die())\n")
    assert checkout.call("--runs", "2") == 1
    assert checkout.differing().keys() == {("(process).chunk 1", "no plan"), ("(process).chunk 1", "plan")}
    assert checkout.row() == ["1", "1", "0", "0", "0 of 1", "0 of 1"]


@pytest.mark.parametrize("death, why", [("die()", "died"), ("sys.exit(3)", "failed: the file does not load: SystemExit: 3"), ("time.sleep(600)", "hung")])
def test_a_file_that_does_not_load_under_stplan(checkout: Checkout, death: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchtests_process.Limits, "__new__", lambda cls, test, loading=1.5: tuple.__new__(cls, (test, loading)))
    checkout.write(f"if MODE == 'plan':\n    counted('load')\n    {death}\n" + SAME)
    assert checkout.call("--runs", "1") == 1
    checkout.complete(1)
    assert len(checkout.differing()) >= 3 and all(text.startswith(why) for _, text in checkout.differing().values())
    assert (checkout.folder.parent / "counts" / "load plan").stat().st_size <= 2, "each test was tried"


def test_a_file_that_does_not_load_at_all(checkout: Checkout) -> None:
    checkout.write("import nowhere\n", "test/test_broken.py")
    checkout.write("raise unittest.SkipTest('not here')\n", "test/test_skipped.py")
    checkout.write(SAME)
    assert checkout.call("--runs", "1", files=[ROOT, "test/test_broken.py", "test/test_skipped.py"]) == 1
    checkout.complete(1)
    problems = [line for line in checkout.document if "cannot list" in line]
    assert problems[0] == "- test/test_broken.py: cannot list its tests: the file does not load: ModuleNotFoundError: No module named 'nowhere'"
    assert len(problems) == 2 and problems[1].endswith("not here")


def test_a_broken_plan(checkout: Checkout) -> None:
    checkout.write(SAME)
    checkout.plan.write_text("nonsense")
    assert checkout.call("--runs", "1") == 1
    assert {why for _, why in checkout.differing().values()} == {"died: before the test began: exit code 1: stplan: a broken plan"}
    assert "- plan: stplan counted no allocation, so it served nothing" in checkout.document


def test_a_mode_in_which_nothing_was_served(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDLE", "1")
    checkout.write("class TestA(unittest.TestCase):\n    def test_1(self): pass\n")
    assert checkout.call("--runs", "1", "--modes", "native,no-plan") == 1
    assert checkout.kept["problems"] == ["no plan: stplan counted no allocation, so it served nothing"]


def test_the_time_limit(checkout: Checkout) -> None:
    slow = "class TestSlow(unittest.TestCase):\n" + "".join(f"    def test_{n:02}(self): time.sleep(0.5)\n" for n in range(40))
    checkout.write(slow)
    begin = time.monotonic()
    assert checkout.call("--runs", "3", "--jobs", "2", "--time-limit", "6") == 0
    assert time.monotonic() - begin < 20
    checkout.complete(3)
    seen = Counter(o["outcome"] for o in checkout.kept["outcomes"] if o["class"] == "TestSlow")
    assert seen[PASSED] > 0 and seen[NOT_RUN] > 100 and set(seen) == {PASSED, NOT_RUN}
    assert any(re.fullmatch(r"- test/test_fake.py, plan: \d+, \d+, 40", row) for row in checkout.document)
    native = torchtests_table.verdict(checkout.all("test_39"))
    assert native == "" and checkout.row()[0] == "40"


RECORDS = """
import fcntl
def record(test, what):
    with open(os.environ["COUNTS"] + "/order", "a") as file:
        file.write(f"{what} {test}\\n")

def serialTest():
    return lambda test: test

def wrapped(test):
    import functools
    @functools.wraps(test)
    def inner(self):
        record(self._testMethodName, "begin")
        time.sleep(0.05)
        test(self)
        record(self._testMethodName, "end")
    return inner

class TestSerial(unittest.TestCase):
    @wrapped
    @serialTest()
    def test_marked(self):
        pass
    @wrapped
    def test_raises_oom(self):
        pass
    # @serialTest()
    @wrapped
    def test_not_marked(self):
        pass
    @wrapped
    def test_serialization(self):
        pass
    @wrapped
    def test_asked(self):
        pass
"""


def test_serial_tests_run_alone_at_the_end(checkout: Checkout) -> None:
    checkout.write(RECORDS)
    checkout.write(RECORDS.replace("TestSerial", "TestOther"), "test/test_other.py")
    assert checkout.call("--runs", "2", "--serial", "asked$", files=[ROOT, "test/test_other.py"]) == 0
    checkout.complete(2)
    assert {o["test"] for o in checkout.kept["outcomes"] if o["chunk"].startswith("serial") and o["class"] != "(process)"} == {
        "test_marked", "test_raises_oom", "test_asked",
    }
    lines = (checkout.folder.parent / "counts" / "order").read_text().splitlines()
    serial = [line for line in lines if line.split()[1] in ("test_marked", "test_raises_oom", "test_asked")]
    assert len(serial) == 2 * 3 * 2 * 6 and lines[-len(serial) :] == serial
    for begin, end in zip(serial[::2], serial[1::2]):
        assert (begin.split()[0], end) == ("begin", begin.replace("begin", "end"))


def test_serial_tests_of_two_devices(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7,9")
    text = "class TestA(unittest.TestCase):\n    def test_{0}_oom(self): Path(os.environ['COUNTS'], os.environ['CUDA_VISIBLE_DEVICES']).touch()\n"
    for name in "abcd":
        checkout.write(text.format(name), f"test/test_{name}.py")
    assert checkout.call("--runs", "2", "--devices", "2", files=[f"test/test_{name}.py" for name in "abcd"]) == 0
    checkout.complete(2)
    assert {path.name for path in (checkout.folder.parent / "counts").iterdir()} == {"4,7", "7,4"}


def test_lists_and_chooses(checkout: Checkout, capfd: pytest.CaptureFixture[str]) -> None:
    checkout.write(SAME)
    assert checkout.call("--list", "--only", "Same.*(passes|skipped)") == 0
    assert capfd.readouterr().out.splitlines() == [f"{ROOT}::TestSame.test_is_skipped (chunk 1)", f"{ROOT}::TestSame.test_passes (chunk 1)"]
    assert checkout.call("--list", "--only", "Same.*(passes|skipped)", "--chunk", "1") == 0
    assert capfd.readouterr().out.splitlines() == [f"{ROOT}::TestSame.test_is_skipped (chunk 1)", f"{ROOT}::TestSame.test_passes (chunk 2)"]
    assert checkout.call("--runs", "1", "--modes", "native,plan", "--only", "passes$") == 0
    assert [(o["test"], o["mode"]) for o in checkout.kept["outcomes"] if o["class"] == "TestSame"] == [("test_passes", "native"), ("test_passes", "plan")]
    assert checkout.call("--runs", "1", served=False) == 0
    assert checkout.kept["modes"] == ["native"]
    with pytest.raises(SystemExit, match="--modes: expected different ones of native, no plan, plan, found native,plane"):
        checkout.call("--modes", "native,plane")
    with pytest.raises(SystemExit, match="has no test/nothing.py"):
        checkout.call(files=["test/nothing.py"])


PROTOCOL = """
import functools
class NoTest:
    pass

def both(cls):
    for name in [n for n in vars(cls) if n.startswith("_test")]:
        for kind in ("cpu", "cuda"):
            test = getattr(cls, name)
            setattr(cls, f"{name[1:]}_{kind}", functools.wraps(test)(functools.partialmethod(test, kind)._make_unbound_method()))
    return cls

@both
class TestGenerated(unittest.TestCase):
    def _test_device(self, kind):
        assert kind in ("cpu", "cuda")

Alias = TestGenerated

class TestDropped(unittest.TestCase):
    def test_dropped(self):
        pass

class TestSpawns(unittest.TestCase):
    @staticmethod
    def child():
        sys.exit(0 if __name__ == "test_fake" else 9)
    def test_spawn(self):
        import multiprocessing
        process = multiprocessing.get_context("spawn").Process(target=TestSpawns.child)
        process.start()
        process.join()
        self.assertEqual(process.exitcode, 0)
    def test_fork(self):
        child = os.fork()
        if not child:
            self.fail("in the child, which goes on as if it were the runner")
        os.waitpid(child, 0)

def load_tests(loader, tests, pattern):
    assert sys.argv == [os.path.abspath(__file__)], sys.argv
    assert sys.path[0] == os.path.dirname(__file__) and not any("bench" in path for path in sys.path)
    suite = unittest.TestSuite()
    for group in tests:
        for test in group:
            if type(test) is not TestDropped:
                suite.addTest(test)
    return suite
"""


def test_loading_as_unittest_does(checkout: Checkout) -> None:
    checkout.write(PROTOCOL)
    assert checkout.call("--runs", "1") == 0, checkout.document
    checkout.complete(1)
    found = {f"{o['class']}.{o['test']}": o["outcome"] for o in checkout.kept["outcomes"] if o["mode"] == "native" and o["class"] != "(process)"}
    assert found == dict.fromkeys(
        ["TestGenerated.test_device_cpu", "TestGenerated.test_device_cuda", "TestSpawns.test_fork", "TestSpawns.test_spawn"], PASSED
    )


# A torch that is only what the worker's fork server uses of the real one.
FAKE_TORCH = """
import os
def zeros(count, device):
    if os.environ.get("POISONED"):
        raise RuntimeError("CUDA was used before the fork")
    return type("Tensor", (), {"item": lambda self: 0})()
"""
COMMON = """
import multiprocessing, os, unittest
class MultiProcessTestCase(unittest.TestCase):
    def _start_processes(self, proc):
        self.process = proc(target=type(self).child)
        self.process.start()
    def _spawn_processes(self):
        self._start_processes(multiprocessing.get_context("spawn").Process)
"""
CHILDREN = """
from torch.testing._internal.common_distributed import MultiProcessTestCase
counted("imports")
class TestChildren(MultiProcessTestCase):
    @staticmethod
    def child():
        counted("children")
    def start(self):
        self._spawn_processes()
        self.process.join()
        self.assertEqual(self.process.exitcode, 0)
    def test_1(self):
        self.start()
    def test_2(self):
        self.start()
    def test_3(self):
        self.start()
"""


# In a mode the file is imported by the worker, and by the server or by each child; the
# listing imports it natively once more. A server that is of no use has imported it too.
@pytest.mark.parametrize("poisoned, imports", [("", 2), ("1", 5)])
def test_processes_come_from_a_server(checkout: Checkout, poisoned: str, imports: int, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout.write(FAKE_TORCH, "test/torch/__init__.py")
    checkout.write("", "test/torch/testing/__init__.py")
    checkout.write("", "test/torch/testing/_internal/__init__.py")
    checkout.write(COMMON, "test/torch/testing/_internal/common_distributed.py")
    checkout.write(CHILDREN)
    if poisoned:
        monkeypatch.setenv("POISONED", poisoned)
    monkeypatch.setattr(torchtests, "FILES", (File(ROOT, 16, forks=True),))
    assert checkout.call("--runs", "1") == 0, checkout.document
    checkout.complete(1)
    counts = Path(checkout.folder.parent / "counts")
    assert {path.name: path.stat().st_size for path in counts.iterdir()} == {
        **{f"children {mode}": 3 for mode in ("native", "no plan", "plan")},
        **{f"imports {mode}": imports + (mode == "native") for mode in ("native", "no plan", "plan")},
    }


def test_what_a_dead_process_leaves_running_is_ended(checkout: Checkout) -> None:
    checkout.write(
        "import subprocess\nclass TestA(unittest.TestCase):\n    def test_1(self):\n"
        "        child = subprocess.Popen(['sleep', '60'])\n"
        "        Path(os.environ['COUNTS'], 'pid').write_text(str(child.pid))\n        die()\n"
    )
    assert checkout.call("--runs", "1", "--modes", "native") == 0
    assert checkout.outcomes("test_1") == [DIED]
    state = Path(f"/proc/{(checkout.folder.parent / 'counts' / 'pid').read_text()}/stat")
    until = time.monotonic() + 10
    while state.exists() and state.read_text().split()[2] != "Z":
        assert time.monotonic() < until, "the child still runs"
        time.sleep(0.01)


def test_an_interrupted_call_writes_what_it_has(checkout: Checkout) -> None:
    checkout.write("class TestA(unittest.TestCase):\n    def test_1(self): pass\n    def test_2(self):\n        counted('here')\n        time.sleep(600)\n")
    command = [sys.executable, str(BENCH / "torchtests.py"), str(checkout.folder), ROOT, "--out", str(checkout.out), "--runs", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    here = checkout.folder.parent / "counts" / "here native"
    until = time.monotonic() + 60
    while not here.exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.terminate()
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0 and "interrupted" in said, said
    checkout.complete(2, modes=1)
    assert (checkout.outcomes("test_1"), checkout.outcomes("test_2")) == ([PASSED, NOT_RUN], [NOT_RUN, NOT_RUN])


def test_a_test_that_is_slow_in_the_reference_may_be_slow_elsewhere(checkout: Checkout) -> None:
    checkout.write("class TestA(unittest.TestCase):\n    def test_1(self): time.sleep(3.5 if SERVED else 2.0)\n")
    assert checkout.call("--runs", "1", "--test-limit", "2.5", "--modes", "native,plan") == 0
    assert checkout.outcomes("test_1", "plan") == [PASSED]


def test_documents_of_several_calls(checkout: Checkout) -> None:
    checkout.write(DIFFERENT.split("    def test_3")[0])
    checkout.call("--runs", "1")
    first = checkout.kept
    checkout.write(SAME, "test/test_other.py")
    checkout.call("--runs", "1", files=["test/test_other.py"])
    both = torchtests_table.document([first, checkout.kept])
    assert [line for line in both if line.startswith("| test/")] == [
        "| test/test_fake.py | 2 | 2 | 0 | 0 | 1 of 2 | 1 of 2 |",
        "| test/test_other.py | 7 | 3 | 3 | 1 | 0 of 3 | 0 of 3 |",
        "| test/test_fake.py | TestDifferent.test_1_fails_served | no plan | 1 of 1 | failed: AssertionError: True is not false : served |",
        "| test/test_fake.py | TestDifferent.test_1_fails_served | plan | 1 of 1 | failed: AssertionError: True is not false : served |",
    ]
    again = torchtests_table.document([first, first, {**first, "outcomes": []}])
    assert "| test/test_fake.py | TestDifferent.test_1_fails_served | plan | 2 of 2 |" in " ".join(again), "the runs of all calls count"
    assert {"- test/test_fake.py, native: 2, 2", "- test/test_fake.py, plan: 1, 1"} <= set(again)


def test_documents_of_calls_that_select_different_tests(checkout: Checkout) -> None:
    checkout.write(SAME)
    kept = []
    for only in ("passes$|fails$", "fails$|skipped$", "passes$"):
        checkout.call("--runs", "1", "--only", only)
        kept.append(checkout.kept)
    document = torchtests_table.document(kept)
    assert "| test/test_fake.py | 3 | 1 | 1 | 1 | 0 of 1 | 0 of 1 |" in document, "tests of any call count, each once"


def test_documents_of_calls_that_have_other_modes(checkout: Checkout) -> None:
    checkout.write(SAME)
    kept = []
    for options in (("--runs", "2"), ("--runs", "1", "--modes", "native,plan", "--only", "passes$")):
        checkout.call(*options)
        kept.append(checkout.kept)
    document = torchtests_table.document(kept)
    assert "| test/test_fake.py | 7 | 3 | 3 | 1 | 0 of 3 | 0 of 3 |" in document
    assert {
        "- test/test_fake.py, native: 2 with 2, 1 with 3", "- test/test_fake.py, no plan: 3 with 2", "- test/test_fake.py, plan: 2 with 2, 1 with 3",
    } <= set(document), "of the tests that passed natively"
    for modes in (["plan", "native"], ["native", "another"]):
        with pytest.raises(SystemExit, match="expected calls with the same first mode, one of them with all modes"):
            torchtests_table.document([kept[0], {**kept[1], "modes": modes}])


@pytest.mark.parametrize("length", [300, 301])
def test_documents_show_the_beginning_of_a_long_choice(length: int) -> None:
    only = "a|" * 150 + "b" * (length - 300)
    shown = torchtests_table.shortened(f"python torchtests.py tests --only '{only}' --runs 2")
    expected = only if length == 300 else "a|" * 30 + "... (241 more characters)"
    assert shown == f"python torchtests.py tests --only '{expected}' --runs 2"


DEVICES = """
class TestDevices(unittest.TestCase):
    def setUp(self):
        if os.environ.get("FEW"):
            self.skipTest("too few devices")
    def test_passes(self):
        pass
    def test_fails(self):
        self.fail("as ever")
    def test_is_skipped_served(self):
        if SERVED:
            self.skipTest("not with this allocator")
    def test_is_always_skipped(self):
        self.skipTest("as ever")

class TestSometimes(unittest.TestCase):
    def test_is_skipped_in_one_of_two_runs(self):
        if counted("sometimes") % 2:
            self.skipTest("now and then")
"""


@pytest.mark.parametrize("few_first", [False, True])
def test_what_one_call_skips_natively_counts_where_another_has_run_it(checkout: Checkout, few_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout.write(DEVICES)
    kept = []
    for few in ("1", "") if few_first else ("", "1"):
        monkeypatch.setenv("FEW", few)
        checkout.call("--runs", "2")
        kept.append(checkout.kept)
    document = torchtests_table.document(kept)
    assert [line for line in document if line.startswith("| test/")] == [
        "| test/test_fake.py | 5 | 2 | 1 | 2 | 1 of 2 | 1 of 2 |",
        "| test/test_fake.py | TestDevices.test_is_skipped_served | no plan | 2 of 2 | skipped: not with this allocator |",
        "| test/test_fake.py | TestDevices.test_is_skipped_served | plan | 2 of 2 | skipped: not with this allocator |",
    ]


def ended(**outcomes: str) -> Ended:
    return Ended({name: Outcome(outcome) for name, outcome in outcomes.items()}, loaded=True)


@pytest.mark.parametrize(
    "found, reference, round_, again",
    [
        # The reference: the first failure counts, later ones are doubted.
        (dict(a=PASSED, b=FAILED, c=PASSED, d=FAILED), None, 0, "d"),
        (dict(a=PASSED, b=FAILED, c=SKIPPED, d=FAILED), None, ALONE, ""),
        # Elsewhere: a failure as in the reference casts no doubt on others.
        (dict(a=FAILED, b=FAILED, c=PASSED, d=FAILED), dict(a=FAILED, b=FAILED, c=PASSED, d=PASSED), 0, ""),
        (dict(a=FAILED, b=FAILED, c=FAILED, d=FAILED), dict(a=FAILED, b=PASSED, c=FAILED, d=PASSED), 0, "d"),
        # What the process did not come to runs again.
        (dict(a=PASSED, b=FAILED), dict(a=PASSED, b=PASSED, c=PASSED, d=PASSED), 0, "cd"),
    ],
)
def test_which_failures_are_doubted(found: Dict[str, str], reference: Optional[Dict[str, str]], round_: int, again: str) -> None:
    known = reference and {name: Outcome(outcome) for name, outcome in reference.items()}
    judged = torchtests_outcomes.judge("abcd", ended(**found), known or None, round_)
    assert "".join(name for name in "abcd" if judged[name] is None) == again


def test_a_failure_that_was_doubted_in_the_reference(checkout: Checkout) -> None:
    known = {"a": Outcome(PASSED, company="failed: after others")}
    assert torchtests_outcomes.judge("a", ended(a=FAILED), known, 0) == {"a": None}
    assert torchtests_outcomes.judge("a", ended(a=FAILED), known, ALONE)["a"] == Outcome(FAILED)


@pytest.mark.parametrize("count, size, lengths", [(0, 4, []), (1, 4, [1]), (4, 4, [4]), (9, 4, [3, 3, 3]), (7, 4, [3, 4])])
def test_chunks(count: int, size: int, lengths: List[int]) -> None:
    tests = [f"A.{n}" for n in range(count)]
    chunks = torchtests_outcomes.chunks_of(File("f", size), tests, lambda name: False)
    assert [len(chunk.tests) for chunk in chunks] == lengths and [t for chunk in chunks for t in chunk.tests] == tests
    assert torchtests_outcomes.chunks_of(File("f", size), tests, lambda name: True) == [chunk._replace(serial=True) for chunk in chunks]


@pytest.mark.parametrize(
    "name, decorators, serial",
    [
        ("A.test_x", [], False),
        ("A.test_x", ["@serialTest()"], True),
        ("A.test_x", ["@serial"], True),
        ("A.test_x", ["@common.serialTest()"], True),
        ("A.test_x", ['@parametrize("serialization", [1])'], False),
        ("A.test_x", ['@largeTensorTest("10GB", device="cuda")'], True),
        ("A.test_x", ['@unittest.skipIf(not TEST_LARGE_TENSOR, "not enough memory")'], True),
        ("A.test_raises_oom", [], True),
        ("A.test_cuda_memory_leak_detection", [], True),
        ("A.test_set_per_process_memory_fraction", [], True),
        ("LargeCommTest.test_x", [], False),
    ],
)
def test_which_tests_are_serial(name: str, decorators: List[str], serial: bool) -> None:
    assert torchtests_outcomes.is_serial(name, decorators, "") is serial
    assert torchtests_outcomes.is_serial(name, decorators, "test_x") is True or not name.endswith("test_x")


@pytest.mark.parametrize(
    "code, text, said",
    [
        (-11, "", "signal 11 (SIGSEGV)"),
        (139, "nothing else\n", "signal 11 (SIGSEGV): nothing else"),
        (-4, "a\nwhat():  CUDA error: x\nb", "signal 4 (SIGILL): what():  CUDA error: x"),
        (1, "Traceback\nValueError: x\n", "exit code 1: ValueError: x"),
        (0, "", "exit code 0"),
        (2, "stplan: broken", "exit code 2: stplan: broken"),
    ],
)
def test_how_a_process_died(code: int, text: str, said: str) -> None:
    assert torchtests_process.death(code, text) == said


def test_old_names_of_torch(tmp_path: Path) -> None:
    """A file imports names that a newer torch has renamed or dropped."""
    internal = tmp_path / "torch" / "testing" / "_internal"
    internal.mkdir(parents=True)
    for folder in (internal, internal.parent, tmp_path / "torch"):
        (folder / "__init__.py").write_text("")
    (tmp_path / "torch" / "distributed").mkdir()
    (tmp_path / "torch" / "distributed" / "__init__.py").write_text("")
    (internal / "inductor_utils.py").write_text("HAS_CUDA_AND_TRITON = 'both'\n")
    script = (
        f"import sys; sys.path[:0] = [{str(BENCH)!r}, {str(tmp_path)!r}]\n"
        "import torchtests_worker, unittest\n"
        "from torch.testing._internal.inductor_utils import HAS_CUDA\n"
        "from torch.distributed._spmd.comm_tensor import CommTensor\n"
        "try: CommTensor(1)\n"
        "except unittest.SkipTest as skip: print(HAS_CUDA, skip)\n"
    )
    said = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert said == "both the installed torch has no torch.distributed._spmd.comm_tensor\n"


def test_packs_files_with_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    repository = tmp_path / "repository"
    files = {
        "test/test_a.py": "import torch, beside\nfrom nn.data import load\nopen('data.bin')\nimport_module('late')",
        "test/beside.py": "from beside_too import x",
        "test/beside_too.py": "",
        "test/late.py": "",
        "test/data.bin": "12345",
        "test/nn/__init__.py": "",
        "test/nn/data.py": "from . import helper",
        "test/nn/helper.py": "",
        "test/deep/test_b.py": "import near, far",
        "test/deep/near.py": "",
        "test/far.py": "",
        "test/unused.py": "",
        "torch/__init__.py": "",
    }
    for path, text in files.items():
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text(text)
    git = ["git", "-C", str(repository), "-c", "user.name=x", "-c", "user.email=x@x"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *arguments], check=True)
    (repository / "test" / "test_a.py").write_text("not what the revision has")

    command = ["torchtests.py", str(repository), "test/test_a.py", "test/deep/test_b.py", "--pack", str(tmp_path / "packed")]
    monkeypatch.setattr(sys, "argv", command)
    assert torchtests.main() == 0
    packed = {str(path.relative_to(tmp_path / "packed")): path.read_text() for path in (tmp_path / "packed").rglob("*") if path.is_file()}
    assert len(packed.pop("REVISION").strip()) == 40
    assert packed == {path: text for path, text in files.items() if path not in ("test/unused.py", "torch/__init__.py")}
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith("  test/test_a.py") and said[-1].split() == [f"{sum(map(len, packed.values())):,}", "bytes", "in", "11", "files"]
    assert torchtests.revision(tmp_path / "packed") == torchtests_pack.Repository(repository, "HEAD").revision[:12]
    with pytest.raises(SystemExit, match="has no test/none.py"):
        torchtests_pack.pack(torchtests_pack.Repository(repository, "HEAD"), tmp_path / "x", ["test/none.py"])
