"""From a Dockerfile to steps: variables, folders, users, copies, and what cannot be replayed, with its line."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from flightschool.environments.terminal import (
    ArgStep,
    BuildPlan,
    CopyStep,
    EnvStep,
    FromStep,
    Need,
    OtherStep,
    PackageRequest,
    Readiness,
    RunStep,
    UserStep,
    WorkdirStep,
    copy_targets,
    plan_build,
    read_folder,
)
from flightschool.errors import InputError

Write = Callable[[str, Mapping[str, str]], Path]
Sample = Callable[[str], Path]

BASE = {"task.toml": "", "instruction.md": "Do it.\n", "tests/test.sh": "true\n"}


@pytest.fixture
def plan(write: Write) -> Callable[..., BuildPlan]:
    """The plan of a Dockerfile with files of its context beside it."""

    def make(dockerfile: str, context: Mapping[str, str] | None = None, **options: object) -> BuildPlan:
        files = {f"environment/{path}": text for path, text in (context or {}).items()}
        folder = write("one", {**BASE, "environment/Dockerfile": dockerfile, **files})
        return plan_build(read_folder(folder), **options)  # type: ignore[arg-type]

    return make


def runs(plan: BuildPlan) -> list[RunStep]:
    return [step for step in plan.steps if isinstance(step, RunStep)]


def copies(plan: BuildPlan) -> list[CopyStep]:
    return [step for step in plan.steps if isinstance(step, CopyStep)]


def targets(plan: BuildPlan, folders: tuple[str, ...] = ()) -> dict[str, str]:
    """Absolute path → path in the context, files only."""
    return {
        target: item.path
        for step in copies(plan)
        for _, item, target in copy_targets(step, folders.__contains__)
        if item is not None and item.kind == "file"
    }


# ------------------------------------------------------------------------------------------------ state


def test_every_instruction_becomes_one_step_with_its_lines(sample: Sample) -> None:
    plan = plan_build(read_folder(sample("perl_words")))
    assert [(type(step), step.line) for step in plan.steps] == [
        (FromStep, 1), (RunStep, 2), (WorkdirStep, 3), (CopyStep, 4), (UserStep, 5),
    ]  # fmt: skip
    copy = copies(plan)[0]
    assert (copy.owner, copy.mode, copy.destination) == ("clerk:clerk", "0644", "/srv/words/in/")
    assert (plan.base, plan.user, plan.workdir, plan.readiness) == (
        "debian:12", "clerk", "/srv/words", Readiness.REPLAYABLE,
    )  # fmt: skip


def test_arguments_heredocs_and_shell(sample: Sample) -> None:
    plan = plan_build(read_folder(sample("arguments")))
    assert plan.base == "debian:12"
    script, shell = runs(plan)
    assert script.argv == ("/bin/sh", "-c", "set -e\nmkdir -p $FULL\n")
    assert script.env == {"VERSION": "12", "HOME_DIR": "/opt/tool", "NAME": "tool", "FULL": "/opt/tool/12"}
    assert shell.argv == ("/bin/bash", "-euc", 'echo "$FULL"')
    assert {s.name: s.content for s in copies(plan)[0].sources} == {
        "one.conf": "name=tool\n",
        "two.conf": "name=$NAME\n",
    }
    assert plan.env == {"NAME": "tool", "FULL": "/opt/tool/12"}, "build arguments do not live on"
    other = plan_build(read_folder(sample("arguments")), build_args={"VERSION": "11", "UNUSED": "x"})
    assert (other.base, runs(other)[0].env["FULL"]) == ("debian:11", "/opt/tool/11")


def test_rank_and_scope_of_variables(plan: Callable[..., BuildPlan]) -> None:
    made = plan(
        "ARG A=global\nARG B=${A}2\nFROM x:$B\nARG A\nARG C=$A-$B\nENV A=env\nARG A=late\nARG TARGETARCH\n"
        "USER $A\nWORKDIR /a/$C\nWORKDIR ../$TARGETARCH/./b\n"
    )
    args = [step.values for step in made.steps if isinstance(step, ArgStep)]
    assert args == [{"A": "global"}, {"C": "global-"}, {"A": "late"}, {"TARGETARCH": "amd64"}]
    assert made.base == "x:global2"
    assert (made.user, made.workdir) == ("env", "/a/amd64/b")
    assert [step.values for step in made.steps if isinstance(step, EnvStep)] == [{"A": "env"}]


def test_forms_of_run(plan: Callable[..., BuildPlan]) -> None:
    made = plan(
        'FROM a\nWORKDIR w\nUSER u:g\nRUN ["ls", "$HOME"]\nRUN cat <<E > /f\n$x\nE\n'
        "RUN <<E\n#!/usr/bin/perl\nprint 1;\nE\n"
    )
    exec_form, document, script = runs(made)
    assert exec_form.argv == ("ls", "$HOME")
    assert (exec_form.workdir, exec_form.user) == ("/w", "u:g")
    assert document.argv[-1] == "cat <<E > /f\n$x\nE"
    assert document.script == ""
    assert script.script == "#!/usr/bin/perl\nprint 1;\n"


def test_the_digest_follows_content_and_not_comments(plan: Callable[..., BuildPlan]) -> None:
    first = plan("FROM a\nCOPY f /f\nRUN apt-get install -y x\n", {"f": "1"})
    assert plan("# hello\n\nFROM a\nCOPY f /f\nRUN apt-get install -y x\n", {"f": "1"}).digest == first.digest
    assert plan("FROM a\nCOPY f /f\nRUN apt-get install -y x\n", is_present=lambda _: True).digest == first.digest
    assert plan("FROM a\nCOPY f /f\nRUN apt-get install -y x\n", {"f": "2"}).digest != first.digest
    assert plan("FROM a\nCOPY f /g\nRUN apt-get install -y x\n", {"f": "1"}).digest != first.digest


# ------------------------------------------------------------------------------------------------ copies


def test_ignored_paths_do_not_exist(sample: Sample) -> None:
    plan = plan_build(read_folder(sample("ignored")))
    assert targets(plan) == {
        "/app/docs/one.txt": "docs/one.txt",
        "/app/docs/three.md": "docs/three.md",
        "/app/docs/two.txt": "docs/two.txt",
        "/app/keep.log": "keep.log",
        "/texts/one.txt": "docs/one.txt",
        "/texts/two.txt": "docs/two.txt",
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("COPY f /x", {"/x": "f"}),
        ("COPY f /x/", {"/x/f": "f"}),
        ("COPY f .", {"/w/f": "f"}),
        ("COPY f ../y", {"/y": "f"}),
        ("COPY ./d/../f /x", {"/x": "f"}),
        ("COPY /f /x", {"/x": "f"}),
        ("COPY d /x", {"/x/g": "d/g", "/x/s/h": "d/s/h"}),
        ("COPY d/s d/g /x/", {"/x/h": "d/s/h", "/x/g": "d/g"}),
        ("COPY d/* /x/", {"/x/g": "d/g", "/x/h": "d/s/h"}),
        ('COPY ["a b", "/x y/"]', {"/x y/a b": "a b"}),
        ("COPY f /folder", {"/folder/f": "f"}),
        ("COPY d$NONE/[g-h] $W/z", {"/w/z": "d/g"}),
        ("COPY q* f /x/", {"/x/f": "f"}),
    ],
)
def test_where_copies_go(plan: Callable[..., BuildPlan], line: str, expected: dict[str, str]) -> None:
    context = {"f": "f", "d/g": "g", "d/s/h": "h", "a b": "ab"}
    assert targets(plan(f"FROM a\nWORKDIR /w\nENV W=/w\n{line}\n", context), ("/folder",)) == expected


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("COPY ../../secret /x", "'../../secret' leaves the build context"),
        ("COPY d/../../instruction.md /x", "leaves the build context"),
        ("COPY out /x", "'out' leaves the build context.*link 'out'"),
        ("COPY up/instruction.md /x", "leaves the build context.*link 'up'"),
        ("COPY absolute /x", "'absolute' leaves the build context.*/etc/hostname"),
        ("ADD round /x", "'round' leads in a circle by the link 'round'"),
        ("COPY missing /x", "'missing' is not in the build context"),
        ("COPY hidden /x", "'hidden' is left out by .dockerignore"),
        ("COPY f hidden* g /x", "several files are copied to '/x'"),
        ("COPY f", "COPY without a destination"),
        ("COPY 'f /x", "COPY cannot be read: no closing single quote"),
    ],
)
def test_copies_that_must_not_be_are_refused_by_name(write: Write, line: str, what: str) -> None:
    folder = write(
        "one",
        {
            **BASE,
            "environment/Dockerfile": f"FROM a\n{line}\n",
            "environment/.dockerignore": "hidden*\n",
            "environment/hidden": "",
            "environment/f": "f",
            "environment/g": "g",
        },
    )
    links = {"out": "../instruction.md", "up": "..", "absolute": "/etc/hostname", "round": "round"}
    for name, target in links.items():
        (folder / "environment" / name).symlink_to(target)
    with pytest.raises(InputError, match=what) as caught:
        plan_build(read_folder(folder))
    assert caught.value.where == "environment/Dockerfile:2"


def test_links_inside_stay_links_and_are_followed_when_named(write: Write) -> None:
    folder = write(
        "one", {**BASE, "environment/Dockerfile": "FROM a\nCOPY alias /x\nCOPY . /all/\n", "environment/d/f": "f"}
    )
    (folder / "environment" / "alias").symlink_to("d/f")
    (folder / "environment" / "d" / "python").symlink_to("/usr/bin/python3")
    first, second = copies(plan_build(read_folder(folder)))
    assert [(item.path, item.kind) for item in first.sources[0].items] == [("d/f", "file")]
    links = {item.path: item.target for item in second.sources[0].items if item.kind == "link"}
    assert links == {"alias": "d/f", "d/python": "/usr/bin/python3"}, "made as they stand, read by no one"


def test_add_unpacks_local_archives_and_copy_does_not(write: Write) -> None:
    folder = write("one", {**BASE, "environment/Dockerfile": "FROM a\nADD a.tgz /x\nCOPY a.tgz /y\nADD f /z\n"})
    (folder / "environment" / "f").write_text("plain", encoding="utf-8")
    with tarfile.open(folder / "environment" / "a.tgz", "w:gz") as archive:
        member = tarfile.TarInfo("inner")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"1"))
    assert [step.sources[0].unpack for step in copies(plan_build(read_folder(folder)))] == [True, False, False]


# ------------------------------------------------------------------------------------------------ obstacles


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("COPY --from=alpine:3 /a /b", "COPY --from copies out of the image 'alpine:3'"),
        ("COPY --parents f /b/", "COPY --parents is not replayed"),
        ("ADD https://example.org/a.tar /a", "ADD fetches https://example.org/a.tar"),
        ('ENTRYPOINT ["/start"]', "ENTRYPOINT starts a program of its own"),
        ("RUN --mount=type=secret,id=a ls", "RUN --mount=type=secret,id=a is not replayed"),
        ("RUN --mount=from=b,target=/c ls", "RUN --mount=from=b,target=/c is not replayed"),
        ("RUN --network=host ls", "RUN --network=host is not replayed"),
        ("RUN --security=insecure ls", "RUN --security=insecure is not replayed"),
    ],
)
def test_what_needs_docker_says_why_and_on_which_line(plan: Callable[..., BuildPlan], line: str, reason: str) -> None:
    made = plan(f"FROM a\nRUN true\n{line}\n", {"f": ""})
    assert made.readiness is Readiness.NEEDS_DOCKER
    obstacle = made.obstacles[0]
    assert (obstacle.need, obstacle.file, obstacle.line, obstacle.reason) == (
        Need.DOCKER, "environment/Dockerfile", 3, reason,
    )  # fmt: skip
    assert [step.is_replayable for step in made.steps] == [True, True, False]


def test_what_leaves_the_tree_alone_is_no_obstacle(plan: Callable[..., BuildPlan]) -> None:
    made = plan(
        "# syntax=docker/dockerfile:1\nFROM --platform=linux/amd64 a\nLABEL x=y\nEXPOSE 80\n"
        'CMD ["bash"]\nENTRYPOINT []\n'
        "STOPSIGNAL 9\nHEALTHCHECK NONE\nMAINTAINER me\nVOLUME /v\n"
        "RUN --mount=type=cache,target=/c --network=none true\n"
    )
    assert made.readiness is Readiness.REPLAYABLE
    assert sum(isinstance(step, OtherStep) for step in made.steps) == 8


def test_cache_mounts_are_folders_for_the_command_alone(plan: Callable[..., BuildPlan]) -> None:
    made = plan(
        "FROM a\nARG C=/cache\nWORKDIR /app\n"
        "RUN --mount=type=cache,target=$C/x --mount=type=tmpfs,dst=tmp,size=9 --mount=type=cache,id=y true\nRUN true\n"
    )
    assert [run.scratch for run in runs(made)] == [("/cache/x", "/app/tmp"), ()]


def test_stages(sample: Sample, plan: Callable[..., BuildPlan]) -> None:
    used = plan_build(read_folder(sample("several_stages")))
    assert (used.stages, used.is_multi_stage) == (("build", "1"), True)
    assert used.base == "debian:12"
    assert [o.line for o in used.obstacles] == [5]
    unused = plan("FROM a AS tools\nRUN curl http://x.org\nFROM b\nRUN true\n")
    assert (unused.base, unused.readiness) == ("b", Readiness.REPLAYABLE), "the builder skips what nothing needs"
    stacked = plan("FROM a AS low\nARG X=1\nENV Y=2\nWORKDIR /low\nFROM Low AS high\nRUN echo $X\n")
    assert (stacked.base, runs(stacked)[0].env, stacked.workdir) == ("a", {"X": "1", "Y": "2"}, "/low")


def test_other_frontends_and_platforms_need_docker(plan: Callable[..., BuildPlan]) -> None:
    made = plan("# syntax=example/other:1\nFROM --platform=linux/arm64 a\n")
    assert [o.reason for o in made.obstacles] == [
        "the file wants the frontend example/other:1",
        "the base is of platform linux/arm64",
    ]
    assert plan("FROM --platform=linux/arm64 a\n", architecture="arm64").readiness is Readiness.REPLAYABLE


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("RUN x\nFROM a\n", "RUN before the first FROM"),
        ("ARG A=1\n", "no FROM"),
        ("FROM $NONE\n", "the base '\\$NONE' is empty"),
        ("FROM a b\n", "cannot be read"),
        ("FROM a\nSHELL bash\n", "SHELL wants a JSON list"),
        ("FROM a\nENV ${X:?must}=1\n", "X: must"),
    ],
)
def test_what_no_builder_takes_is_an_error(plan: Callable[..., BuildPlan], text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        plan(text)


# ------------------------------------------------------------------------------------------------ network


def test_fetching_needs_network(sample: Sample) -> None:
    plan = plan_build(read_folder(sample("fetching")), is_present=lambda _: True)
    assert plan.readiness is Readiness.NEEDS_NETWORK
    assert [(o.line, o.reason) for o in plan.obstacles] == [(2, "curl fetches https://example.org/data.csv")]


def test_packages_that_are_there_need_no_network(sample: Sample) -> None:
    task = read_folder(sample("packages"))
    asked: list[PackageRequest] = []

    def present(request: PackageRequest) -> bool:
        asked.append(request)
        return True

    assert plan_build(task, is_present=present).readiness is Readiness.REPLAYABLE
    assert {(r.manager, r.name, r.specifier) for r in asked} == {
        ("apt", "gawk", ""), ("apt", "python3-pip", "==24.0"), ("apt", "nano", ""),
        ("pip", "numpy", "==2.1.0"), ("pip", "pytest", ""), ("pip", "flask-login", ">=0.6"),
    }  # fmt: skip
    assert plan_build(task).readiness is Readiness.NEEDS_NETWORK
    without_nano = plan_build(task, is_present=lambda request: request.name != "nano")
    assert [(o.line, o.need) for o in without_nano.obstacles] == [(3, Need.NETWORK), (3, Need.NETWORK)]
    without_numpy = plan_build(task, is_present=lambda request: request.name != "numpy")
    assert [o.line for o in without_numpy.obstacles] == [7], "lists of apt are not refreshed for the sake of pip"


# ------------------------------------------------------------------------------------------------ around the Dockerfile


def test_compose_services_and_settings(sample: Sample, write: Write) -> None:
    two = plan_build(read_folder(sample("two_services")))
    assert [(o.file, o.line, o.reason) for o in two.obstacles] == [
        ("environment/docker-compose.yaml", 5, "the service 'database' runs beside the agent's")
    ]
    one = plan_build(read_folder(sample("bench_one")))
    assert (one.readiness, targets(one)) == (Readiness.REPLAYABLE, {"/app/in.txt": "in.txt"})
    toml = "[environment]\nos = 'windows'\ngpus = 2\n[[environment.mcp_servers]]\nname = 'x'\n"
    machine = write("machine", {**BASE, "task.toml": toml, "environment/Dockerfile": "FROM a\n"})
    assert [o.reason for o in plan_build(read_folder(machine)).obstacles] == [
        "the task is for windows", "the task wants 2 accelerator(s)", "the task sets environment.mcp_servers",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("image", "readiness"),
    [("debian:12", Readiness.REPLAYABLE), ("ghcr.io/someone/world:3", Readiness.NEEDS_DOCKER)],
)
def test_an_image_of_its_own_cannot_be_stood_in_for(write: Write, image: str, readiness: Readiness) -> None:
    folder = write("image", {**BASE, "task.toml": f"[environment]\ndocker_image = '{image}'\n"})
    plan = plan_build(read_folder(folder))
    assert (plan.base, plan.readiness) == (image, readiness)


def test_compose_build_context_and_arguments(write: Write) -> None:
    compose = "services:\n  main:\n    build:\n      context: ./app\n      args: {VERSION: 3}\n    privileged: true\n"
    folder = write(
        "compose",
        {
            **BASE,
            "environment/docker-compose.yaml": compose,
            "environment/app/Dockerfile": "ARG VERSION=1\nFROM a:$VERSION\nCOPY f /\n",
            "environment/app/f": "",
        },
    )
    plan = plan_build(read_folder(folder))
    assert (plan.base, targets(plan)) == ("a:3", {"/f": "f"})
    assert [(o.line, o.reason) for o in plan.obstacles] == [(6, "the service asks for privileged")]
