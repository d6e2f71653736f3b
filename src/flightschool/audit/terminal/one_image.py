"""A store that knows one task's image: plays of one audit do not plan, list and look up the same folder each time."""

from __future__ import annotations

from flightschool.environments.terminal import TerminalTask
from flightschool.environments.terminal.trees import Image, ImageStore, NotRunnable

__all__ = ["OneImage"]


class OneImage(ImageStore):
    """Gives one image for whatever it is asked, and everything else as the store that it stands for.

    Args:
        behind: the store; what it keeps is shared.
        image: the image.
    """

    def __init__(self, behind: ImageStore, image: Image) -> None:
        self.__dict__.update(behind.__dict__)
        self._image = image
        self._lacking: dict[tuple[str, ...], NotRunnable | None] = {}

    async def build(self, task: TerminalTask) -> Image | NotRunnable:
        """The image."""
        del task
        return self._image

    async def fetches(self, task: TerminalTask, image: Image, scripts: tuple[str, ...]) -> NotRunnable | None:
        """What scripts would fetch in vain, read once."""
        if scripts not in self._lacking:
            self._lacking[scripts] = await super().fetches(task, image, scripts)
        return self._lacking[scripts]

    async def stood_in(self, task: TerminalTask, image: Image, scripts: tuple[str, ...]) -> tuple[str, ...]:
        """Nothing: an audit's plays are not kept, and the record of them is not read."""
        del task, image, scripts
        return ()
