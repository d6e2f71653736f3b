"""What runs on the far side: the launcher, the set-up of a sandbox and the agent inside it. Standard library only.

The launcher is started as a fresh interpreter with an empty environment, so nothing of the trainer (keys, weights,
tasks, references) is in the memory that a sandbox starts from. Hence nothing of the rest of the package is imported.
"""

__all__: list[str] = []
