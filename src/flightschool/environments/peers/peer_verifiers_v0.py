"""Environments of verifiers before 0.2: modules with ``load_environment``."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from typing import Any

from peer_model import MODEL  # type: ignore[import-not-found]  # beside this file, see peer_main

__all__ = ["Adapter"]

_KEY = "FLIGHTSCHOOL_PEER_MODEL_KEY"


class Adapter:
    """One environment.

    Args:
        name: its module, installed over there.
        config: ``arguments`` of ``load_environment``, ``split`` (``eval`` or ``train``).
        loop: where rollouts run.
    """

    def __init__(self, name: str, config: dict[str, Any], loop: Any) -> None:
        del loop
        split = config.get("split", "eval")
        if split not in ("eval", "train"):
            raise LookupError(f"no split {split!r}; there are eval and train")
        os.environ.setdefault(_KEY, "none")
        verifiers: Any = importlib.import_module("verifiers")
        self._env = verifiers.load_environment(name, **config.get("arguments", {}))
        data = self._env.get_eval_dataset() if split == "eval" else self._env.get_dataset()
        self._rows: list[dict[str, Any]] = data.to_list()
        self.num_rows = len(self._rows)
        self.version = f"{importlib.metadata.version('verifiers')}, {name} {_version(name)}, {split}"

    def family(self, row: int) -> str:
        """What the data call the row's task, else the row itself."""
        found = self._rows[row].get("task")
        return str(found) if found and found != "default" else f"row-{row}"

    def answer(self, row: int) -> str | None:
        """The known answer, if the data hold one."""
        found = self._rows[row].get("answer")
        return str(found) if found not in (None, "") else None

    async def rollout(self, row: int, url: str) -> tuple[float, str]:
        """Play a row; its reward, and what broke."""
        config: Any = importlib.import_module("verifiers.types").ClientConfig
        client = config(api_base_url=url, api_key_var=_KEY, max_retries=0)
        known = {key: value for key, value in self._rows[row].items() if value is not None}
        output = await self._env.run_rollout(known, client=client, model=MODEL, sampling_args={})
        error = output.get("error")
        return float(output.get("reward") or 0.0), "" if error is None else str(error)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name.rsplit("/", 1)[-1])
    except importlib.metadata.PackageNotFoundError:
        return "(unversioned)"
