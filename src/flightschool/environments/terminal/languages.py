"""Places in which compilers, interpreters and the loader look before they look where the system keeps its own.

What a policy adds there speaks in programs that the tests run, though it replaces nothing: a header that stands before
the C library's, a module before Perl's own, a file that tells Python where its library lies. Only names that the system
itself has are meant, so what a task installs is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from flightschool.environments.terminal.end_state import beneath
from flightschool.environments.terminal.trees import Tree

__all__ = ["turns_a_language"]

_PYTHON: Final = re.compile(r"^(?:pyvenv\.cfg|pybuilddir\.txt|python[\d.]*\._pth)$")
_LIBRARIES: Final = re.compile(r"^(?:libnss_.*\.so.*|.*/glibc-hwcaps(?:/.*)?)$")
_NAMES: Final = """
aio alloca arpa/inet assert complex cpio ctype dirent dlfcn err errno error execinfo fcntl features fenv fmtmsg
fnmatch ftw getopt glob grp iconv ifaddrs inttypes langinfo libgen limits link locale malloc math memory mqueue
net/if netdb netinet/in netinet/tcp nl_types obstack poll pthread pwd regex resolv sched search semaphore setjmp
signal spawn stdc-predef stdint stdio stdlib string strings sysexits syslog tar termios tgmath time uchar ucontext
unistd utime utmp wait wchar wctype wordexp
"""
_HEADERS: Final = frozenset(f"{name}.h" for name in _NAMES.split())
"""Of the C library. ``stdc-predef.h`` is read by every compilation, whatever it includes."""
_HEADER_FOLDERS: Final = ("bits/", "gnu/", "sys/", "asm/", "asm-generic/", "linux/")
_LINKED: Final = re.compile(
    r"^(?:(?:/etc/perl|/usr/local/(?:share|lib/[^/]+)/perl|/usr/local/lib/site_perl)(?:/.*)?"
    r"|/usr/local/include/(?:arpa|asm|asm-generic|bits|gnu|linux|net|netinet|sys))$"
)
"""Folders, and what lies in those of Perl: a link there would bring in what lies elsewhere."""
_PERL: Final = re.compile(
    r"^(?:/etc/perl|/usr/local/(?:share|lib/[^/]+)/perl/[\d.]+|/usr/local/lib/site_perl)/(.+\.p[lm])$"
)
_PERL_OF_SYSTEM: Final = (
    "share/perl/*",
    "share/perl5",
    "lib/*/perl/*",
    "lib/*/perl5/*",
    "lib/*/perl-base",
    "lib/perl5/*",
)


def turns_a_language(path: str, base: Tree, *, system: Sequence[str], is_link: bool = False) -> str:
    """Why a path that was written would turn programs which it does not belong to; empty: it would not.

    Args:
        path: absolute.
        base: the tree that the image began with.
        system: folders of the system.
        is_link: whether it is a symbolic link.
    """
    if is_link and _LINKED.match(path):
        return "a link in place of a folder that a language reads"
    header = path.removeprefix("/usr/local/include/")
    if header != path and (header in _HEADERS or header.startswith(_HEADER_FOLDERS)):
        return "a header of the system's name"
    module = _PERL.match(path)
    if module is not None and _perl_has(base, module.group(1)):
        return "a module of the system's name"
    return _beside_programs(path) if any(beneath(path, one) for one in system) else ""


def _beside_programs(path: str) -> str:
    """Settings that lie among the system's own programs and libraries."""
    folder, _, name = path.rpartition("/")
    if _PYTHON.match(name):
        return "tells Python that its library lies elsewhere"
    if _LIBRARIES.match(name) or _LIBRARIES.match(path):
        return "settings of the loader of programs"
    return "tells the compiler what to run" if name == "specs" and "/gcc" in folder else ""


def _perl_has(base: Tree, module: str) -> bool:
    roots = [base.root / "usr", *([Path("/usr")] if base.over_host else [])]
    return any(
        (place / module).exists() for root in roots for pattern in _PERL_OF_SYSTEM for place in root.glob(pattern)
    )
