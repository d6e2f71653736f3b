"""Records of built images: what an image is, what stands in for its base, and why there is none."""

from __future__ import annotations

from flightschool.environments.terminal.plan_records import Obstacle
from flightschool.errors import InfrastructureError
from flightschool.records import Record

__all__ = ["Account", "BuildError", "Image", "NotRunnable", "Substitution"]


class Account(Record, frozen=True, kw_only=True):
    """Whom commands run as inside."""

    name: str = "root"
    uid: int = 0
    gid: int = 0
    home: str = "/root"


class Substitution(Record, frozen=True, kw_only=True):
    """What stood in for the image that a Dockerfile starts from."""

    image: str
    stand_in: str
    digest: str
    """Of the programs that the stand-in has, as far as its package lists tell."""


class Image(Record, frozen=True, kw_only=True):
    """A built environment."""

    tree: str
    """Folder with the tree. Not part of any digest."""
    digest: str
    """Of the plan and the stand-in of its base."""
    over_host: bool
    """Whether the tree is a layer over the curated view."""
    base: Substitution
    workdir: str
    account: Account
    env: dict[str, str]
    build_s: float
    """Seconds of the build that made it; a tree from the cache keeps its own."""
    cached: bool = False
    networked: tuple[str, ...] = ()
    """Steps of its build that this machine's network was lent to, by file and line."""


class NotRunnable(Record, frozen=True, kw_only=True):
    """A task that cannot be run here. It has not failed: nothing was attempted."""

    need: str
    """``docker`` or ``network``."""
    obstacles: tuple[Obstacle, ...]
    mend: str = ""
    """What would let it run here; empty: nothing is known that would."""

    @property
    def reason(self) -> str:
        """The first obstacle with its place, and how many more there are."""
        first, more = self.obstacles[0], len(self.obstacles) - 1
        place = f"{first.file}:{first.line}" if first.line else first.file
        return f"{place}: {first.reason}" + (f" (and {more} more)" if more else "")


class BuildError(InfrastructureError):
    """A step of a build ended badly. The policy has no part in it."""
