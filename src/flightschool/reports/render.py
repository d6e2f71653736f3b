"""Writes a report: one HTML file that needs no network, no script and no second file."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from flightschool.reports.records import ReportData
from flightschool.store.files import write_whole

__all__ = ["render_report", "template", "write_page", "write_report"]


def render_report(data: ReportData) -> str:
    """The page as text. Equal data give equal text; all text in the data is escaped."""
    from flightschool.reports.view import page

    return template("report.html.j2")(page=page(data))


def write_report(data: ReportData, out: Path) -> None:
    """Write the page to ``out``, whole or not at all. Missing folders are made.

    Raises:
        OSError: the place cannot be written.
    """
    write_page(render_report(data), out)


def write_page(text: str, out: Path) -> None:
    """Write a page, whole or not at all. Missing folders are made. Raises ``OSError``."""
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, text.encode())


@cache
def template(name: str) -> Callable[..., str]:
    """What renders a template of this package; text in what it is given is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("flightschool.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name).render
