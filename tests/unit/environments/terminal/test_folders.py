"""Reading task folders: both formats, every field, every way of being broken, and walks over many."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from flightschool.environments.terminal import (
    Limits,
    Network,
    Note,
    Placement,
    Resources,
    TaskFormat,
    TaskPool,
    TerminalFolders,
    TerminalTask,
    UnreadableTask,
    VerdictSource,
    VerifierMode,
    count_tasks,
    detect_format,
    iter_tasks,
    measure_read_speed,
    read_folder,
    write_sample_tasks,
)
from flightschool.errors import ConfigError, InputError

Write = Callable[[str, Mapping[str, str]], Path]
Sample = Callable[[str], Path]

WHOLE = {
    "task.toml": "",
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM a\n",
    "tests/test.sh": "true\n",
}


def test_a_plain_harbor_task(sample: Sample) -> None:
    folder = sample("awk_sum")
    task = read_folder(folder)
    assert (task.id, task.format, task.folder) == ("awk_sum", TaskFormat.HARBOR, str(folder))
    assert task.instruction == "Do what the tests look for.\n"
    assert (task.environment_dir, task.dockerfile) == ("environment", "environment/Dockerfile")
    assert (task.tests_dir, task.tests) == ("tests", (Placement(source="tests", target="/tests"),))
    assert task.test_command == ("/bin/bash", "/tests/test.sh")
    assert (task.solution_dir, task.solution) == ("solution", (Placement(source="solution", target="/solution"),))
    assert task.oracle == ("/bin/bash", "/solution/solve.sh")
    assert task.limits == Limits(agent_s=60, verifier_s=30, build_s=600)
    assert task.metadata == {"difficulty": "easy"}
    assert (task.verdict_source, task.verifier_mode) == (VerdictSource.REWARD_FILE, VerifierMode.SHARED)
    assert task.notes == ()
    (stage,) = task.stages
    assert (stage.instruction, stage.oracle, stage.limits) == (task.instruction, task.oracle, task.limits)


def test_users_and_interpreters(sample: Sample) -> None:
    task = read_folder(sample("perl_words"))
    assert task.agent_user == "clerk"
    assert task.oracle == ("/usr/bin/env", "perl", "/solution/solve.sh")
    assert read_folder(sample("python_fix")).oracle == ("bash", "/solution/solve.sh"), "no #! line: bash"


def test_settings_old_spellings_and_unknown_keys(sample: Sample) -> None:
    task = read_folder(sample("separate_verifier"))
    assert task.verifier_mode is VerifierMode.SEPARATE
    assert task.resources == Resources(memory_mb=2048, storage_mb=512)
    assert task.network == Network(mode="no-network")
    assert (task.workdir, task.verifier_env) == ("/data", {"KEY": "${HOST_KEY}"})
    assert (task.oracle, task.solution_dir) == ((), "")
    assert task.settings["extra"] == {"x": [1, 2]}
    assert task.notes == (
        Note(where="extra", what="unknown key 'extra'"),
        Note(
            where="verifier.timeout_secs",
            what="unknown key 'verifier.timeout_secs', perhaps 'timeout_sec' was meant",
        ),
        Note(where="solution", what="no reference solution is shipped"),
    )


def test_networks_by_party(write: Write) -> None:
    toml = "[environment]\nallowed_hosts = ['a.example']\nnetwork_mode = 'allowlist'\n"
    toml += "[agent]\nnetwork_mode = 'no-network'\nuser = 1000\n[verifier]\nallowed_hosts = ['b.example']\n"
    task = read_folder(write("x", {**WHOLE, "task.toml": toml}))
    assert task.network == Network(mode="allowlist", allowed_hosts=("a.example",))
    assert task.agent_network == Network(mode="no-network")
    assert task.verifier_network == Network(mode="allowlist", allowed_hosts=("b.example",))
    assert task.agent_user == "1000"


def test_yaml_is_asked_for_only_where_there_is_yaml(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert read_folder(sample("awk_sum")).id == "awk_sum"
    with pytest.raises(InputError, match="reading YAML needs PyYAML"):
        read_folder(sample("bench_one"))


def test_several_steps(sample: Sample) -> None:
    task = read_folder(sample("several_steps"))
    assert (task.instruction, task.reward_strategy) == ("", "final")
    make, check = task.stages
    assert (make.name, make.instruction) == ("make", "Make /app/a.\n")
    assert make.tests == (
        Placement(source="tests", target="/tests"),
        Placement(source="steps/make/tests", target="/tests"),
    )
    assert (make.workdir_files, check.workdir_files) == ("steps/make/workdir", "")
    assert (make.limits.agent_s, check.limits.agent_s) == (20, 60)
    assert (make.min_reward, check.min_reward) == ({"reward": 0.5}, {"reward": 1.0, "style": 0.5})
    assert (make.oracle, check.oracle) == (("bash", "/solution/solve.sh"), ())


def test_terminal_bench_1(sample: Sample) -> None:
    task = read_folder(sample("bench_one"))
    assert (task.format, task.instruction) == (TaskFormat.TERMINAL_BENCH_1, "Sort /app/in.txt.")
    assert (task.environment_dir, task.dockerfile, task.compose_file) == (".", "Dockerfile", "docker-compose.yaml")
    assert task.limits == Limits(agent_s=120, verifier_s=30, build_s=600)
    assert task.tests == (
        Placement(source="tests", target="/tests"),
        Placement(source="run-tests.sh", target="/tests/run-tests.sh"),
    )
    assert task.test_command == ("/bin/bash", "/tests/run-tests.sh")
    assert task.oracle == ("/bin/sh", "/oracle/solution.sh")
    assert task.solution == (Placement(source="solution.sh", target="/oracle/solution.sh"),)
    assert (task.environment_env, task.verifier_env) == ({"MODE": "fast"}, {"TEST_DIR": "/tests"})
    assert task.verdict_source is VerdictSource.PYTEST_SUMMARY
    assert task.metadata == {
        "difficulty": "easy", "tags": ["text"], "parser_name": "pytest", "author_name": "someone",
    }  # fmt: skip


def test_terminal_bench_1_with_keystrokes_and_another_parser(sample: Sample) -> None:
    task = read_folder(sample("bench_one_other_parser"))
    assert (task.verdict_source, task.oracle) == (VerdictSource.UNKNOWN_PARSER, ("bash", "/oracle/solution.sh"))
    assert [(place.source, place.target) for place in task.solution] == [("solution.yaml", "/oracle/solution.sh")]
    assert [note.where for note in task.notes] == ["task.yaml: parser_name"]


@pytest.mark.parametrize(
    ("files", "format_"),
    [
        ({"task.toml": ""}, TaskFormat.HARBOR),
        ({"task.yaml": ""}, TaskFormat.TERMINAL_BENCH_1),
        ({"task.toml": "", "task.yaml": ""}, TaskFormat.HARBOR),
        ({"instruction.md": "", "tests/test.sh": ""}, TaskFormat.HARBOR),
        ({"instruction.md": ""}, None),
        ({"README.md": ""}, None),
    ],
)
def test_formats_are_told_by_files(write: Write, files: dict[str, str], format_: TaskFormat | None) -> None:
    assert detect_format(write("x", files)) is format_


def without(name: str) -> dict[str, str]:
    return {path: text for path, text in WHOLE.items() if path != name}


BENCH = {"task.yaml": "instruction: x\n", "Dockerfile": "FROM a\n", "run-tests.sh": "true\n"}

BROKEN: list[tuple[dict[str, str], str]] = [
    (without("instruction.md"), "no file 'instruction.md'"),
    ({**WHOLE, "instruction.md": " \n"}, "instruction.md is empty"),
    (without("tests/test.sh"), "no tests"),
    (without("environment/Dockerfile"), "no environment"),
    (without("task.toml"), "no file 'task.toml'"),
    ({**WHOLE, "task.toml": "a = \n"}, "not valid TOML"),
    ({**WHOLE, "task.toml": "[agent]\ntimeout_sec = 'soon'\n"}, "agent.timeout_sec"),
    ({**WHOLE, "task.toml": "[agent]\ntimeout_sec = 0\n"}, "agent.timeout_sec"),
    ({**WHOLE, "task.toml": "[agent]\ntimeout_sec = nan\n"}, "agent.timeout_sec"),
    ({**WHOLE, "task.toml": "[environment]\nmemory = 'much'\n"}, "environment.memory"),
    ({**WHOLE, "task.toml": "[verifier]\nenvironment_mode = 'nowhere'\n"}, "environment_mode"),
    ({**WHOLE, "task.toml": "[[steps]]\nname = 'a'\n"}, "step 'a' has no folder"),
    ({**WHOLE, "task.toml": "[[steps]]\nname = '../a'\n"}, "steps.0.name"),
    ({**WHOLE, "steps/a/instruction.md": "x"}, "without \\[\\[steps\\]\\]"),
    ({**WHOLE, "task.toml": "[[steps]]\nname = 'a'\n[[steps]]\nname = 'a'\n"}, "repeats a name"),
    ({**BENCH, "task.yaml": "instruction: [\n"}, "not valid YAML"),
    ({**BENCH, "task.yaml": "- a\n"}, "no table of settings"),
    ({**BENCH, "task.yaml": "instruction: ''\n"}, "no instruction"),
    ({**BENCH, "task.yaml": "instruction: &a x\nmore: *a\n"}, "an alias"),
    ({**BENCH, "task.yaml": "instruction: x\nmax_agent_timeout_sec: -1\n"}, "max_agent_timeout_sec"),
    ({**BENCH, "solution.yaml": ""}, "no list of keystrokes"),
    ({**BENCH, "solution.yaml": "command: ls\n"}, "no list of keystrokes"),
    ({**BENCH, "solution.yaml": "- ls\n"}, "entry 1 is no table"),
    ({**BENCH, "solution.yaml": "- {command: ls}\n- {block: true}\n"}, "entry 2"),
    ({**BENCH, "solution.yaml": "- {command: yes}\n"}, "command is True"),
    ({**BENCH, "solution.yaml": "- {command: ls, block: 1}\n"}, "block is 1"),
    ({**BENCH, "solution.yaml": "- {command: ls, min_timeout_sec: .nan}\n"}, "min_timeout_sec is nan"),
    ({**BENCH, "docker-compose.yaml": "services: {client: {build: ../..}}\n"}, "leaves the task"),
    ({**BENCH, "docker-compose.yaml": "x: 1\n"}, "no services"),
    ({"task.yaml": "instruction: x\n", "run-tests.sh": ""}, "no environment"),
    ({"task.yaml": "instruction: x\n", "Dockerfile": "FROM a\n"}, "no tests"),
    ({"README.md": ""}, "not a task folder"),
]


@pytest.mark.parametrize(("files", "what"), BROKEN)
def test_broken_folders_get_one_error_that_names_the_mend(write: Write, files: dict[str, str], what: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        read_folder(write("broken", files))
    assert all(caught.value.as_dict().values())


def test_links_out_of_the_folder_are_not_read(write: Write, tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("secret", encoding="utf-8")
    for number, target in enumerate((str(secret), "../../secret.md", "instruction.md")):
        folder = write(f"task{number}", without("instruction.md"))
        (folder / "instruction.md").symlink_to(target)
        with pytest.raises(InputError, match=r"leads (out of the folder|in a circle) by the link 'instruction\.md'"):
            read_folder(folder)
    inside = write("inside", {**without("instruction.md"), "docs/text.md": "Do it.\n"})
    (inside / "instruction.md").symlink_to("docs/text.md")
    assert read_folder(inside).instruction == "Do it.\n"


def test_special_files_and_strange_names_are_refused(write: Write) -> None:
    fifo = write("fifo", WHOLE)
    os.mkfifo(fifo / "tests" / "pipe")
    with pytest.raises(InputError, match="'tests/pipe' is a device, FIFO or socket"):
        read_folder(fifo)
    name = write("name", WHOLE)
    Path(os.fsdecode(os.fsencode(name) + b"/\xff")).write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="is not UTF-8"):
        read_folder(name)
    large = write("large", {**WHOLE, "instruction.md": "x" * ((4 << 20) + 1)})
    with pytest.raises(InputError, match="larger than"):
        read_folder(large)
    with pytest.raises(InputError, match="folder not found"):
        read_folder(large / "absent")
    with pytest.raises(InputError, match="not a folder"):
        read_folder(large / "task.toml")


def change_name(folder: Path) -> None:
    (folder / "tests" / "test.sh").rename(folder / "tests" / "other.sh")
    (folder / "tests" / "test.sh").write_text("true\n", encoding="utf-8")


CHANGES: list[Callable[[Path], object]] = [
    lambda folder: (folder / "environment" / "Dockerfile").write_text("FROM b\n", encoding="utf-8"),
    lambda folder: (folder / "tests" / "test.sh").chmod(0o644),
    lambda folder: (folder / "more").mkdir(),
    lambda folder: (folder / "more").write_text("", encoding="utf-8"),
    lambda folder: (folder / "more").symlink_to("task.toml"),
    change_name,
]


@pytest.mark.parametrize("change", CHANGES)
def test_the_digest_is_of_the_whole_content(write: Write, change: Callable[[Path], object]) -> None:
    first, second = write("a/one", WHOLE), write("b/two", WHOLE)
    assert read_folder(first).digest == read_folder(second).digest, "names of the folder itself do not enter"
    (second / "task.toml").touch()
    assert read_folder(first).digest == read_folder(second).digest, "nor do times"
    change(second)
    assert read_folder(first).digest != read_folder(second).digest


def test_the_digest_tells_where_links_lead(write: Write) -> None:
    folders = [write(name, {**WHOLE, "x": "", "y": ""}) for name in ("a/one", "b/one")]
    for folder, target in zip(folders, ("x", "y"), strict=True):
        (folder / "link").symlink_to(target)
    assert len({read_folder(folder).digest for folder in folders}) == 2


def test_a_walk_goes_on_past_what_is_broken(write: Write, samples: dict[str, Path]) -> None:
    parent = samples["awk_sum"].parent
    for number, (files, _) in enumerate(BROKEN[:-1]):
        write(f"deep/er/broken{number:02d}", files)
    write(".hidden/task", WHOLE)
    write("zz/task", {**WHOLE, "environment/inner/task.toml": ""})
    (parent / "loop").symlink_to(parent)
    found = list(iter_tasks(parent))
    read = [task.id for task in found if isinstance(task, TerminalTask)]
    broken = [task for task in found if isinstance(task, UnreadableTask)]
    assert read == [*sorted(samples), "zz/task"]
    assert [task.id for task in broken] == [f"deep/er/broken{number:02d}" for number in range(len(BROKEN) - 1)]
    assert all(task.what and task.expected and task.mend for task in broken)
    assert isinstance(broken[0].error(), InputError)
    again = [task.id for task in iter_tasks(parent)]
    assert again == [task.id for task in found], "the order is fixed"


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder with a task and one that may not be looked into, seen by an ordinary user."""
    place = Path(tempfile.mkdtemp(prefix="closed-"))
    place.chmod(0o755)
    write_sample_tasks(place / "pool", 1)
    (place / "pool/closed/below").mkdir(parents=True)
    (place / "pool/closed").chmod(0)
    list(iter_tasks(place / "pool"))  # whatever is imported late is there before the user changes
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        yield place / "pool"
    finally:
        os.seteuid(was)
        (place / "pool/closed").chmod(0o755)
        shutil.rmtree(place)


