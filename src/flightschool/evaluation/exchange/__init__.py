"""Evaluations out and in: Inspect logs, Harbor jobs, tables, a section of a model card.

``exchange.inspect_task`` is what ``inspect eval`` runs; it imports Inspect and is therefore not imported here.
"""

from flightschool.evaluation.exchange.card import model_card
from flightschool.evaluation.exchange.harbor import read_harbor_job, write_harbor_job
from flightschool.evaluation.exchange.inspect_in import InspectLog, read_inspect_log
from flightschool.evaluation.exchange.inspect_out import write_inspect_log
from flightschool.evaluation.exchange.tables import COLUMNS, write_csv, write_parquet

__all__ = [
    "COLUMNS",
    "InspectLog",
    "model_card",
    "read_harbor_job",
    "read_inspect_log",
    "write_csv",
    "write_harbor_job",
    "write_inspect_log",
    "write_parquet",
]
