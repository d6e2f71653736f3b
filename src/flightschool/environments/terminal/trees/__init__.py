"""Image trees: a build plan replayed without Docker onto a folder that sandboxes can have as their root."""

from flightschool.environments.terminal.trees.accounts import find_account
from flightschool.environments.terminal.trees.images import ImageStore
from flightschool.environments.terminal.trees.laying import Tree
from flightschool.environments.terminal.trees.presence import STAND_INS, Presence, find_presence
from flightschool.environments.terminal.trees.records import Account, BuildError, Image, NotRunnable, Substitution
from flightschool.environments.terminal.trees.replay import account_env, tail

__all__ = [
    "STAND_INS",
    "Account",
    "BuildError",
    "Image",
    "ImageStore",
    "NotRunnable",
    "Presence",
    "Substitution",
    "Tree",
    "account_env",
    "find_account",
    "find_presence",
    "tail",
]
