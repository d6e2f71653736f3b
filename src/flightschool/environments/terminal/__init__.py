"""Terminal tasks: folders of the Harbor and Terminal-Bench 1 formats, read and planned without running anything.

``iter_tasks`` walks over folders, ``TaskPool`` over several that were named together, ``read_folder`` reads one,
``plan_build`` says step by step how its environment is built (and what of it needs a network or Docker),
``read_reward`` reads the verdict of its tests, ``export_harbor`` writes it as a Harbor folder again.
"""

from flightschool.environments.terminal.as_tasks import FolderTask, TerminalFolders, family_of, stratum_of
from flightschool.environments.terminal.building import plan_build
from flightschool.environments.terminal.copying import copy_targets
from flightschool.environments.terminal.dockerfile import Dockerfile, Heredoc, Instruction, parse_dockerfile
from flightschool.environments.terminal.export import amend, export_harbor
from flightschool.environments.terminal.fetching import Fetch, PackageRequest, fetches_of_script
from flightschool.environments.terminal.folders import count_tasks, detect_format, iter_tasks, read_folder
from flightschool.environments.terminal.moving import (
    PackedFolders,
    lay_out_folders,
    pack_folders,
    take_folders_away,
)
from flightschool.environments.terminal.plan_records import (
    ArgStep,
    BuildPlan,
    BuildStep,
    CopyItem,
    CopySource,
    CopyStep,
    EnvStep,
    FromStep,
    Need,
    Obstacle,
    OtherStep,
    Readiness,
    RunStep,
    UserStep,
    WorkdirStep,
)
from flightschool.environments.terminal.planning import IsPresent
from flightschool.environments.terminal.pools import TaskPool
from flightschool.environments.terminal.records import (
    Limits,
    Network,
    Note,
    Placement,
    Resources,
    TaskFormat,
    TaskStep,
    TerminalTask,
    UnreadableTask,
    VerdictSource,
    VerifierMode,
)
from flightschool.environments.terminal.reward import (
    RewardMalformed,
    RewardMissing,
    RewardNumber,
    RewardProblem,
    RewardReading,
    read_pytest_summary,
    read_reward,
)
from flightschool.environments.terminal.substitution import expand_word
from flightschool.environments.terminal.timing import ReadSpeed, measure_read_speed, write_sample_tasks

__all__ = [
    "ArgStep",
    "BuildPlan",
    "BuildStep",
    "CopyItem",
    "CopySource",
    "CopyStep",
    "Dockerfile",
    "EnvStep",
    "Fetch",
    "FolderTask",
    "FromStep",
    "Heredoc",
    "Instruction",
    "IsPresent",
    "Limits",
    "Need",
    "Network",
    "Note",
    "Obstacle",
    "OtherStep",
    "PackageRequest",
    "PackedFolders",
    "Placement",
    "ReadSpeed",
    "Readiness",
    "Resources",
    "RewardMalformed",
    "RewardMissing",
    "RewardNumber",
    "RewardProblem",
    "RewardReading",
    "RunStep",
    "TaskFormat",
    "TaskPool",
    "TaskStep",
    "TerminalFolders",
    "TerminalTask",
    "UnreadableTask",
    "UserStep",
    "VerdictSource",
    "VerifierMode",
    "WorkdirStep",
    "amend",
    "copy_targets",
    "count_tasks",
    "detect_format",
    "expand_word",
    "export_harbor",
    "family_of",
    "fetches_of_script",
    "iter_tasks",
    "lay_out_folders",
    "measure_read_speed",
    "pack_folders",
    "parse_dockerfile",
    "plan_build",
    "read_folder",
    "read_pytest_summary",
    "read_reward",
    "stratum_of",
    "take_folders_away",
    "write_sample_tasks",
]
