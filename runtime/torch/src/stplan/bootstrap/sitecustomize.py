# Runs in every Python process of a recorded or served job. The launcher puts this folder
# first on PYTHONPATH, and Python imports a module of this name when it starts. Any
# Python 3 must be able to run this file; the package that it imports needs 3.9.
import importlib.machinery
import importlib.util
import os
import sys


def _arm() -> None:
    package = os.path.dirname(os.path.dirname(_here))
    sys.path.insert(0, package)
    try:
        from stplan._launch import arm
    finally:
        sys.path.remove(package)
    arm(os.environ)


def _chain() -> None:
    """Run the next sitecustomize on the path, which this one hides, and let it take this
    module's place."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_here = os.path.dirname(os.path.abspath(__file__))
# The script must see its usual sys.path. Its children find this folder by PYTHONPATH.
sys.path[:] = [p for p in sys.path if os.path.abspath(p or os.curdir) != _here]
try:
    if sys.version_info >= (3, 9):
        _arm()
except Exception as error:
    sys.stderr.write("stplan: cannot start in this process: %s: %s\n" % (type(error).__name__, error))
_chain()
