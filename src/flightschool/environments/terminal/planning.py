"""From a Dockerfile to a build plan: stages, variables, users and folders are followed; nothing is run.

Every instruction becomes one step. What cannot be replayed without a container engine carries an obstacle with its
line, and the task *needs docker*; it is not failed. What would fail in Docker too (a source that is not there, a
variable that must be set) is an error.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence

import msgspec

from flightschool.environments.terminal.copying import Context, copy_targets
from flightschool.environments.terminal.dockerfile import Dockerfile, Instruction, json_form
from flightschool.environments.terminal.fetching import PackageRequest, fetches_of_argv, fetches_of_script
from flightschool.environments.terminal.plan_records import (
    ArgStep,
    BuildPlan,
    BuildStep,
    CopySource,
    CopyStep,
    EnvStep,
    FromStep,
    Need,
    Obstacle,
    OtherStep,
    RunStep,
    UserStep,
    WorkdirStep,
)
from flightschool.environments.terminal.stages import Stage, needed_stages, split_stages
from flightschool.environments.terminal.substitution import (
    SubstitutionError,
    expand_text,
    expand_word,
    name_values,
    split_words,
)
from flightschool.errors import InputError

__all__ = ["IsPresent", "plan_dockerfile"]

IsPresent = Callable[[PackageRequest], bool]
"""Whether a package that apt or pip is asked for is there already, in a version that will do."""

MAX_VARIABLES = 2000
MAX_ITEMS = 500_000
"""Paths that all COPY steps of one file may bring together: a plan must fit in memory whatever a task says."""
_NO_EFFECT = frozenset({"CMD", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "ONBUILD", "STOPSIGNAL", "VOLUME"})
_PREDEFINED = frozenset(
    f"{name}{end}" for name in ("HTTP", "HTTPS", "FTP", "NO", "ALL") for end in ("_PROXY",)
) | frozenset(f"{name}_proxy" for name in ("http", "https", "ftp", "no", "all"))
_OF_THE_BASE = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_COPY_FLAGS = frozenset({"chown", "chmod", "link", "from"})
_REMOTE = ("http://", "https://", "git@", "git://", "ssh://", "ftp://")


def plan_dockerfile(
    dockerfile: Dockerfile,
    context: Context,
    *,
    build_args: Mapping[str, str],
    architecture: str,
    is_present: IsPresent | None,
    where: str = "Dockerfile",
) -> BuildPlan:
    """The plan of the last stage.

    Raises:
        InputError: the file cannot build anywhere, or a path leaves the context; with the line.
    """
    stages, global_args = split_stages(dockerfile, build_args, architecture, where)
    steps: list[BuildStep] = []
    needed = needed_stages(stages)
    planner = _Planner(dockerfile, context, build_args, architecture, global_args, where)
    planner.stage_names = frozenset(name for stage in stages for name in (stage.name, str(stage.index)))
    for stage in needed:
        steps += planner.base_steps(stage, first=stage is needed[0])
        steps += [planner.step(instruction) for instruction in stage.instructions]
    if dockerfile.syntax and not dockerfile.syntax.split(":")[0].endswith("docker/dockerfile"):
        planner.general.append(planner.obstacle(1, f"the file wants the frontend {dockerfile.syntax}"))
    return BuildPlan(
        base=needed[0].image,
        steps=tuple(_with_network(steps, is_present, where)),
        stages=tuple(stage.name or str(stage.index) for stage in stages),
        workdir=planner.workdir,
        user=planner.user,
        env=planner.env,
        general=tuple(planner.general),
    )


def _with_network(steps: Sequence[BuildStep], is_present: IsPresent | None, where: str) -> list[BuildStep]:
    """Mark RUN steps that fetch what is not there. Lists are only refreshed for the sake of packages."""
    fetches = [fetch for step in steps if isinstance(step, RunStep) for fetch in step.fetches]
    unmet = [
        fetch
        for fetch in fetches
        if not fetch.index_only
        and (fetch.project or is_present is None or not fetch.packages or not all(map(is_present, fetch.packages)))
    ]
    lists_wanted = is_present is None or any(fetch.tool == "apt" for fetch in unmet)
    marked: list[BuildStep] = []
    for step in steps:
        if isinstance(step, RunStep):
            reasons = [f.reason for f in step.fetches if (lists_wanted if f.index_only else f in unmet)]
            more = tuple(Obstacle(need=Need.NETWORK, file=where, line=step.line, reason=reason) for reason in reasons)
            step = msgspec.structs.replace(step, obstacles=step.obstacles + more)
        marked.append(step)
    return marked


class _Planner:
    """The state that instructions see, and their meaning one by one."""

    def __init__(
        self,
        dockerfile: Dockerfile,
        context: Context,
        build_args: Mapping[str, str],
        architecture: str,
        global_args: Mapping[str, str],
        where: str,
    ) -> None:
        self.escape = dockerfile.escape
        self.context = context
        self.build_args = build_args
        self.architecture = architecture
        self.global_args = global_args
        self.where = where
        self.stage_names: frozenset[str] = frozenset()
        self.general: list[Obstacle] = []
        self.workdir, self.user = "/", ""
        self.env: dict[str, str] = {}
        self.shell: tuple[str, ...] = ("/bin/sh", "-c")
        self.args = {name: value for name, value in build_args.items() if name in _PREDEFINED}
        """Declared ones; a stage inherits those of the stage that it stands on."""
        self.files: dict[str, str] = {}
        """Absolute path → path in the context, of files copied so far."""
        self.folders: set[str] = set()
        self.num_items = 0

    # -------------------------------------------------------------------------------------------- common

    def place(self, instruction: Instruction) -> str:
        return f"{self.where}:{instruction.line}"

    def obstacle(self, line: int, reason: str) -> Obstacle:
        return Obstacle(need=Need.DOCKER, file=self.where, line=line, reason=reason)

    def expand(self, text: str) -> str:
        return expand_word(text, self.known, self.escape)

    @property
    def known(self) -> dict[str, str]:
        """Variables that a word may name: what every base image sets, then arguments, then ENV."""
        return {**_OF_THE_BASE, **self.args, **self.env}

    def absolute(self, path: str) -> str:
        """A path of the tree, a relative one below the working directory."""
        normal = posixpath.normpath(posixpath.join(self.workdir, path))
        return "/" + normal.lstrip("/")

    def base_steps(self, stage: Stage, *, first: bool) -> list[BuildStep]:
        obstacles = []
        if stage.platform and stage.platform.split("/")[1:2] != [self.architecture]:
            obstacles.append(self.obstacle(stage.line, f"the base is of platform {stage.platform}"))
        if not first:
            self.general += obstacles
            return []
        return [
            FromStep(
                line=stage.line,
                end_line=stage.line,
                text=f"FROM {stage.image}",
                image=stage.image,
                obstacles=tuple(obstacles),
            )
        ]

    def step(self, instruction: Instruction) -> BuildStep:
        """The step of one instruction; the state moves on."""
        try:
            return self._step(instruction)
        except SubstitutionError as error:
            raise InputError(
                f"{instruction.keyword} cannot be read: {error}",
                where=self.place(instruction),
                expected="words, quotes and variables in order",
                mend="correct the line",
            ) from None

    def _step(self, instruction: Instruction) -> BuildStep:
        if instruction.keyword == "RUN":
            return self._run(instruction)
        if instruction.keyword in ("COPY", "ADD"):
            return self._copy(instruction)
        return self._state(instruction)

    def _state(self, instruction: Instruction) -> BuildStep:
        """Instructions that change what later ones see, and those that do nothing."""
        line, end_line, text = instruction.line, instruction.end_line, instruction.text
        match instruction.keyword:
            case "ENV":
                values = name_values(instruction.rest, self.known, self.escape)
                self.env = {**self.env, **values}
                self._limit(len(self.env), MAX_VARIABLES, "variables", instruction)
                return EnvStep(line=line, end_line=end_line, text=text, values=values)
            case "ARG":
                values = self._args(instruction)
                self._limit(len(self.args), MAX_VARIABLES, "arguments", instruction)
                return ArgStep(line=line, end_line=end_line, text=text, values=values)
            case "WORKDIR":
                self.workdir = self.absolute(self.expand(instruction.rest))
                self.folders.add(self.workdir)
                return WorkdirStep(line=line, end_line=end_line, text=text, path=self.workdir)
            case "USER":
                self.user = self.expand(instruction.rest)
                return UserStep(line=line, end_line=end_line, text=text, user=self.user)
        return OtherStep(
            line=line, end_line=end_line, text=text, keyword=instruction.keyword, obstacles=self._other(instruction)
        )

    def _limit(self, count: int, most: int, what: str, instruction: Instruction) -> None:
        if count > most:
            raise InputError(
                f"more than {most} {what}", where=self.place(instruction), expected="an environment", mend="shorten it"
            )

    # -------------------------------------------------------------------------------------------- one by one

    def _other(self, instruction: Instruction) -> tuple[Obstacle, ...]:
        words = json_form(instruction.rest)
        if instruction.keyword == "SHELL":
            if not words:
                raise InputError(
                    "SHELL wants a JSON list",
                    where=self.place(instruction),
                    expected='["sh", "-c"]',
                    mend="write it so",
                )
            self.shell = words
            return ()
        if instruction.keyword == "ENTRYPOINT":
            # An entry point runs before and around every command; without an engine nothing would run it.
            return () if words == () else (self.obstacle(instruction.line, "ENTRYPOINT starts a program of its own"),)
        if instruction.keyword in _NO_EFFECT:
            return ()
        return (self.obstacle(instruction.line, f"{instruction.keyword} is not replayed"),)

    def _args(self, instruction: Instruction) -> dict[str, str]:
        found: dict[str, str] = {}
        for word in split_words(instruction.rest, self.escape):
            name, equals, default = word.partition("=")
            if name in self.build_args:
                found[name] = self.build_args[name]
            elif equals:
                found[name] = self.expand(default)
            elif name in self.global_args:
                found[name] = self.global_args[name]
            if name in found:
                self.args[name] = found[name]
        return found

    def _run(self, instruction: Instruction) -> RunStep:
        words = json_form(instruction.rest)
        script, argv = "", words
        env = {**self.args, **self.env}
        heredocs = instruction.heredocs
        command = instruction.rest
        if argv is None and len(heredocs) == 1 and len(split_words(command, self.escape)) == 1:
            command = heredocs[0].content
            script = command if command.startswith("#!") else ""
        elif argv is None and heredocs:
            command = "\n".join([command, *(f"{doc.content}{doc.name}" for doc in heredocs)])
        fetches = (
            fetches_of_argv(argv, env, self._text_of)
            if argv is not None
            else fetches_of_script(command, env, self._text_of)
        )
        obstacles, scratch = self._run_flags(instruction)
        return RunStep(
            line=instruction.line,
            end_line=instruction.end_line,
            text=instruction.text,
            obstacles=obstacles,
            scratch=scratch,
            argv=argv if argv is not None else (*self.shell, command),
            script=script,
            workdir=self.workdir,
            user=self.user,
            env=env,
            fetches=tuple(fetches),
        )

    def _run_flags(self, instruction: Instruction) -> tuple[tuple[Obstacle, ...], tuple[str, ...]]:
        """What of the flags is not replayed, and the folders that exist for the command alone."""
        found, scratch = [], []
        for name, value in instruction.flags:
            options = dict(pair.partition("=")[::2] for pair in value.split(","))
            if name == "mount" and options.get("type", "bind") in ("cache", "tmpfs"):
                places = (options.get(key) for key in ("target", "dst", "destination"))
                scratch += [self.absolute(self.expand(place)) for place in places if place]
                continue
            if (name, value) in (("network", "default"), ("network", "none"), ("security", "sandbox")):
                continue
            found.append(self.obstacle(instruction.line, f"RUN --{name}={value} is not replayed"))
        return tuple(found), tuple(scratch)

    def _text_of(self, path: str) -> str | None:
        """Text of a file that was copied, for ``pip install -r``."""
        source = self.files.get(self.absolute(path))
        try:
            return self.context.contents.read_text(source) if source is not None else None
        except InputError:  # no text: what it lists is not known
            return None

    def _copy(self, instruction: Instruction) -> BuildStep:
        flags = {name: self.expand(value) for name, value in instruction.flags}
        words = json_form(instruction.rest) or tuple(instruction.rest.split())
        expanded = [word if _is_heredoc(word, instruction) else self.expand(word) for word in words]
        if len(expanded) < 2:
            raise InputError(
                f"{instruction.keyword} without a destination",
                where=self.place(instruction),
                expected="sources and a destination",
                mend="add it",
            )
        *names, destination = expanded
        reason = self._unplannable(instruction.keyword, flags, names)
        if reason:
            return OtherStep(
                line=instruction.line,
                end_line=instruction.end_line,
                text=instruction.text,
                keyword=instruction.keyword,
                obstacles=(self.obstacle(instruction.line, reason),),
            )
        sources = self._sources(instruction, names)
        self.num_items += sum(len(source.items) for source in sources)
        self._limit(self.num_items, MAX_ITEMS, "copied files", instruction)
        into = destination.endswith("/") or destination in (".", "..") or destination.endswith(("/.", "/.."))
        target = self.absolute(destination)
        step = CopyStep(
            line=instruction.line,
            end_line=instruction.end_line,
            text=instruction.text,
            sources=tuple(sources),
            destination=target.rstrip("/") + "/" if into else target,
            owner=flags.get("chown", ""),
            mode=flags.get("chmod", ""),
            content_digest=self.context.digest(sources),
        )
        if len(sources) > 1 and not into and target not in self.folders:
            raise InputError(
                f"several files are copied to {destination!r}, which is no folder",
                where=self.place(instruction),
                expected="a destination that ends with /",
                mend=f"write {destination}/",
            )
        self._remember(step)
        return step

    def _unplannable(self, keyword: str, flags: Mapping[str, str], names: Sequence[str]) -> str:
        if "from" in flags:
            kind = "stage" if flags["from"] in self.stage_names else "image"
            return f"{keyword} --from copies out of the {kind} {flags['from']!r}"
        unknown = [name for name in flags if name not in _COPY_FLAGS]
        if unknown:
            return f"{keyword} --{unknown[0]} is not replayed"
        remote = [name for name in names if name.startswith(_REMOTE)] if keyword == "ADD" else []
        return f"ADD fetches {remote[0]}" if remote else ""

    def _sources(self, instruction: Instruction, names: Sequence[str]) -> list[CopySource]:
        documents = list(instruction.heredocs)
        sources: list[CopySource] = []
        for name in names:
            if _is_heredoc(name, instruction):
                document = documents.pop(0)
                text = expand_text(document.content, self.known, self.escape) if document.expand else document.content
                sources.append(CopySource(path=document.name, name=document.name, is_folder=False, content=text))
            else:
                sources += self.context.sources(name, self.place(instruction), unpack=instruction.keyword == "ADD")
        return sources

    def _remember(self, step: CopyStep) -> None:
        for source, item, target in copy_targets(step, self.folders.__contains__):
            if item is None or item.kind == "folder":
                self.folders.add(target)
            elif item.kind == "file":
                self.files[target] = source.path if not source.is_folder else item.path
                self.folders.add(posixpath.dirname(target))


def _is_heredoc(word: str, instruction: Instruction) -> bool:
    return bool(instruction.heredocs) and word.lstrip("0123456789").startswith("<<")
