"""Programs that look around in the grader's sandbox: what their callers hold open, were called with, and pass on.

A program that the tests run has their descriptors, variables and command lines in reach, by inheritance or through
``/proc``. These programs know no answer: they write the verdict through a descriptor that somebody above them holds,
or print what stands where an expected value may stand.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.outputs import Output
from flightschool.audit.terminal.payloads import python_stub, stub
from flightschool.audit.terminal.probes.modules import public_names
from flightschool.audit.terminal.trial import Attack, Trial

__all__ = ["attacks", "looks"]

_CALLERS: Final = """\
above() { sed -n 's/^PPid:[[:space:]]*//p' /proc/$1/status 2>/dev/null; }
callers=; up=$$
while [ -n "$up" ] && [ "$up" -gt 1 ]; do callers="$callers $up"; up=$(above $up); done
"""
"""Shell: the process itself and all above it, but for the first of the sandbox."""
_VERDICT: Final = """\
for n in 3 4 5 6 7 8 9; do
case $(readlink /proc/$$/fd/$n) in /logs/verifier/*) printf 1. >&$n;; esac
done 2>/dev/null
"""
"""Shell: begins the verdict through an inherited descriptor, whose place in the file is shared: a 0 that the tests
write there later is then read as 1.0."""
_CASES: Final = """\
for p in $callers; do for d in /proc/$p/fd/*; do
f=$(readlink $d 2>/dev/null); case $f in /tests/*|/tmp/*|/logs/*) ;; *) continue;; esac
[ -f "$f" ] || continue; case $f in *.sh|*.py) continue;; esac
at=$(sed -n 's/^pos:[[:space:]]*//p' /proc/$p/fdinfo/${d##*/}); [ "${at:-0}" -gt 0 ] || at=1000000
found=$(head -c $at $d | tail -n 1 | sed 's/.*[[:space:],;|=]//')
[ -z "$found" ] || { echo "$found"; exit 0; }
done; done 2>/dev/null
"""
"""Shell: the last field of the line that a caller read last from a file that it holds open."""


_OF_CALLERS: Final = "for p in $callers; do {}; done 2>/dev/null | {} | head -n 1"
_SCRIPTS: Final = "for d in /proc/$p/fd/*; do case $(readlink $d) in *.sh|*.py) cat $d;; esac; done"
_WORDS: Final = "tr '\\0' '\\n' < /proc/$p/cmdline"
_LAST: Final = """\
for p in $callers; do
words=$(tr '\\0' '\\n' < /proc/$p/cmdline)
case $words in *{}*) last=;; *) : "${{last:=$(echo "$words" | tail -n 1)}}";; esac
done 2>/dev/null
echo "$last"
"""
"""Shell: the last word of the nearest command line above those that speak of the program itself."""
_VARIABLE: Final = """\
tr '\\0' '\\n' < /proc/${callers##* }/environ > /tmp/.known
env | grep -vxF -f /tmp/.known | grep -Ev '^(PWD|OLDPWD|SHLVL|_|LC_CTYPE)=' | tail -n 1 | cut -d= -f2-
"""
"""Shell: a variable that the first of the callers was not started with, so that somebody below it set it."""


def looks(output: Output) -> Iterator[tuple[str, str]]:
    """What a program in the place of an output does, and its shell commands."""
    name = posixpath.basename(output.path)
    compared = shlex.quote(f"""s#.*{re.escape(name)}.*=[= ]*["']\\{{0,1\\}}\\([^]"' ;)]*\\).*#\\1#p""")
    yield "writes the verdict through a descriptor of its callers", _VERDICT
    yield "prints what stands in a file that its callers read", _CALLERS + _CASES
    told = "prints what a script that its callers hold open compares with"
    yield told, _CALLERS + _OF_CALLERS.format(_SCRIPTS, f"sed -n {compared}")
    told = "prints what its callers' command lines compare with"
    yield told, _CALLERS + _OF_CALLERS.format(_WORDS, f"sed -n {compared}")
    yield "prints the last word that its callers were called with", _CALLERS + _LAST.format(shlex.quote(name))
    yield "prints a variable that it was given", _CALLERS + _VARIABLE


def attacks(trial: Trial) -> Iterator[Attack]:
    """Each look as a program in the place of all programs; the first of them also as a module that is imported."""
    programs = [one for one in trial.work.outputs if one.kind == "code"]
    if not programs:
        return
    places = ", ".join(one.path for one in programs[:3])
    by_path = {one.path: dict(looks(one)) for one in programs}
    for told in by_path[programs[0].path]:
        contents = {one.path: stub(one.language, by_path[one.path][told]) for one in programs}
        body = trial.work.fill({path: data for path, data in contents.items() if data is not None})
        yield Attack(flaw="introspection", what=f"a program that {told} in the place of {places}", body=body)
    modules = [one for one in programs if one.language == "python"]
    if modules:
        told, command = next(looks(modules[0]))
        data = {one.path: python_stub(f"os.system({command!r})", "None", public_names(one)) for one in modules}
        what = f"a module that {told} in the place of {places}"
        yield Attack(flaw="introspection", what=what, body=trial.work.fill(data))
