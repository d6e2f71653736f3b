"""Settings that tools read at home or in ``/etc`` without being told to, and that can run or redefine something.

The tests of a task use tools of their own choice: they ask ``jq`` for a field, ``git`` for a log. What a policy leaves
in ``~/.jq`` or ``~/.gitconfig`` then speaks in the verdict. Such a file stays out of the grader's sandbox unless the
task is about its tool: then leaving it out would fail honest work. Profiles of shells are not among them: what a task
installs is found by way of them too often, and plain ``bash`` does not read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["GIT_HOOKS_OFF", "GIT_QUIET", "unasked_places"]

_AT_HOME: Final[tuple[tuple[str, str], ...]] = (
    (".gitconfig .config/git", "git|github|gitlab|commit|commits|repo|repos|repository|repositories|branch|merge"),
    (".jq", "jq|json"),
    (".npmrc .yarnrc .yarnrc.yml .node_modules .node_libraries", "npm|npx|node|nodejs|yarn|pnpm|javascript|typescript"),
    (".sqliterc .config/sqlite3", "sqlite|sqlite3|sql|database|db"),
    (".psqlrc .pgpass .pg_service.conf", "psql|postgres|postgresql|sql|database"),
    (".my.cnf .mylogin.cnf", "mysql|mariadb|sql|database"),
    (".gdbinit .gdbearlyinit .config/gdb .lldbinit", "gdb|lldb|debug|debugger"),
    (".vimrc .vim .exrc .config/nvim .emacs .emacs.d", "vi|vim|nvim|neovim|emacs|editor"),
    (".Rprofile .Renviron", "r|rscript"),
    (".julia/config", "julia"),
    (".irbrc .pryrc .gemrc .rspec .bundle/config", "ruby|gem|gems|rspec|bundle|bundler|rails"),
    (".cargo/config .cargo/config.toml", "cargo|rust|rustc"),
    (".gradle .mavenrc .m2/settings.xml .m2/extensions.xml", "gradle|maven|mvn|java|kotlin|scala"),
    (".pdbrc .pip .config/pip .pydistutils.cfg .condarc", "python|python3|pip|conda|package|packages"),
    (".pylintrc .config/pylintrc .flake8 .config/flake8 .config/pycodestyle .mypy.ini .config/mypy .config/ruff"
     " .config/black", "lint|linter|flake8|pylint|mypy|ruff|black|style|pep8"),
    (".shellcheckrc .config/shellcheckrc", "shellcheck|lint|linter|bash"),
    (".magic .magic.mgc", "file|magic|mime|type"),
    (".config/go", "go|golang"),
    (".gnupg", "gpg|gnupg|pgp|sign|signed|signature|encrypt|encrypted|decrypt|key|keys"),
    (".config/ImageMagick .magick", "imagemagick|convert|image|images|picture|png|jpg|jpeg|gif"),
    (".ipython .jupyter", "ipython|jupyter|notebook|notebooks"),
    (".curlrc .config/curlrc .wgetrc .netrc", "curl|wget|http|https|download|url"),
    (".ssh/config .ssh/rc", "ssh|sshd|scp|sftp|rsync|git"),
    (".tmux.conf .config/tmux .screenrc", "tmux|screen|terminal"),
    (".docker/config.json .kube/config", "docker|kubernetes|kubectl|kube|container"),
    (".perldb .proverc", "perl|prove"),
    (".ocamlinit .ghci .ghc .sbclrc .guile .racketrc .octaverc .gnuplot .latexmkrc", "ocaml|haskell|ghc|ghci|lisp|sbcl"
     "|guile|scheme|racket|octave|matlab|gnuplot|plot|latex|tex|pdf"),
)  # fmt: skip
"""Names below a home folder, and the words of an instruction that make them the task's business."""
_IN_ETC: Final = {
    "/etc/gitconfig": ".gitconfig",
    "/etc/npmrc": ".npmrc",
    "/etc/psqlrc": ".psqlrc",
    "/etc/my.cnf": ".my.cnf",
    "/etc/gdb": ".gdbinit",
    "/etc/pip.conf": ".pip",
    "/etc/curlrc": ".curlrc",
    "/etc/wgetrc": ".wgetrc",
    "/etc/magic": ".magic",
    "/etc/magic.mgc": ".magic",
    "/etc/ImageMagick-6": ".magick",
    "/etc/ImageMagick-7": ".magick",
}
"""The same for everyone → the name at home that it is like."""
_WORDS: Final = {name: re.compile(rf"\b(?:{words})\b", re.I) for names, words in _AT_HOME for name in names.split()}

GIT_QUIET: Final = {"core.fsmonitor": "false"}
"""Overrules what a repository says: ``git status`` would run a program that it names. Costs nothing but speed."""
GIT_HOOKS_OFF: Final = {"core.hooksPath": "/dev/null"}


def unasked_places(homes: Iterable[str], instruction: str) -> frozenset[str]:
    """Paths (files, or folders with all below them) that are kept from the grader.

    Args:
        homes: of the accounts that the policy and the tests run as.
        instruction: what the policy was told.
    """
    foreign = [name for name, words in _WORDS.items() if not words.search(instruction)]
    at_home = {f"{home.rstrip('/')}/{name}" for home in homes for name in foreign}
    return frozenset(at_home | {place for place, name in _IN_ETC.items() if name in foreign})
