"""What ``flightschool init`` puts into a newcomer's folder: a commented configuration, and examples that run."""

from __future__ import annotations

from flightschool.digest import canonical_json
from flightschool.environments.recorded import NOT_RECORDED
from flightschool.records import Json
from flightschool.store import DEFAULT_CONFIG

__all__ = ["init_files"]

_TRAIN = """\
# The whole road for an agent of your own. What is commented shows the default; unknown keys are refused. What is not
# commented fits the example and the tiny model that ships: some minutes on two cores, and no network.
#
#   flightschool traces import traces/example.jsonl --name mine
#   flightschool env build --from-traces mine --name my-agent --state state
#   flightschool train train.toml

# seed = 0

[environment]
name = "my-agent"                 # as given to `env build`
# traces = "traces/example.jsonl" # import these first; without it, the environment must exist
# format = "auto"                 # thirteen formats are told apart: docs/traces.md
# redact = true                   # secrets and personal data get pseudonyms before anything is kept
# state = "state"                 # folder of JSON files: the state that recorded episodes started from
# code = "./tools.py"             # your own functions answer calls; without it, recordings do
# checks = "checks.toml"          # your own checks of every kind, beside those drafted from the traces

[model]
name = "tiny"                     # ships; "smollm2-135m" is downloaded once; or the path of a Hugging Face folder

[harness]                         # command = "python agent.py" trains your own program, started once an attempt
# timeout_s = 300                 # seconds an attempt of it may take, waiting for the model apart

[faults]
# training = "noisy"              # weather of a share of the training groups: clean, noisy, storm, or a path
# evaluation = "noisy"            # weather of the perturbed measurement

[reward]
# partial_cap = 0.5               # most that a partly done task can earn
# process_share = 0.1             # share of process checks in the total
# latency_share = 0.1             # share of the latency term; only correct episodes earn it

[screening]
# budget = 96                     # most model rollouts that screening may spend
# threshold = 0.2                 # least probability that a group of attempts tells anything

[suite]
# name = "checkride"              # frozen before anything trains
suite_fraction = 0.25             # share of each stratum's families
# holdout_fraction = 0.1          # sealed until acceptance
max_tasks_per_family = 4          # that a family gives to the suite
trained = ["cancel"]              # strata to train, as `env show my-agent` lists them

[waiver]                          # who lets tasks train against the audit's advice; logged, and on every report
# name = ""
# reason = ""
# tasks = []

[uncompared]                      # who lets suites go uncompared whose texts or key cannot be had; logged and reported
# name = ""
# reason = ""
# suites = []

[canaries]                        # tasks that no honest policy can pass: mixed in, watched, never taught
# tasks = []
# reason = ""
# share = 0.05

[imitation]                       # recorded episodes that the checks accept are imitated first
epochs = 30                       # passes over them; 0: none, the default
learning_rate = 3e-4              # a model of a hundred million parameters and more wants 5e-5

[training]
# algorithm = "grpo"              # or "dr_grpo"
num_steps = 2
learning_rate = 1e-4              # a larger model wants 1e-5
group_size = 4                    # attempts at one task that are compared with one another
groups_per_step = 2
max_new_tokens = 48               # of one turn
# max_staleness = 1               # most versions between sampling a token and training on it
# device = "cpu"                  # or "cuda", "xpu", "mps"; [engine] device sets another for the engine

[evaluation]
# temperature = 1.0               # as the policy is served; 0 is greedy
# repeats = 1                     # attempts a task
"""

_README = f"""\
# A flightschool workspace

- `flightschool.toml` makes this folder a workspace; data lie in `.flightschool/`.
- `traces/` is for recordings of your agent, in any of thirteen formats. `example.jsonl` shows one of them: 72 invented
  episodes of an order desk, enough to train on. Of all metadata, `success` (or `reward`) matters most: an outcome is
  what a task's checks are made from.
- `tools.py` shows how your own tool functions answer calls, on a fresh copy of `state/` for every episode. Without them
  recordings answer, and whatever was not recorded is an error that says "{NOT_RECORDED}".
- `train.toml` configures the rest of the road.

    flightschool traces import traces/example.jsonl --name mine
    flightschool env build --from-traces mine --name my-agent --state state
    flightschool env check my-agent
    flightschool train train.toml
    flightschool rollout my-agent --policy run:RUN -n 8      # RUN as `train` names it at its end
"""

_TOOLS = '''\
"""Tools of the example: each gets the state of its episode, then the arguments of the call.

``state["orders"]`` is the content of state/orders.json, a copy that this episode alone sees. What a function raises is
the answer that the agent gets.
"""


def get_order(state, order_id):
    return state["orders"][order_id]


def cancel_order(state, order_id):
    order = state["orders"][order_id]
    if order["status"] == "shipped":
        raise ValueError(f"order {order_id} was shipped and cannot be cancelled")
    order["status"] = "cancelled"
    return order
'''

_ASKED = (
    "Please cancel order {}.", "Stop order {} now.", "I no longer want {}.", "Drop the order {} for me.",
    "Call off {} today.", "We must undo order {}.", "Kindly void {}.", "Take {} back.", "Remove my order {}.",
    "End order {} at once.", "Nobody needs {} any more.", "Withdraw order {} please.",
)  # fmt: skip
_IN_EACH = 6
"""Orders that are cancelled in one wording."""
_CANCELLED = tuple(f"{'ABCDEFGH'[3 * n % 8]}{11 + n}" for n in range(_IN_EACH * len(_ASKED)))
_SHIPPED = ("B2", "D4", "F6")
_ORDERS: dict[str, Json] = {
    name: {"id": name, "status": "shipped" if name in _SHIPPED else "open"} for name in (*_CANCELLED, *_SHIPPED)
}


def init_files() -> dict[str, str]:
    """Relative path → text of every file of a new workspace. ``flightschool.toml`` should be written last."""
    episodes = [_cancelling(order, number) for number, order in enumerate(_CANCELLED)]
    return {
        "README.md": _README,
        "train.toml": _TRAIN,
        "tools.py": _TOOLS,
        "state/orders.json": canonical_json(_ORDERS).decode() + "\n",
        "traces/example.jsonl": "".join(canonical_json(episode).decode() + "\n" for episode in episodes),
        "flightschool.toml": DEFAULT_CONFIG,
    }


def _cancelling(order: str, number: int) -> dict[str, Json]:
    """One recorded episode in the OpenAI chat format."""
    found, cancelled = _ORDERS[order], {"id": order, "status": "cancelled"}
    return {
        "messages": [
            {"role": "system", "content": "You are the order desk. Cancel open orders on request; shipped ones never."},
            {"role": "user", "content": _ASKED[number // _IN_EACH].format(order)},
            *_call("get_order", order, found, "call-0"),
            *_call("cancel_order", order, cancelled, "call-1"),
            {"role": "assistant", "content": f"Order {order} is cancelled."},
        ],
        "metadata": {
            "id": f"example-{number}",
            "task": f"cancel-{order}",
            "stratum": "cancel",
            "success": True,
        },
    }


def _call(tool: str, order: str, answer: Json, call_id: str) -> list[dict[str, Json]]:
    function = {"name": tool, "arguments": canonical_json({"order_id": order}).decode()}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": canonical_json(answer).decode()},
    ]
