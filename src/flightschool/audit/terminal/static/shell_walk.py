"""A walk over a shell script: all branches are taken, loops once, functions where they are called.

A command that nothing reaches (a function that is never called, what follows a plain ``exit``) does not appear.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from flightschool.audit.terminal.static.shell_runs import SHELLS, Copies, Guard, ReadScript, Run, is_shell, options_of
from flightschool.audit.terminal.static.shell_tokens import Redirection, Word
from flightschool.audit.terminal.static.shell_tree import (
    AndOr,
    Branch,
    Command,
    Function,
    Group,
    Item,
    Loop,
    Node,
    Pipeline,
    is_bare,
    is_negated,
    parse_shell,
)

__all__ = ["run_shell"]

MOST_RUNS = 1500
MOST_NESTING = 12
_QUIET = frozenset(["true", ":", "echo", "printf"])


def run_shell(
    script: str, *, file: str, path: str, cwd: str, values: Mapping[str, str], read: ReadScript, first_line: int = 1
) -> list[Run]:
    """All commands that a script reaches, 1,500 at most."""
    walker = _Walker(read, dict(values), cwd)
    walker.script(script, file, path, (), first_line)
    for run in walker.last:
        run.use = "last" if run.use == "unused" else run.use
    return walker.runs


class _Walker:
    def __init__(self, read: ReadScript, values: dict[str, str], cwd: str) -> None:
        self.read = read
        self.values = values
        self.cwd = cwd
        self.runs: list[Run] = []
        self.last: list[Run] = []
        self.functions: dict[str, Function] = {}
        self.held_status: dict[str, list[Run]] = {}
        self.held_output: dict[str, list[Run]] = {}
        self.copies = Copies()
        self.errexit = self.pipefail = self.stopped = False
        self.depth = self.conditions = 0
        self.file = ""

    def script(self, text: str, file: str, path: str, guards: tuple[Guard, ...], first_line: int = 1) -> list[Run]:
        """Walk a script of its own; what it runs."""
        if self.depth >= MOST_NESTING:
            return []
        before = (self.file, self.values.get("0", ""), self.stopped)
        self.file, self.values["0"] = file, path
        self.depth += 1
        first = len(self.runs)
        try:
            self.items(parse_shell(text, first_line), guards)
        finally:
            self.depth -= 1
            self.file, self.values["0"], self.stopped = before
        return self.runs[first:]

    # ------------------------------------------------------------------------------------------ structure

    def items(self, items: list[Item], guards: tuple[Guard, ...]) -> list[Run]:
        first = len(self.runs)
        for item in items:
            if self.stopped or len(self.runs) > MOST_RUNS:
                break
            self.chain(item, guards)
        return self.runs[first:]

    def chain(self, chain: AndOr, guards: tuple[Guard, ...]) -> None:
        own = guards
        previous: list[Run] = []
        for at, pipeline in enumerate(chain.pipelines):
            if len(self.runs) > MOST_RUNS:
                break
            if at:
                operator = "and" if chain.operators[at - 1] == "&&" else "or"
                own = (*own, Guard(operator, previous, previous[0].line if previous else 0, operator == "or"))
                if operator == "or":
                    # `a && b || c`: c runs when either failed, so what stood before does not guard it.
                    chained = [run for guard in own[len(guards) :] for run in guard.runs]
                    own = (*guards, Guard("or", chained, own[-1].line, negated=True))
            ends = self.stopped
            previous = self.pipeline(pipeline, own)
            if at:
                self.stopped = ends  # an exit behind && or || is conditional
            self._use(chain, at, previous)
            for run in previous if chain.background else ():
                run.background = True
        self.last = previous

    def _use(self, chain: AndOr, at: int, runs: list[Run]) -> None:
        ends = [run for run in runs if not run.piped and run.use == "unused"]
        if at < len(chain.operators):
            following = chain.pipelines[at + 1].commands[0]
            swallowed = (
                chain.operators[at] == "||"
                and isinstance(following, Command)
                and at + 2 == len(chain.pipelines)
                and not following.redirections
                and bool(following.words)
                and following.words[0].bare in _QUIET
            )
            use = "swallowed" if swallowed and not self.conditions else "condition"
        elif self.conditions:
            use = "condition"
        else:
            use = "errexit" if self.errexit else "unused"
        for run in ends:
            run.use = use

    def pipeline(self, pipeline: Pipeline, guards: tuple[Guard, ...]) -> list[Run]:
        found: list[Run] = []
        before: list[Run] = []
        for at, node in enumerate(pipeline.commands):
            if len(self.runs) > MOST_RUNS:
                break
            first = len(self.runs)
            own = self.node(node, guards)
            for run in self.runs[first:]:
                if before:
                    run.sources += before
                if at < len(pipeline.commands) - 1:
                    run.piped = True
                    run.use = "piped" if not self.pipefail and run.use != "condition" else run.use
            before = own
            found += own
        return found

    def node(self, node: Node, guards: tuple[Guard, ...]) -> list[Run]:
        if isinstance(node, Command):
            return self.command(node, guards)
        if isinstance(node, Function):
            self.functions[node.name] = node
            return []
        first = len(self.runs)
        redirected = self._redirections(node.redirections, guards)
        if isinstance(node, Group):
            self._group(node, guards)
        elif isinstance(node, Branch):
            self._branch(node, guards)
        else:
            self._loop(node, guards)
        for run in self.runs[first:]:
            if not run.writes and not run.piped and not run.captured and not run.asked:
                run.writes = redirected[0]
            run.reads += redirected[1]
        return self.runs[first:]

    def _group(self, node: Group, guards: tuple[Guard, ...]) -> None:
        cwd, stopped = self.cwd, self.stopped
        self.items(node.items, guards)
        if node.subshell:
            self.cwd, self.stopped = cwd, stopped

    def _branch(self, node: Branch, guards: tuple[Guard, ...]) -> None:
        before: list[Run] = []
        cwd = self.cwd
        if node.subject is not None:
            before = self._asking(node.subject, node.line, guards)
        for condition, body in node.arms:
            stopped = self.stopped
            if condition is None:
                kind, runs, negated = "else", before, True
            elif node.subject is not None:
                kind, runs, negated = "case", before, False
            else:
                self.conditions += 1
                runs = self.items(condition, guards)
                self.conditions -= 1
                kind, negated = "if", is_negated(condition)
                before = [*before, *runs]
                if is_bare(condition, "false"):
                    continue
            self.items(body, (*guards, Guard(kind, runs, node.line, negated)))
            self.cwd, self.stopped = cwd, stopped

    def _asking(self, subject: Word, line: int, guards: tuple[Guard, ...]) -> list[Run]:
        """The subject of a ``case`` as if it were tested."""
        run = Run(("case",), self.file, line, self.cwd, guards, use="condition")
        run.words = ("case", self._word(subject, run, guards))
        self.runs.append(run)
        return [run]

    def _loop(self, node: Loop, guards: tuple[Guard, ...]) -> None:
        self.conditions += 1
        runs = self.items(node.condition, guards)
        self.conditions -= 1
        stopped = self.stopped
        if node.name:
            run = Run(("for",), self.file, node.line, self.cwd, guards)
            words = [self._word(word, run, guards) for word in node.words]
            run.words = ("for", *words)
            self.held_output[node.name] = list(run.sources)
            self.values.pop(node.name, None)
            if len(words) == 1 and "*" not in words[0]:
                self.values[node.name] = words[0]
        self.items(node.body, (*guards, Guard("loop", runs, node.line)))
        self.stopped = stopped

    # ------------------------------------------------------------------------------------------ one command

    def command(self, command: Command, guards: tuple[Guard, ...]) -> list[Run]:
        run = Run((), self.file, command.line, self.cwd, guards, asked=self.conditions > 0)
        assigned = self._assign(command, run, guards)
        words: list[str] = []
        for word in command.words:
            text = self._word(word, run, guards)
            quoted = any(part.quoted or part.kind == "text" for part in word.parts)
            words += [text] if quoted or " " not in text else text.split()
        run.words = tuple(words)
        run.env = assigned if words else {}
        writes, reads, document = self._redirections(command.redirections, guards)
        run.writes, run.reads, run.document = writes, reads, document
        if not words and not writes:
            return self._assigning(command)
        self.runs.append(run)
        self._effects(run, guards)
        return [run]

    def _assign(self, command: Command, run: Run, guards: tuple[Guard, ...]) -> dict[str, str]:
        assigned: dict[str, str] = {}
        for name, value in command.assignments:
            holder = Run((), self.file, command.line, self.cwd, guards)
            text = self._word(value, holder, guards)
            assigned[name] = text
            if command.words:
                run.sources += holder.sources
                continue
            self.held_status[name], self.held_output[name] = holder.statuses, holder.sources
            if guards or "$()" in text or text.startswith("$"):
                self.values.pop(name, None)
            else:
                self.values[name] = text
        return assigned

    def _assigning(self, command: Command) -> list[Run]:
        """The status of a bare assignment is that of its last substitution."""
        held = [run for name, value in command.assignments if value.commands for run in self.held_output[name]]
        ends = [run for run in held if not run.piped]
        for run in ends if self.errexit and not self.conditions else ():
            run.use = "errexit"
        return ends

    def _word(self, word: Word, run: Run, guards: tuple[Guard, ...]) -> str:
        values = self.values
        for part in word.parts:
            if part.kind == "variable":
                self._look(part.text, run)
            elif part.kind == "command":
                text = self._substitution(part.text, run, guards)
                if text:
                    values = {**values, f"\0{part.text}": text}
            elif part.kind == "arithmetic":
                for name in part.text.replace("$", " ").split():
                    self._look(name, run)
        if values is self.values:
            return word.text(values)
        return "".join(
            values.get(f"\0{part.text}", "$()") if part.kind == "command" else Word((part,), 0).text(values)
            for part in word.parts
        )

    def _look(self, name: str, run: Run) -> None:
        if name == "?":
            run.statuses += self.last
        elif name == "PIPESTATUS":
            run.statuses += [other for last in self.last for other in (last, *last.sources)] or self.last
        else:
            run.statuses += self.held_status.get(name, [])
            run.sources += self.held_output.get(name, [])
            return
        for looked in run.statuses:
            if looked.use in ("unused", "errexit", "last") or name == "PIPESTATUS":
                looked.use = "captured"

    def _substitution(self, script: str, run: Run, guards: tuple[Guard, ...]) -> str:
        """Walk a command substitution; its text where that is known."""
        stripped = script.strip()
        if stripped == "pwd":
            return self.cwd
        if "dirname" in stripped and ("$0" in stripped or "BASH_SOURCE" in stripped):
            return posixpath.dirname(self.values.get("0", ""))
        if self.depth >= MOST_NESTING or len(self.runs) > MOST_RUNS:
            return ""
        self.depth += 1
        state = (self.cwd, self.stopped, self.last, self.conditions)
        self.conditions = 0
        first = len(self.runs)
        self.items(parse_shell(script, run.line), guards)
        self.cwd, self.stopped, self.last, self.conditions = state
        self.depth -= 1
        for inner in self.runs[first:]:
            inner.captured = True
            inner.use = "captured" if inner.use in ("unused", "last") else inner.use
        run.sources += self.runs[first:]
        return ""

    def _redirections(
        self, redirections: list[Redirection], guards: tuple[Guard, ...]
    ) -> tuple[tuple[tuple[str, bool], ...], tuple[str, ...], str | None]:
        writes: list[tuple[str, bool]] = []
        reads: list[str] = []
        document = None
        for redirection in redirections:
            if redirection.document is not None:
                document = redirection.document
                continue
            holder = Run((), self.file, redirection.target.line, self.cwd, guards)
            path = holder.path(self._word(redirection.target, holder, guards))
            if redirection.operator in ("<", "<>"):
                reads += [path] if path else []
            elif (
                redirection.operator != "<&" and redirection.descriptor != "2" and not path.rpartition("/")[2].isdigit()
            ):
                writes += [(path, redirection.operator in (">>", "&>>"))] if path else []
        return tuple(writes), tuple(reads), document

    # ------------------------------------------------------------------------------------------ effects

    def _effects(self, run: Run, guards: tuple[Guard, ...]) -> None:
        argv = run.argv
        program = run.program
        arguments = [word for word in argv[1:] if not word.startswith("-")]
        if program in self.functions and self.depth < MOST_NESTING:
            self.depth += 1
            conditions, self.conditions = self.conditions, 0
            run.inner += self.items(self.functions[program].body, guards)
            self.conditions = conditions
            self.stopped = self.stopped and not any(inner.program == "return" for inner in run.inner)
            self.depth -= 1
        elif program in ("cd", "pushd"):
            self.cwd = run.path(arguments[0]) if arguments else self.values.get("HOME", "/root")
        elif program == "set":
            changed = options_of(argv[1:])
            self.errexit = changed.get("errexit", self.errexit)
            self.pipefail = changed.get("pipefail", self.pipefail)
        elif program in ("export", "declare", "local", "readonly", "typeset"):
            self._declare(arguments, run)
        elif program in ("exit", "return") and not guards:
            self.stopped = True
        elif program == "trap" and len(argv) > 2 and set(argv[2:]) & {"EXIT", "0", "ERR"}:
            self._trap(argv[1], run, guards)
        elif program in ("cp", "mv", "install", "ln") and len(arguments) >= 2:
            self.copies.add(run, arguments, self.values.get("HOME", ""))
        else:
            self._start(program, argv, run, guards)

    def _declare(self, arguments: list[str], run: Run) -> None:
        for word in arguments:
            name, equals, value = word.partition("=")
            if equals:
                self.held_output[name], self.held_status[name] = list(run.sources), list(run.statuses)
                if "$()" not in value:
                    self.values[name] = value

    def _trap(self, script: str, run: Run, guards: tuple[Guard, ...]) -> None:
        state = (self.stopped, self.last, self.cwd)
        if script not in ("", "-"):
            run.inner += self.items(parse_shell(script, run.line), (*guards, Guard("trap", [], run.line)))
        self.stopped, self.last, self.cwd = state

    def _start(self, program: str, argv: tuple[str, ...], run: Run, guards: tuple[Guard, ...]) -> None:
        """Follow a script that is sourced, given to a shell, or started by its path."""
        if program in SHELLS:
            flags = [word for word in argv[1:] if word.startswith("-")]
            if any(flag.endswith("c") and not flag.startswith("--") for flag in flags):
                inner = next((word for word in argv[1:] if not word.startswith("-")), "")
                self._follow(inner, run.file, "", run, guards, first_line=run.line)
                return
            if run.document is not None:
                self._follow(run.document, run.file, "", run, guards, first_line=run.line + 1)
                return
            target = next((word for word in argv[1:] if not word.startswith("-")), "")
        elif program in (".", "source"):
            target = argv[1] if len(argv) > 1 else ""
        elif argv and "/" in argv[0]:
            target = argv[0]
        else:
            return
        found = self.read(self.copies.real(run.path(target))) if target else None
        if found is not None and (program in SHELLS or program in (".", "source") or is_shell(found[1])):
            run.in_script = found[0]
            self._follow(found[1], found[0], run.path(target), run, guards, own=program not in (".", "source"))

    def _follow(
        self,
        text: str,
        file: str,
        path: str,
        run: Run,
        guards: tuple[Guard, ...],
        own: bool = True,
        first_line: int = 1,
    ) -> None:
        state = (self.cwd, self.errexit, self.pipefail, self.last, self.conditions)
        if own:
            self.errexit = self.pipefail = False
        if text and len(self.runs) <= MOST_RUNS:
            run.inner += self.script(text, file, path or self.values.get("0", ""), guards, first_line)
        if own:
            self.cwd, self.errexit, self.pipefail, self.last, self.conditions = state
