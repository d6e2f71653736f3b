"""``init``: a workspace to start one's own agent from."""

from __future__ import annotations

from pathlib import Path

import typer

from flightschool.cli import output
from flightschool.cli.verb import verb

__all__ = ["TRAIN_CONFIG", "register"]

TRAIN_NAME = "train.toml"

TRAIN_CONFIG = """\
# The whole road, for an agent of your own: flightschool train train.toml
#
# As it stands it trains on the built-in maintenance desk. With recordings of your own agent:
#
#   flightschool traces import RECORDINGS --name mine                    what your agent did so far
#   flightschool env build --from-traces mine --name my-agent            tools, tasks and checks from it
#   flightschool audit my-agent                                          can the reward be trusted?
#
# then change [environment] and [suite] below. Unknown keys are refused; what is commented out shows the default.
# Paths are relative to this file.

# seed = 0

[environment]
name = "desk"                     # built in; or the name that you gave to `env build`
# traces = "recordings.jsonl"     # build the environment from these at the start, instead of by `env build`
# format = "auto"                 # auto, openai-chat, otlp, tau-bench
# state = "state"                 # folder of JSON files: the state that the recorded episodes began with
# code = "./my_tools.py"          # functions that answer tool calls; without it, the recordings do

[model]
name = "smollm2-135m"             # a name known to `flightschool models get`, or a path: "./my-model"

[faults]
training = "noisy"                # clean, noisy, storm, or the path of a profile
evaluation = "noisy"              # weather of the perturbed measurement

[screening]
# budget = 96                     # most model rollouts that screening may spend
# threshold = 0.2                 # least probability that a group of attempts holds both better and worse

[suite]
name = "checkride"                # frozen before anything trains; the sealed part is checkride-holdout
trained = ["two_step"]            # strata that this training is declared to train
# suite_fraction = 0.3            # share of the families of each stratum that is measured on
# holdout_fraction = 0.1          # share that stays sealed

[training]
num_steps = 20
learning_rate = 1e-5
noisy_share = 0.25                # share of the groups that meet the training weather
# group_size = 8                  # attempts at one task that are compared with one another
# groups_per_step = 4
# max_staleness = 1               # versions that a token may be older than the step that trains on it
# algorithm = "grpo"              # or "dr_grpo"
# mode = "async"                  # or "sync"
# device = "cpu"                  # or "cuda"

[evaluation]
# temperature = 1.0               # 1: the policy that is trained; greedy decoding is measured beside it
# repeats = 1
# negative_control_steps = 0      # steps of a control run with shuffled rewards; 0 = none
"""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    verb(app, "init", example="flightschool init my-agent")(init)


def init(directory: Path = typer.Argument(..., metavar="DIR", help="Folder to make the workspace in.")) -> None:
    """Make a workspace with a commented configuration. Refuses a folder that is one already."""
    from flightschool.errors import InputError
    from flightschool.store import CONFIG_NAME, Workspace

    training = directory / TRAIN_NAME
    if training.exists():
        raise InputError(
            f"{TRAIN_NAME} is there already",
            where=str(training),
            expected="a folder without it",
            mend="move it away, or choose another folder",
        )
    with Workspace.create(directory) as space:
        training.write_text(TRAIN_CONFIG, encoding="utf-8")
        files = [str(space.root / CONFIG_NAME), str(space.root / TRAIN_NAME)]
    output.say(f"workspace made in {directory}")
    output.say(f"next: cd {directory}, flightschool traces import RECORDINGS --name mine; {TRAIN_NAME} names the rest")
    output.finish({"workspace": str(space.root), "files": files})
