"""The peer's side of a workload: TRL's ``GRPOTrainer``, run by the Python of an environment of its own.

``python trl_loop.py WORKLOAD.json`` prints one JSON object. Imports nothing of this package. Settings are those that
are fastest here and equal to ours: float32, nothing computed twice, fused AdamW, no reference model, HF ``generate``.
Prompts must come out as the token ids that the workload names, or nothing is measured.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

__all__ = ["main"]

TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message.role == 'tool' -%}"
    "{%- if messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user\n' -}}"
    "{%- else -%}{{- '\n' -}}{%- endif -%}"
    "{{- 'Result: ' + message.content -}}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}"
    "{%- else -%}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content -}}"
    "{%- for call in message.tool_calls or [] -%}"
    "{%- if message.content or not loop.first -%}{{- '\n' -}}{%- endif -%}"
    "{{- call.function.name + ' ' + (call.function.arguments | tojson) -}}"
    "{%- endfor -%}"
    "{{- '<|im_end|>\n' -}}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)
"""Turns as the other side writes them; tools stand in the system turn already."""
_CALL = re.compile(r"^\s*([A-Za-z_][\w.\-]*)\s*(\{.*)$", re.DOTALL)


def main(path: str) -> dict[str, Any]:
    """Train, and say what each step took; the first from here on, loading included, as the other side counts."""
    started = time.perf_counter()
    work = json.loads(Path(path).read_text(encoding="utf-8"))
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    trl: Any = importlib.import_module("trl")
    torch.set_num_threads(work["num_threads"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(work["model"])
    tokenizer.chat_template = TEMPLATE
    tokenizer.response_template = {}  # that there is one is all that is asked: answers are read by the function below
    tokenizer.parse_response = lambda ids, **_: read_answer(tokenizer.decode(ids, skip_special_tokens=True))
    check_prompts(work, tokenizer)
    model = transformers.AutoModelForCausalLM.from_pretrained(work["model"], dtype=torch.float32)
    watch = Watch(work)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(trl, transformers, work, model, tokenizer, watch, folder)
        watch.started = started
        trainer.train()
    return {"steps": watch.steps, "version": trl.__version__}


def make_trainer(
    trl: Any, transformers: Any, work: dict[str, Any], model: Any, tokenizer: Any, watch: Watch, folder: str
) -> Any:
    """A ``GRPOTrainer`` that tells the watch what it sampled."""
    datasets: Any = importlib.import_module("datasets")

    class Counting(trl.GRPOTrainer):  # type: ignore[misc, unused-ignore]
        def _generate(self, prompts: Any) -> Any:
            made = super()._generate(prompts)
            masks = made[2] if made[2] is not None else [[1] * len(ids) for ids in made[1]]
            watch.counts = [sum(mask) for mask in masks]
            return made

    class Ended(transformers.TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, state
            control.should_training_stop = watch.ended()

    tools = work["kind"] == "orders"
    given: dict[str, Any] = {"environment_factory": Desk} if tools else {}
    return Counting(
        model=model,
        processing_class=tokenizer,
        reward_funcs=[watch.reward],
        args=settings_of(trl, work, folder),
        train_dataset=datasets.Dataset.from_list(rows_of(work)),
        callbacks=[Ended()],
        **given,
    )


def settings_of(trl: Any, work: dict[str, Any], folder: str) -> Any:
    """What is equal to ours, and fastest."""
    num_rows = work["group_size"] * work["groups_per_step"]
    tools = work["kind"] == "orders"
    return trl.GRPOConfig(
        output_dir=folder,
        max_steps=work["num_steps"],
        per_device_train_batch_size=work["micro_batch"],
        gradient_accumulation_steps=num_rows // work["micro_batch"],
        num_generations=work["group_size"],
        max_completion_length=work["max_new_tokens"] if not tools else 1024,
        generation_kwargs={"max_new_tokens": work["max_new_tokens"]},
        max_tool_calling_iterations=work["max_turns"] - 1,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        epsilon=0.2,
        epsilon_high=0.28,
        loss_type="dapo",
        learning_rate=work["learning_rate"],
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        gradient_checkpointing=False,
        shuffle_dataset=False,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        disable_tqdm=True,
        seed=work["seed"],
    )


def rows_of(work: dict[str, Any]) -> list[dict[str, Any]]:
    """Conversations where there are tools, rendered text where there are none."""
    return [
        {"prompt": prompt["turns"] if work["kind"] == "orders" else prompt["text"], **prompt["order"]}
        for prompt in work["prompts"]
    ]


def check_prompts(work: dict[str, Any], tokenizer: Any) -> None:
    """End with an error unless every prompt is the token ids that the other side samples from."""
    for prompt in work["prompts"]:
        if work["kind"] == "orders":
            ids = tokenizer.apply_chat_template(
                prompt["turns"], add_generation_prompt=True, tokenize=True, return_dict=False
            )
        else:
            ids = tokenizer(text=[prompt["text"]])["input_ids"][0]
        if list(ids) != list(prompt["token_ids_T"]):
            raise SystemExit(f"prompt {prompt['order']['id']} is tokenised differently here")


def read_answer(text: str) -> dict[str, Any]:
    """An answer as a message: calls, one a line, or prose; a broken call is prose."""
    calls = []
    lines = [line for line in text.strip().split("\n") if line.strip()]
    for line in lines:
        match = _CALL.match(line)
        try:
            arguments = json.loads(match.group(2)) if match else None
        except ValueError:
            arguments = None
        if match is None or not isinstance(arguments, dict):
            return {"role": "assistant", "content": text.strip()}
        calls.append({"type": "function", "function": {"name": match.group(1), "arguments": arguments}})
    return {"role": "assistant", "content": "", "tool_calls": calls} if calls else {"role": "assistant", "content": ""}


class Desk:
    """The order desk as an environment of TRL: public methods are tools."""

    def reset(self, **row: Any) -> None:
        """A fresh desk."""
        self._order = {key: row[key] for key in ("id", "item", "carrier", "shipping", "paid")}
        self._read = self._read_first = False
        self._refunds: dict[str, int] = {}

    def get_order(self, order: str) -> str:
        """What was ordered and paid.

        Args:
            order: id of the order.
        """
        if order != self._order["id"]:
            return json.dumps({"error": "no such order"})
        self._read = True
        shown = {"order": order, **{key: self._order[key] for key in ("item", "carrier", "shipping", "paid")}}
        return json.dumps(shown)

    def refund(self, order: str, amount: int) -> str:
        """Give money back.

        Args:
            order: id of the order.
            amount: how much.
        """
        if order != self._order["id"] or not isinstance(amount, int):
            return json.dumps({"error": "no such order"})
        if not self._refunds:
            self._read_first = self._read
        self._refunds[order] = amount
        return json.dumps({"ok": True})

    def _passed(self) -> list[tuple[float, bool]]:
        exact = self._refunds == {self._order["id"]: self._order["paid"]}
        return [(1.0, self._read_first or (self._read and not self._refunds)), (1.0, bool(self._refunds)), (3.0, exact)]


class Watch:
    """Times steps and counts tokens; gives the rewards."""

    def __init__(self, work: dict[str, Any]) -> None:
        self._work = work
        self._chance = random.Random(work["seed"])
        self.started = 0.0
        self.counts: list[int] = []
        self.steps: list[dict[str, Any]] = []
        self._outcomes: list[float] = []
        self._rewards: list[float] = []

    def reward(self, completions: list[Any], **columns: Any) -> list[float]:
        """Of a whole batch."""
        work = self._work
        self._outcomes = [self._outcome(index, completions, columns) for index in range(len(completions))]
        drawn = [0.9 * self._chance.random() for _ in completions]
        self._rewards = drawn if work["reward"] == "random" else self._outcomes
        return self._rewards

    def _outcome(self, index: int, completions: list[Any], columns: dict[str, Any]) -> float:
        if self._work["kind"] == "orders":
            return share(columns["environments"][index]._passed())
        wanted = {"order": columns["id"][index], "amount": columns["paid"][index]}
        asked = [call["function"] for call in read_answer(completions[index]).get("tool_calls", [])]
        made = [
            call["arguments"]
            for call in asked
            if call["name"] == "refund"
            and call["arguments"].get("order") == wanted["order"]
            and set(call["arguments"]) == set(wanted)
            and type(call["arguments"]["amount"]) is int
        ]
        return share([(1.0, bool(made)), (3.0, bool(made) and made[-1] == wanted)])

    def ended(self) -> bool:
        """Close a step; whether training may end."""
        wall_s = time.perf_counter() - self.started - sum(step["wall_s"] for step in self.steps)
        success = sum(outcome >= 1.0 for outcome in self._outcomes) / len(self._outcomes)
        self.steps.append(
            {
                "wall_s": wall_s,
                "trained_tokens": sum(self.counts),
                "sampled_tokens": sum(self.counts),
                "num_rows": len(self.counts),
                "success": success,
                "reward": sum(self._rewards) / len(self._rewards),
            }
        )
        sys.stderr.write(f"peer: step {len(self.steps)}, {wall_s:.1f} s, {sum(self.counts)} tokens, {success:.2f}\n")
        goal, limit = self._work["goal"], self._work["limit_s"]
        over = limit is not None and sum(step["wall_s"] for step in self.steps) >= limit
        return over or (goal is not None and success >= goal)


def share(passed: list[tuple[float, bool]]) -> float:
    """Weight of what passed; at most a half unless all did."""
    found = sum(weight for weight, good in passed if good) / sum(weight for weight, _ in passed)
    return 1.0 if all(good for _, good in passed) else min(found, 0.5)


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(sys.argv[1])) + "\n")
