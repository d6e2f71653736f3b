"""Where a model is."""

from __future__ import annotations

from typing import NamedTuple


class ClientConfig(NamedTuple):
    api_base_url: str
    api_key_var: str
    max_retries: int
