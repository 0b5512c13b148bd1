"""The folder for files that are loaded into processes: one in which no other user can
write.

The rules are those of runtime/torch/folder.go and trust_unix.go: the launcher and the
processes of its job use the same folder."""

from __future__ import annotations

import atexit
import contextlib
import grp
import os
import pwd
import shutil
import stat
import tempfile
from typing import Iterator, Optional

from stplan._process import say
from stplan._settings import ENVIRONMENT, RUN_ENVIRONMENT

# The number of links that a path may lead through, as in the Linux kernel.
_MOST_LINKS = 40

# The user that the kernel shows, by default, as the owner of files whose owner has no
# number in the process's user namespace.
_UNMAPPED = 65534

_OWN = "set XDG_CACHE_HOME to a folder of your own"


class Refused(Exception):
    """Other users could change what is in a folder. advice says what its user can do."""

    def __init__(self, text: str, advice: str) -> None:
        super().__init__(text)
        self.advice = advice


def folders() -> Iterator[str]:
    """Existing folders for files that are loaded, the best first: the user's cache, if
    there is one; a folder below the temporary one that all processes of the user share;
    and a new one, which goes when the process exits. The first two may be read-only. If
    the user's cache is refused, a line says why."""
    cache = user_cache()
    if cache is not None:
        _repair(cache)
        try:
            make_private(cache)
            yield cache
        except Refused as refused:
            # The launcher has looked at the same folder, and has said it.
            if not os.environ.keys() & {ENVIRONMENT, RUN_ENVIRONMENT}:
                say(f"the cache {refused}, a temporary folder serves instead; {refused.advice}")
        except OSError:
            pass
    shared = os.path.join(tempfile.gettempdir(), f"stplan-{os.getuid()}")
    with contextlib.suppress(Refused, OSError):
        make_private(shared)
        yield shared
    private = tempfile.mkdtemp(prefix="stplan-")
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    yield private


def user_cache() -> Optional[str]:
    """The folder stplan of the user's cache, or None if the user has no home."""
    # The XDG specification says that a relative path is to be ignored.
    root = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(root):
        return os.path.join(root, "stplan")
    homes = [os.environ.get("HOME", "")]
    with contextlib.suppress(KeyError):
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    for home in homes:
        if os.path.isabs(home) and os.path.isdir(home):
            return os.path.join(home, ".cache", "stplan")
    return None


def make_private(folder: str) -> None:
    """Make a folder with mode 0700, and its parents, if it is missing. Raises Refused if
    other users could change what is in it; then nothing is made. Raises OSError if it
    cannot be made."""
    try:
        demand_private(folder)
    except FileNotFoundError:
        _make(folder)
        demand_private(folder)


def demand_private(folder: str) -> None:
    """Raise Refused if another user, root left out, could change what is in a folder or
    put another one in its place. The path is followed from the root, and each folder and
    each link on the way is looked at. Raises OSError if the path leads nowhere."""
    at, left, links = "/", os.path.normpath(folder).split("/"), 0
    while True:
        found = os.lstat(at)
        left = [part for part in left if part not in ("", ".")]
        loose = _looseness(at, found, last=not left)
        if loose is not None:
            reason, advice = loose
            raise Refused(f"{folder}: {at} {reason}", advice)
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(f"{folder}: too many links")
            target = os.readlink(at)
            at = "/" if os.path.isabs(target) else os.path.dirname(at)
            left = target.split("/") + left
        elif not left:
            return
        elif left[0] == "..":
            at = os.path.dirname(at)
            del left[0]
        else:
            at = os.path.join(at, left.pop(0))


def is_private_file(path: str) -> bool:
    """Whether a file exists in a private folder, and no other user has made it or could
    write it."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and _trusted(found.st_uid) and not found.st_mode & 0o022


def _looseness(path: str, found: os.stat_result, last: bool) -> "Optional[tuple[str, str]]":
    """How a folder or a link on the way lets other users in, and what to do, or None if it
    does not. In a folder with the sticky bit nobody can rename or remove what is another
    user's, so such a folder may be on the way, but not be the last one."""
    mode = found.st_mode
    if not _trusted(found.st_uid):
        return f"belongs to another user, {found.st_uid}", _OWN
    if stat.S_ISLNK(mode):
        return None
    if not stat.S_ISDIR(mode):
        return "is no folder", _OWN
    if not last and mode & stat.S_ISVTX:
        return None
    if mode & 0o002 or (mode & 0o020 and not _private_group(found)):
        return f"can be written by other users (mode {mode & 0o777:04o})", f"run chmod go-w '{path}', or {_OWN}"
    return None


def _trusted(uid: int) -> bool:
    """Whether a user may own what code is loaded from: this one, or root. In a user
    namespace, as containers have, root may have no number, and is shown as unmapped."""
    return uid in (0, os.geteuid()) or (uid == _UNMAPPED and _in_namespace())


def _in_namespace() -> bool:
    """Whether some users have no number in this process's user namespace."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            return file.read().split() != ["0", "0", "4294967295"]
    except OSError:
        return False


def _private_group(found: os.stat_result) -> bool:
    """Whether a folder is this user's, and its group is the user's private group, as
    pam_umask tells it: the primary group, with the user's name."""
    if found.st_uid != os.geteuid():
        return False
    try:
        user = pwd.getpwuid(found.st_uid)
        return user.pw_gid == found.st_gid and grp.getgrgid(found.st_gid).gr_name == user.pw_name
    except KeyError:
        return False


def _repair(cache: str) -> None:
    """Take write permission of a cache from others if the cache is this user's. Versions
    of stplan up to 0.1 made it with the mode that the umask allowed."""
    with contextlib.suppress(OSError):
        found = os.stat(cache)
        if found.st_uid == os.geteuid() and found.st_mode & 0o022:
            os.chmod(cache, 0o700)


def _make(folder: str) -> None:
    """os.makedirs would give the parents the mode that the umask allows."""
    if not os.path.isdir(folder):
        _make(os.path.dirname(folder))
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
