from __future__ import annotations

from tests.tiny import tiny_config, tiny_folder

__all__ = ["tiny_config", "tiny_folder"]
