"""Serving: environments of ours inside the trainers and harnesses of others.

``Offer`` opens episodes that somebody else drives; ``TaskDesk`` says which task one is about. Below stand the protocols
that carry them: ``serving.openenv``.
"""

from flightschool.serving.episode import Judged, Offer, ServedEpisode
from flightschool.serving.tasks import ALL, Choice, TaskDesk, shown_task

__all__ = ["ALL", "Choice", "Judged", "Offer", "ServedEpisode", "TaskDesk", "shown_task"]
