"""Folders as the public sets have them: tests that install curl, uv and their own pytest, audited to a verdict."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests import needs
from tests.integration.audit.small_system import CTRF, PYTEST, NotHereError, small_system

from flightschool.audit.terminal import FolderAudit
from flightschool.audit.terminal.auditing import audit_folders
from flightschool.audit.terminal.journal import Journal
from flightschool.environments.terminal import TaskPool
from flightschool.records import AuditVerdict

pytestmark = [pytest.mark.integration, pytest.mark.long]
INSTALL = """\
#!/bin/bash
apt-get update
apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.9.7/install.sh | sh
source $HOME/.local/bin/env
"""
TEST = "from pathlib import Path\n\ndef test_sum():\n    assert Path('/app/out.txt').read_text().strip() == '907'\n"
SOLUTION = "#!/bin/bash\nawk '{s+=$1} END{print s}' /app/numbers.txt > /app/out.txt\n"
ASKED = "The file /app/numbers.txt holds one integer per line. Write their sum to /app/out.txt as a single integer."
DOCKERFILE = "FROM ubuntu:24.04\nWORKDIR /app\nCOPY numbers.txt /app/numbers.txt\n"
NUMBERS = "3\n4\n19\n881\n"


def harbor(python: str, version: str) -> dict[str, str]:
    """As Harbor's template has it."""
    run = (
        f"uvx -p {python} -w pytest=={version} -w pytest-json-ctrf=={CTRF} "
        "pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA\n"
        "if [ $? -eq 0 ]; then\n  echo 1 > /logs/verifier/reward.txt\nelse\n  echo 0 > /logs/verifier/reward.txt\nfi\n"
    )
    return {
        "task.toml": 'version = "1.0"\n[verifier]\ntimeout_sec = 60.0\n[agent]\ntimeout_sec = 60.0\n',
        "instruction.md": ASKED + "\n",
        "environment/Dockerfile": DOCKERFILE,
        "environment/numbers.txt": NUMBERS,
        "solution/solve.sh": SOLUTION,
        "tests/test.sh": INSTALL + run,
        "tests/test_outputs.py": TEST,
    }


def terminal_bench(version: str) -> dict[str, str]:
    """As Terminal-Bench's template has it."""
    return {
        "task.yaml": f"instruction: |-\n  {ASKED}\ndifficulty: easy\nparser_name: pytest\n"
        "max_agent_timeout_sec: 60\nmax_test_timeout_sec: 60\n",
        "Dockerfile": DOCKERFILE,
        "numbers.txt": NUMBERS,
        "solution.sh": SOLUTION,
        "run-tests.sh": f"{INSTALL}uv init\nuv add pytest=={version}\nuv run pytest $TEST_DIR/test_outputs.py -rA\n",
        "tests/test_outputs.py": TEST,
    }


def place(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory, sandboxes: str) -> Iterator[tuple[Path, str]]:
    """A folder of unpacked systems, and the version of their Python."""
    needs.sandbox(sandboxes)
    folder = tmp_path_factory.mktemp("system") / "base-trees"
    try:
        python = small_system(folder / "ubuntu_24.04")
    except NotHereError as error:
        needs.skip("a small system of this machine's programs", f"{error}; install it with its package manager")
    yield folder, python
    shutil.rmtree(folder)


def audited(tasks: Path, bases: Path, journal: Journal | None = None) -> dict[str, FolderAudit]:
    found: list[FolderAudit] = []
    images = tasks.parent / "images"
    audit_folders(TaskPool([tasks]), images=images, base_trees=bases, repeats=2, journal=journal, on_audit=found.append)
    return {one.id: one for one in found}


def test_public_folders_are_audited_to_a_verdict(bases: tuple[Path, str], tmp_path: Path) -> None:
    folder, python = bases
    place(tmp_path / "tasks/harbor", harbor(python, PYTEST))
    place(tmp_path / "tasks/bench", terminal_bench(PYTEST))
    found = audited(tmp_path / "tasks", folder)
    assert {one.unaudited_because for one in found.values()} == {""}
    assert {one.verdict for one in found.values()} == {AuditVerdict.SOUND}
    assert all(one.num_episodes > 20 for one in found.values())


def test_what_is_not_at_hand_is_named_with_its_mend_and_asked_for_again(
    bases: tuple[Path, str], tmp_path: Path
) -> None:
    folder, _ = bases
    place(tmp_path / "tasks/harbor", harbor("3.1", "0.1"))
    place(tmp_path / "tasks/bench", terminal_bench("0.1"))
    journal = Journal(tmp_path / "journal", "run")
    found = audited(tmp_path / "tasks", folder, journal)
    assert {one.verdict for one in found.values()} == {AuditVerdict.UNAUDITED}
    told = found["harbor"].unaudited_because
    assert told.startswith("needs network: tests/test.sh: uv run wants what is not there: python==3.1.* (here: ")
    assert f"pytest==0.1 (here: {PYTEST})" in told
    assert str(folder / "ubuntu_24.04") in told
    assert f"pytest==0.1 (here: {PYTEST})" in found["bench"].unaudited_because
    assert all(journal.find(one.digest, one.id) is None for one in found.values()), "what lacks may be given meanwhile"
