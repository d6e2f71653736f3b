"""Models that say how likely given tokens are, and sample nothing: teachers. Imports no torch."""

from flightschool.engines.scoring.checks import check_order, check_teacher
from flightschool.engines.scoring.scorer import Scorer, open_scorer
from flightschool.engines.scoring.settings import TeacherSettings

__all__ = ["Scorer", "TeacherSettings", "check_order", "check_teacher", "open_scorer"]
