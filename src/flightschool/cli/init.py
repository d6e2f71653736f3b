"""``init``: a workspace to start one's own agent from."""

from __future__ import annotations

from pathlib import Path

import typer

from flightschool.cli import output
from flightschool.cli.verb import verb

__all__ = ["TRAIN_CONFIG", "register"]

TRAIN_NAME = "train.toml"

TRAIN_CONFIG = """\
# The whole road, for an agent of your own. From an empty workspace to a report:
#
#   flightschool traces import RECORDINGS --name mine          what your agent did so far
#   flightschool env build --from-traces mine --name my-agent  tools, tasks and checks from it
#   flightschool audit my-agent                                can the reward be trusted?
#   flightschool train train.toml                              screen, freeze a suite, train, measure, report
#
# Every key may be left out; what is commented shows the default. Unknown keys are refused.

# seed = 0

[environment]
# The built-in maintenance desk. For your own agent: the name you gave to `env build`, and no traces or code line.
name = "desk"
# traces = "recordings.jsonl"     # import these first; without it, the environment must exist
# format = "auto"                 # auto, openai-chat, otlp, tau-bench
# state = "state/"                # folder of JSON files with the state that the recorded episodes started from
# code = "my_agent.tools"         # module that answers tool calls; without it, recordings do

[model]
name = "smollm2-135m"             # or the path of a local Hugging Face folder

[faults]
training = "noisy"                # weather of a share of the training groups: clean, noisy, storm, or a path
evaluation = "noisy"              # weather of the perturbed measurement

[screening]
# budget = 96                     # most model rollouts that screening may spend

[suite]
name = "checkride"                # frozen before anything trains
trained = ["two_step"]            # strata that the training is declared to train

[training]
# num_steps, groups_per_step, group_size, learning_rate, max_staleness …: see docs/cli.md
# device = "cuda"

[evaluation]
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
