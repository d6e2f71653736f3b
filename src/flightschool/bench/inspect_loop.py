"""The peer's side of ``bench evaluation``: a tool loop in Inspect, run by the Python of an environment of its own.

``python inspect_loop.py SAMPLES FOLDER`` evaluates SAMPLES samples of two model calls and one tool call with a scripted
model, no network and no display, reads the log back, and prints one JSON object. Imports nothing of this package.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["main"]


def main(samples: int, folder: str) -> dict[str, float]:
    """Run and read back."""
    inspect: Any = importlib.import_module("inspect_ai")
    dataset: Any = importlib.import_module("inspect_ai.dataset")
    log: Any = importlib.import_module("inspect_ai.log")
    model: Any = importlib.import_module("inspect_ai.model")
    scorer: Any = importlib.import_module("inspect_ai.scorer")
    solver: Any = importlib.import_module("inspect_ai.solver")
    tool: Any = importlib.import_module("inspect_ai.tool")

    @tool.tool  # type: ignore[untyped-decorator, unused-ignore]
    def add() -> Any:
        async def execute(x: int, y: int) -> int:
            """Add two numbers.

            Args:
                x: first number.
                y: second number.
            """
            return x + y

        return execute

    def answer(messages: Any, *_: Any) -> Any:
        if messages[-1].role == "tool":
            output = model.ModelOutput.from_content("mockllm/model", "The sum is 2.")
        else:
            output = model.ModelOutput.for_tool_call("mockllm/model", "add", {"x": 1, "y": 1})
        # with usage given, nothing is counted by a tokenizer that would have to be downloaded
        output.usage = model.ModelUsage(input_tokens=50, output_tokens=10, total_tokens=60)
        return output

    cases = [dataset.Sample(input=f"Add one and one, case {n}.", target="2") for n in range(samples)]
    task = inspect.Task(
        dataset=dataset.MemoryDataset(cases),
        solver=[solver.use_tools(add()), solver.generate()],
        scorer=scorer.includes(),
    )
    started, cpu = time.perf_counter(), time.process_time()
    (done,) = inspect.eval(
        task,
        model=model.get_model("mockllm/model", custom_outputs=answer),
        log_dir=folder,
        display="none",
        log_level="error",
        max_connections=100,
    )
    cpu, wall = time.process_time() - cpu, time.perf_counter() - started
    (path,) = Path(folder).glob("*.eval")
    reading = time.perf_counter()
    read = log.read_eval_log(str(path))
    read_s = time.perf_counter() - reading
    return {
        "status": float(done.status == "success"),
        "samples": float(len(read.samples)),
        "cpu_ms": 1e3 * cpu / samples,
        "wall_s": wall,
        "bytes": path.stat().st_size / samples,
        "read_s": read_s,
    }


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(int(sys.argv[1]), sys.argv[2])) + "\n")
