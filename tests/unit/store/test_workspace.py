"""The workspace folder."""

from pathlib import Path

import pytest

from flightschool.errors import ConfigError, InputError, StoreError
from flightschool.records import ToolCall
from flightschool.store import CONFIG_NAME, DEFAULT_CONFIG, Workspace

CALL = ToolCall(id="1", name="tool", arguments={})


def test_create_then_find_from_deep_inside(tmp_path: Path) -> None:
    with Workspace.create(tmp_path / "desk") as made:
        made.store.put("call", "k", CALL)
    deep = tmp_path / "desk" / "a" / "b"
    deep.mkdir(parents=True)
    with Workspace.find(deep) as found:
        assert found.root == (tmp_path / "desk").resolve()
        assert found.data == found.root / ".flightschool"
        assert found.settings.schema_version == 1
        assert found.store.get("call", "k", ToolCall) == CALL
        assert found.run_dir("first") == found.data / "runs" / "first"


def test_find_starts_at_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Workspace.create(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert Workspace.find().root == tmp_path.resolve()


def test_the_nearest_workspace_wins(tmp_path: Path) -> None:
    Workspace.create(tmp_path)
    inner = Workspace.create(tmp_path / "inner")
    assert Workspace.find(tmp_path / "inner").root == inner.root


def test_no_workspace_names_the_mend(tmp_path: Path) -> None:
    for open_workspace in (Workspace.find, Workspace):
        with pytest.raises(StoreError, match="not in a workspace") as caught:
            open_workspace(tmp_path)
        assert "flightschool init DIR" in caught.value.mend
        assert str(tmp_path) in caught.value.where


def test_create_twice_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    Workspace.create(tmp_path, config_text='schema_version = 1\nname = "mine"\n')
    with pytest.raises(ConfigError, match="already"):
        Workspace.create(tmp_path)
    assert Workspace.find(tmp_path).settings.name == "mine"


@pytest.mark.parametrize("text", ["= broken", "schema_version = 1\nnmae = 'x'\n", "name = 'no version'\n"])
def test_a_wrong_template_writes_nothing(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        Workspace.create(tmp_path / "new", config_text=text)
    assert not (tmp_path / "new").exists()


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(ConfigError, match="cannot be made"):
        Workspace.create(tmp_path / "taken")


def test_broken_configuration_is_told(tmp_path: Path) -> None:
    Workspace.create(tmp_path)
    (tmp_path / CONFIG_NAME).write_text("schema_version = [\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        Workspace.find(tmp_path)
    (tmp_path / CONFIG_NAME).write_text("schema_version = 1\ndatabse = 'x'\n")
    with pytest.raises(ConfigError, match="databse") as caught:
        Workspace.find(tmp_path)
    assert "database" in caught.value.mend


def test_another_version_is_told_before_its_unknown_keys(tmp_path: Path) -> None:
    (tmp_path / CONFIG_NAME).write_text("schema_version = 9\nlater_key = true\n")
    with pytest.raises(StoreError, match="another version") as caught:
        Workspace.find(tmp_path)
    assert "flightschool init" in caught.value.mend


def test_a_workspace_whose_data_were_not_copied_starts_empty(tmp_path: Path) -> None:
    (tmp_path / CONFIG_NAME).write_text(DEFAULT_CONFIG)
    with Workspace.find(tmp_path) as workspace:
        assert workspace.store.keys("call") == []


def test_relative_database_paths_start_at_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'schema_version = 1\ndatabase = "sqlite:///team.sqlite"\n'
    Workspace.create(tmp_path / "w", config_text=text).close()
    monkeypatch.chdir("/")
    with Workspace.find(tmp_path / "w") as workspace:
        workspace.store.put("call", "k", CALL)
    assert (tmp_path / "w" / "team.sqlite").is_file()


@pytest.mark.parametrize("bad", ["", ".", "..", "a/b", "/etc", "../x", "a\0"])
def test_runs_cannot_leave_the_workspace(tmp_path: Path, bad: str) -> None:
    workspace = Workspace.create(tmp_path)
    with pytest.raises(InputError):
        workspace.run_dir(bad)


def test_the_default_configuration_is_commented_and_data_stay_out_of_git(tmp_path: Path) -> None:
    Workspace.create(tmp_path)
    assert (tmp_path / CONFIG_NAME).read_text() == DEFAULT_CONFIG
    assert DEFAULT_CONFIG.count("# ") >= 5
    assert (tmp_path / ".flightschool" / ".gitignore").read_text() == "*\n"
    assert not list(tmp_path.rglob(".new-*"))
