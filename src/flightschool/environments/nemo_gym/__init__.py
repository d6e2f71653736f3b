"""Rows of NeMo Gym, played at its resources servers."""

from flightschool.environments.nemo_gym.importing import import_nemo_gym
from flightschool.environments.nemo_gym.session import NemoGymSession, connect_nemo_gym

__all__ = ["NemoGymSession", "connect_nemo_gym", "import_nemo_gym"]