def test_what_cannot_be_looked_into_is_told(closed: Path) -> None:
    task, shut = iter_tasks(closed)
    assert isinstance(task, TerminalTask)
    assert isinstance(shut, UnreadableTask)
    assert (shut.id, shut.where) == ("closed", str(closed / "closed"))
    assert "Permission denied" in shut.what
    assert "chmod u+rx" in shut.mend
    assert count_tasks(closed) == 2
    with pytest.raises(InputError, match="cannot be looked into"):
        list(iter_tasks(closed / "closed"))
    with pytest.raises(InputError, match="1 of 2 task folders cannot be read, the first is 'closed'"):
        TerminalFolders(closed)


def test_a_walk_streams(tmp_path: Path) -> None:
    write_sample_tasks(tmp_path, 3)
    walk: Iterator[TerminalTask | UnreadableTask] = iter_tasks(tmp_path)
    assert next(walk).id == "000000"
    (tmp_path / "000002" / "instruction.md").unlink()
    assert [type(task) for task in walk] == [TerminalTask, UnreadableTask], "later folders are read when asked for"


def test_a_task_named_itself_has_its_own_name(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sample("awk_sum")
    assert [task.id for task in iter_tasks(folder)] == ["awk_sum"]
    monkeypatch.chdir(folder)
    assert [task.id for task in iter_tasks(Path())] == ["awk_sum"]


def test_a_walk_over_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no task folder"):
        list(iter_tasks(tmp_path))
    with pytest.raises(InputError, match="not a folder"):
        iter_tasks(tmp_path / "absent")


def test_tasks_named_together_have_ids_of_their_own_and_count_once(tmp_path: Path) -> None:
    for parent in ("a/pool", "a/p2", "b/pool"):
        write_sample_tasks(tmp_path / parent, 2)
    (tmp_path / "a/link").symlink_to("pool")

    def ids(*named: str) -> list[str]:
        pool = TaskPool([tmp_path / name for name in named])
        found = [task.id for task in pool]
        assert len(pool) == len(found)
        return found

    assert ids("a/pool") == ["000000", "000001"], "as ever where nothing collides"
    assert ids("a/pool/000000", "a/p2/000000") == ["pool/000000", "p2/000000"]
    assert ids("a/pool", "a/p2/000001") == ["000000", "pool/000001", "p2/000001"]
    assert ids("a/pool", "b/pool/000000") == ["a/pool/000000", "000001", "b/pool/000000"]
    assert ids("a/pool", "a/pool", "a/link", "a/pool/000000") == ["000000", "000001"]
    assert sorted(ids("b/pool", "a/p2")) == sorted(ids("a/p2", "b/pool")), "whatever the order"
    told_apart = ids("b/pool/000000", "a/p2/000000", "a")
    assert told_apart == ["b/pool/000000", "a/p2/000000", "p2/000001", "pool/000000", "pool/000001"], "nor with others"
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="no task folder"):
        ids("a/pool", "none")


def test_records_survive_encoding(samples: dict[str, Path]) -> None:
    for folder in samples.values():
        task = read_folder(folder)
        assert msgspec.json.decode(msgspec.json.encode(task), type=TerminalTask) == task


def test_read_speed_counts_what_it_read(tmp_path: Path) -> None:
    write_sample_tasks(tmp_path, 20)
    (tmp_path / "000003" / "task.toml").write_text("=", encoding="utf-8")
    (tmp_path / "000004" / "environment" / "Dockerfile").write_text("NOPE x\n", encoding="utf-8")
    read = measure_read_speed(tmp_path)
    assert (read.num_tasks, read.num_unreadable) == (19, 1)
    planned = measure_read_speed(tmp_path, with_plan=True)
    assert (planned.num_tasks, planned.num_unreadable) == (18, 2)
    assert planned.tasks_per_s > 0


def test_an_impossible_value_is_a_configuration_error(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"environment\.cpus") as caught:
        read_folder(write("x", {**WHOLE, "task.toml": "[environment]\ncpus = -1\n"}))
    assert caught.value.where.endswith("task.toml")
