from __future__ import annotations

from pathlib import Path

import pytest

from flightschool.config import parse_settings
from flightschool.engines import EngineSettings, ServedEngine, get_model, open_engine
from flightschool.errors import ConfigError


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ({"kind": "vllm"}, "a url with kind 'vllm'"),
        ({"kind": "sglang", "url": "localhost:30000"}, "http://HOST:PORT"),
        ({"kind": "vllm", "url": "http://me:secret@host"}, "without user"),
        ({"kind": "torch", "url": "http://127.0.0.1:8000"}, "no url with kind 'torch'"),
        ({"kind": "vllm", "url": "http://127.0.0.1:8000", "constrain_calls": True}, "constrain_calls false"),
        ({"kind": "tensorrt"}, "'torch', 'hf', 'vllm' or 'sglang'"),
        ({"knid": "torch"}, "a known key"),
        ({"timeout_s": 0}, "greater than 0"),
    ],
)
def test_wrong_tables_are_refused_before_anything_is_loaded(table: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(table, EngineSettings, where="job.toml")
    assert what in str(caught.value)


def test_a_server_s_key_comes_from_the_environment_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SERVER_KEY", raising=False)
    settings = EngineSettings(kind="vllm", url="http://127.0.0.1:8000/v1", key_env="SERVER_KEY")
    with pytest.raises(ConfigError, match="SERVER_KEY"):
        open_engine(settings, get_model("tiny"))
    monkeypatch.setenv("SERVER_KEY", "k")
    opened = open_engine(settings, get_model("tiny"), max_context=512)
    assert isinstance(opened.engine, ServedEngine)
    assert opened.engine.max_context == 512
    assert opened.engine.wire.url == "http://127.0.0.1:8000"
