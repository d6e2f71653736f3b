"""Live servers of others: started, awaited, and their log-probabilities held against plain passes of ours."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch

from flightschool.engines import CausalAttention, Transformer, load_model
from flightschool.engines.served import FolderExporter, ServedEngine, Wire
from flightschool.errors import InfrastructureError
from flightschool.protocols import Generation
from flightschool.testing.conversation import STOPS, converse
from flightschool.testing.recorded import ReplayTransport


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(
    command: Sequence[str], settings: Mapping[str, str], wire: Wire, log: Path, limit_s: float = 900.0
) -> Iterator[None]:
    """A server, from the moment it is healthy until the end of the block."""
    with log.open("wb") as stream:
        server = subprocess.Popen(command, env=os.environ | settings, stdout=stream, stderr=stream)
    try:
        deadline = time.monotonic() + limit_s
        while not asyncio.run(healthy(wire)):
            if server.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(log.read_text(errors="replace")[-6000:])
            time.sleep(1)
        yield
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()


async def healthy(wire: Wire) -> bool:
    engine = ServedEngine(wire, vocab=1, max_context=1)
    try:
        await engine.check_health()
    except InfrastructureError:
        return False
    finally:
        await engine.aclose()
    return True


async def under_way(engine: ServedEngine, tasks: Sequence[asyncio.Task[Generation]], least: int) -> None:
    """Until so many tokens have arrived; raises what a request raises before."""
    while engine.generated_tokens < least:
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.005)


def other(model: Transformer) -> dict[str, torch.Tensor]:
    """The weights after a step that is far too large."""
    draw = torch.Generator().manual_seed(1)
    return {
        name: tensor.detach() + 0.02 * tensor.detach().std() * torch.randn(tensor.shape, generator=draw)
        if tensor.ndim > 1
        else tensor.detach().clone()
        for name, tensor in model.named_parameters()
    }


def mismatch(model: Transformer, context: Sequence[int], done: Generation, temperature: float = 1.0) -> float:
    """Largest difference of log-probabilities to a plain pass of ours."""
    tokens = torch.tensor([*context, *done.token_ids_T])
    with torch.no_grad():
        hidden = model(tokens, torch.arange(len(tokens)), CausalAttention([len(tokens)]))
        plain = (model.logits(hidden[len(context) - 1 : -1]).double() / temperature).log_softmax(-1)
    picked = plain.gather(1, torch.tensor(done.token_ids_T)[:, None])[:, 0]
    return float((picked - torch.tensor(done.logprobs_T)).abs().max())


async def check_recording(
    recording: Path, wire: Wire, tmp_path: Path, tiny_model: Path, *, seeds_count: bool = True
) -> None:
    """Hold the conversation with what a real server said.

    Args:
        recording: of the server.
        wire: its protocol.
        tmp_path: for published folders.
        tiny_model: whose weights stand for those that were published.
        seeds_count: whether the server was run in a way in which equal seeds give equal tokens.
    """
    transport = ReplayTransport(recording)
    state = dict(load_model(tiny_model).model.named_parameters())  # what is loaded is not part of what was recorded
    engine = ServedEngine(
        wire,
        vocab=49152,
        max_context=512,
        run="recorded",
        exporter=FolderExporter(tiny_model, tmp_path / "published"),
        transport=transport,
    )
    heard = await converse(engine, state, state)
    assert transport.left == 0
    assert heard.greedy.token_ids_T == heard.again.token_ids_T
    assert (heard.sampled.token_ids_T == heard.same_seed.token_ids_T) is seeds_count
    assert heard.sampled.token_ids_T != heard.greedy.token_ids_T
    assert heard.after_update.token_ids_T != heard.greedy.token_ids_T
    for done in (heard.greedy, heard.sampled, heard.tempered, heard.second_turn):
        assert len(done.token_ids_T) == 24 or (done.finish == "stop" and done.token_ids_T[-1] in STOPS)
    assert (heard.after_update.versions[0].step, heard.after_update.kv_step) == (1, 1)
    assert (heard.kept.versions[0].step, heard.kept.kv_step) == (1, 0)
    await engine.aclose()
