"""An environment of ours inside TRL's GRPOTrainer, on a model so small that it runs on two cores in a minute.

    pip install flightschool trl "transformers>=5.2" datasets jmespath
    python recipes/train_with_trl.py --steps 2

The model is made here: a Llama of two layers with random weights, and a byte-level tokenizer with the chat template
that TRL ships for Qwen3. It is first shown the oracle's turns of the miniature tasks (imitation), so that it calls
tools at all; then GRPO goes on from there. What comes out is no agent; what is shown is that rewards, tools and masked
infrastructure reach TRL as they should. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch

from flightschool.errors import InfrastructureError
from flightschool.records import Task
from flightschool.rollouts import opening_messages
from flightschool.serving import Offer, TaskDesk
from flightschool.serving.trl import environment_class, training_rows
from flightschool.testing.miniature import MiniatureEnvironment

__all__ = ["main"]


class Flaky(MiniatureEnvironment):
    """Every third world cannot be opened: what infrastructure does to a training."""

    num_opened = 0

    def open(self, task: Task) -> Any:
        """A world, most of the time."""
        self.num_opened += 1
        if self.num_opened % 3 == 0:
            raise InfrastructureError("the sandbox is gone")
        return super().open(task)


def main(steps: int, imitation_steps: int) -> dict[str, Any]:
    """Imitate, then train by GRPO; what TRL logged, and what the environment saw."""
    transformers: Any = importlib.import_module("transformers")
    trl: Any = importlib.import_module("trl")
    datasets: Any = importlib.import_module("datasets")
    transformers.set_seed(0)
    environment = Flaky()
    desk = TaskDesk(environment)
    kind = environment_class(Offer(environment), desk)
    tokenizer = make_tokenizer(transformers)
    model = make_model(transformers, len(tokenizer))
    loss = imitate(model, tokenizer, MiniatureEnvironment(), kind, imitation_steps)
    seen: list[float | None] = []

    class Watched(kind):  # type: ignore[misc, valid-type]
        def get_reward(self) -> float | None:
            seen.append(super().get_reward())
            return seen[-1]

    with tempfile.TemporaryDirectory() as folder:
        trainer = trl.GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            environment_factory=Watched,
            train_dataset=datasets.Dataset.from_list(training_rows(desk)[:1]),
            args=trl.GRPOConfig(
                output_dir=folder,
                max_steps=steps,
                per_device_train_batch_size=4,
                num_generations=4,
                max_completion_length=160,
                max_tool_calling_iterations=3,
                learning_rate=1e-3,
                logging_steps=1,
                report_to=[],
                use_cpu=True,
                bf16=False,
                save_strategy="no",
            ),
        )
        trainer.train()
    logged = [row for row in trainer.state.log_history if "reward" in row]
    return {
        "imitation_loss": loss,
        "steps": len(logged),
        "rewards_seen_by_trl": [row["reward"] for row in logged],
        "tool_calls": [row.get("tools/call_frequency") for row in logged],
        "rewards": seen,
        "num_masked": sum(reward is None for reward in seen),
        "num_opened": environment.num_opened,
    }


def make_tokenizer(transformers: Any) -> Any:
    """Bytes are tokens, and the marks of the Qwen3 template that TRL knows how to read."""
    tokenizers: Any = importlib.import_module("tokenizers")
    chat_templates: Any = importlib.import_module("trl.chat_template_utils")
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
    marks += ["<tool_response>", "</tool_response>"]
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={c: n for n, c in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=900, special_tokens=[], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(_words(), trainer)
    made.add_special_tokens(marks[:3])
    made.add_tokens(marks[3:])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = files("trl").joinpath("chat_templates", "qwen3.jinja").read_text(encoding="utf-8")
    return chat_templates.add_response_schema(tokenizer)


def make_model(transformers: Any, num_tokens: int) -> Any:
    """Two layers, random."""
    config = transformers.LlamaConfig(
        vocab_size=num_tokens,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=4096,
        eos_token_id=None,
        bos_token_id=None,
    )
    return transformers.LlamaForCausalLM(config)


def imitate(model: Any, tokenizer: Any, environment: MiniatureEnvironment, kind: type, num_steps: int) -> float:
    """Learn the oracle's turns of one task by heart; the last loss."""
    tools = _tools(kind)
    (task, *_) = environment.tasks()
    text = tokenizer.apply_chat_template(demonstration(environment, task), tools=tools, tokenize=False)
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    spoken = [match.span(1) for match in re.finditer(r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)", text, re.DOTALL)]
    ids = torch.tensor([encoded["input_ids"]])
    own = [any(first <= start < last for first, last in spoken) for start, _ in encoded["offset_mapping"]]
    labels = torch.where(torch.tensor([own]), ids, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss = torch.tensor(float("nan"))
    model.train()
    for _ in range(num_steps):
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach())


def demonstration(environment: MiniatureEnvironment, task: Task) -> list[dict[str, Any]]:
    """The oracle's conversation in the OpenAI format, with the answers that the environment gives."""
    episode = Offer(environment).open(task)
    messages: list[dict[str, Any]] = [{"role": m.role, "content": m.content} for m in opening_messages(task)]
    for call in environment.reference(task.id).oracle:
        (result,) = episode.act((call,))
        function = {"name": call.name, "arguments": dict(call.arguments)}
        messages.append(
            {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}
        )
        messages.append({"role": "tool", "name": call.name, "content": result.content})
    episode.close()
    return [*messages, {"role": "assistant", "content": "Done."}]


def _tools(kind: type) -> Sequence[Any]:
    made = kind()
    names = [name for name in dir(kind) if not name.startswith("_") and name not in ("reset", "get_reward")]
    return [getattr(made, name) for name in names]


def _words() -> list[str]:
    environment = MiniatureEnvironment()
    kind = environment_class(Offer(environment), TaskDesk(environment))
    texts = [json.dumps(demonstration(environment, task)) for task in environment.tasks()]
    return [
        *texts,
        *(str(tool.__doc__) for tool in _tools(kind)),
        json.dumps([spec.parameters for spec in environment.tools()]),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--imitation-steps", type=int, default=200)
    given = parser.parse_args()
    print(json.dumps(main(given.steps, given.imitation_steps)))
