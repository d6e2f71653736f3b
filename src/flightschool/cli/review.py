"""``review list · show · label · scan``: people look at attempts, and what they say measures the verifier."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import typer

from flightschool.cli import output
from flightschool.cli.references import actor, check_name, workspace
from flightschool.cli.review_drafts import drafts, reject, sign
from flightschool.cli.review_pool import By, Pool, find_attempt
from flightschool.cli.review_shown import attempt_row, tell_attempt
from flightschool.cli.scans import finding_row, tell_findings
from flightschool.cli.verb import group, verb
from flightschool.cli.votes import tell_votes
from flightschool.errors import InputError

if TYPE_CHECKING:
    from flightschool.governance import ReviewItem, ReviewRates, ReviewSheet
    from flightschool.records import Attempt, ReviewLabel
    from flightschool.statistics import Interval
    from flightschool.store import Workspace
    from flightschool.verification import VoteAgreement

__all__ = ["register"]

MOST_SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    review = group(app, "review", "People judge attempts: draw a sample, look at one, label it; or scan for cheats.")
    verb(review, "list", example="flightschool review list rollout-0001 -n 40")(list_)
    verb(review, "show", example="flightschool review show rollout-0001:oracle:desk-12:0:0 --blind")(show)
    verb(review, "label", example='flightschool review label rollout-0001:a:b:0:0 right --reason "as asked"')(label)
    verb(review, "scan", example="flightschool review scan rollout-0001")(scan)
    verb(review, "drafts", example="flightschool review drafts support")(drafts)
    verb(review, "sign", example='flightschool review sign support policy-3 --reason "house rule 4"')(sign)
    verb(review, "reject", example='flightschool review reject support policy-5 --reason "habit, no rule"')(reject)


# ------------------------------------------------------------------------------------------------ list


def list_(
    target: str = typer.Argument("", metavar="ENV|RUN|SHEET", help="What to review; nothing: list the sheets."),
    environment: str = typer.Option("", "--env", help="An environment, even where a run or sheet has its name."),
    num: int = typer.Option(40, "-n", "--num", min=1, help="Attempts to draw, beside those that are all taken."),
    seed: int = typer.Option(0, "--seed", help="Seed of the draw."),
    by: str = typer.Option("stratum", "--by", help="Strata of the draw: stratum, family or none."),
    name: str = typer.Option("", "--name", help="Name of the sheet; by default made of the target and the settings."),
    blind: bool = typer.Option(False, "--blind", help="Do not tell what the verifier said."),
) -> None:
    """Draw attempts for review, or go on with a sheet that was drawn; tells ρ0 and ρ1 from the labels so far.

    Drawn at random are passes and failures of each stratum, with known probabilities. Attempts on which voters
    disagree, and passes that the scan finds suspicious, are all taken.
    """
    if target and environment:
        raise InputError("two targets", where="--env", expected="one", mend="leave one of them out")
    with workspace() as space:
        if not target and not environment:
            _list_sheets(space)
            return
        sheet = _sheet(space, target or environment, bool(environment), num, seed, by, name)
        from flightschool.governance import agreement, labels_of, review_rates, settled

        labels = labels_of(space.store, sheet.name)
        rates = review_rates(sheet, labels)
        agreed, found = agreement(labels), settled(labels)
        accuracy = _accuracy(space, sheet, labels, rates)
        votes = Pool(space, sheet.target, environment=bool(environment)).votes()
    items = _item_rows(sheet, labels, found, blind)
    payload = {
        "sheet": _sheet_row(sheet),
        "items": items,
        "rates": _rates_row(rates),
        "agreement": agreed,
        "votes": votes,
        "accuracy": accuracy,
        "left": rates.num_left,
    }
    _tell_sheet(sheet, items, blind)
    _tell_rates(rates)
    tell_votes(votes)
    if accuracy is not None:
        told = _rate(accuracy["corrected"], "")
        output.say(f"accuracy of {sheet.target} on all tasks: {told} by what people said, {accuracy['raw']:.3f} raw")
    for pair in agreed:
        kappa = f"kappa {pair.kappa:.2f}" if pair.kappa == pair.kappa else "one label throughout, no kappa"
        output.say(f"{' and '.join(pair.reviewers)} agree on {pair.num_equal} of {pair.num_items}: {kappa}")
    output.finish(payload)


def _accuracy(
    space: Workspace, sheet: ReviewSheet, labels: Sequence[ReviewLabel], rates: ReviewRates
) -> dict[str, Any] | None:
    """The accuracy of an evaluation, corrected by its own reviewed attempts; None for anything else.

    Only where every cell is spoken for: what was never labelled cannot be corrected.
    """
    from flightschool.evaluation import load_run, summarise
    from flightschool.evaluation.keeping import EVALUATION_KIND
    from flightschool.governance import reviewed_of
    from flightschool.statistics import Interval, reviewed_rate

    if rates.error is None or rates.num_unspoken or not space.store.has(EVALUATION_KIND, sheet.target):
        return None
    found = summarise(load_run(space.store, sheet.target)).measurements
    raw = next((one for one in found if one.name == "success/all"), None)
    if raw is None:
        return None
    rate = Interval(value=raw.value, low=raw.low, high=raw.high, num_items=raw.num_items, method=raw.method)
    return {"raw": raw.value, "corrected": reviewed_rate(rate, reviewed_of(sheet, labels), seed=sheet.seed)}


def _list_sheets(space: Workspace) -> None:
    from flightschool.governance import labels_of, review_rates, sheets_of

    rows = []
    for sheet in sheets_of(space.store):
        rates = review_rates(sheet, labels_of(space.store, sheet.name))
        rows.append({**_sheet_row(sheet), "left": rates.num_left})
    table = [(row["name"], row["target"], row["num_items"], row["left"], row["made_at"]) for row in rows]
    output.table("Review sheets", ("sheet", "of", "#attempts", "#left", "drawn"), table)
    output.finish({"sheets": rows})


def _sheet(space: Workspace, target: str, only_env: bool, num: int, seed: int, by: str, name: str) -> ReviewSheet:
    """The kept sheet of this name, or a new one."""
    from flightschool.governance import draw_sheet, load_sheet, save_sheet, sheets_of

    if by not in ("stratum", "family", "none"):
        raise InputError(f"no strata by {by!r}", where="--by", expected="stratum, family or none", mend="choose one")
    if not only_env and not name and any(sheet.name == target for sheet in sheets_of(space.store)):
        return load_sheet(space.store, target)
    pool = Pool(space, target, environment=only_env)
    chosen = (
        check_name(name, "--name") if name else f"{pool.name}-n{num}-s{seed}" + ("" if by == "stratum" else f"-{by}")
    )
    for kept in sheets_of(space.store):
        if kept.name == chosen and (kept.target, kept.num, kept.seed, kept.by) == (pool.name, num, seed, by):
            return kept
    with output.progress(f"reading attempts of {pool.name}"):
        candidates, num_unjudged = pool.candidates(cast("By", by), seed)
    for environment, why in pool.strangers.items():
        output.say(f"{environment} cannot be opened any more, its strata are not known: {why}")
    drawn = draw_sheet(
        candidates,
        name=chosen,
        target=pool.name,
        num=num,
        seed=seed,
        by=by,
        num_unjudged=num_unjudged,
        environments=pool.digests(),
        made_by=actor(),
    )
    return save_sheet(space.store, drawn)


def _sheet_row(sheet: ReviewSheet) -> dict[str, Any]:
    return {
        "name": sheet.name,
        "target": sheet.target,
        "by": sheet.by,
        "num": sheet.num,
        "seed": sheet.seed,
        "num_items": len(sheet.items),
        "num_pool": sum(cell.size for cell in sheet.cells),
        "num_unjudged": sheet.num_unjudged,
        "made_by": sheet.made_by,
        "made_at": sheet.made_at,
    }


def _item_rows(
    sheet: ReviewSheet, labels: Sequence[ReviewLabel], found: Mapping[str, str], blind: bool
) -> list[dict[str, Any]]:
    said: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in labels:
        said[one.attempt].append(
            {"reviewer": one.reviewer, "label": one.label, "reason": one.reason, "number": one.number, "at": one.at}
        )
    return [_item_row(item, said[item.attempt], found, blind) for item in sheet.items]


def _item_row(item: ReviewItem, labels: list[dict[str, Any]], found: Mapping[str, str], blind: bool) -> dict[str, Any]:
    held = found.get(item.attempt)
    return {
        "attempt": item.attempt,
        "task": item.task,
        # stratum, reason and probability tell a pass from a failure as plainly as the verdict does
        "stratum": None if blind else item.stratum,
        "why": None if blind else item.why,
        "inclusion": None if blind else item.inclusion,
        "passed": None if blind else item.passed,
        "state": "open" if held is None else "labelled" if held else "disputed",
        "label": held or None,
        "labels": labels,
    }


def _rates_row(rates: ReviewRates) -> dict[str, Any]:
    error = rates.error
    return {
        "rho0": None if error is None else error.rho0,
        "rho1": None if error is None else error.rho1,
        "num_reviewed": 0 if error is None else error.num_reviewed,
        "num_hacks": 0 if error is None else error.num_hacks,
        "pass_rate": rates.pass_rate,
        "right": rates.right,
        "num_pool": rates.num_pool,
        "num_unspoken": rates.num_unspoken,
        "disputed": rates.disputed,
    }


def _tell_sheet(sheet: ReviewSheet, items: Sequence[Mapping[str, Any]], blind: bool) -> None:
    output.say(
        f"sheet {sheet.name}: {len(items)} of {sum(cell.size for cell in sheet.cells)} attempts of {sheet.target}"
    )
    waiting = [item for item in items if item["state"] != "labelled"]
    columns = ("attempt", "task", "state") if blind else ("attempt", "task", "stratum", "why", "verdict", "state")
    rows = []
    for item in waiting[:MOST_SHOWN]:
        told = () if blind else (item["stratum"], item["why"], "pass" if item["passed"] else "fail")
        rows.append((item["attempt"], item["task"], *told, item["state"]))
    if rows:
        output.table("Next to label", columns, rows)
    if len(waiting) > len(rows):
        output.say(f"… and {len(waiting) - len(rows)} more")


def _tell_rates(rates: ReviewRates) -> None:
    if rates.error is not None:
        output.say(f"false positives (ρ0): {_rate(rates.error.rho0, 'no wrong work was seen')}")
        output.say(f"false negatives (ρ1): {_rate(rates.error.rho1, 'no right work was seen')}")
        right = _rate(rates.right, "not known")
        output.say(f"right work in the pool: {right}; the verifier passed {rates.pass_rate:.3f}")
        output.say(f"{rates.error.num_reviewed} labelled, {rates.error.num_hacks} of them hacks")
    if rates.error is not None and rates.num_unspoken:
        output.say(f"not spoken for: {rates.num_unspoken} of {rates.num_pool} attempts, in strata without a label")
    if rates.disputed:
        output.say(f"{len(rates.disputed)} disputed: one more reviewer, or a change of mind, settles each")
    output.say(f"{rates.num_left} left to label")


def _rate(found: Interval | None, none: str) -> str:
    return none if found is None else f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


# ------------------------------------------------------------------------------------------------ show, label


def show(
    attempt: str = typer.Argument(..., metavar="ID", help="An attempt, as `review list` names it."),
    blind: bool = typer.Option(False, "--blind", help="Without verdict, reward and the labels of others."),
) -> None:
    """Show one attempt: task, rules, calls and results, checks with evidence, reward terms."""
    from flightschool.governance import labels_of, sheets_of

    with workspace() as space:
        recorded = find_attempt(space, attempt)
        labels = [
            one
            for sheet in sheets_of(space.store, attempt)
            for one in labels_of(space.store, sheet.name)
            if one.attempt == attempt
        ]
        row = attempt_row(space, recorded, labels, blind)
        votes = () if blind else _votes_around(space, recorded)
    tell_attempt(row)
    tell_votes(votes)
    output.finish({**row, "votes": votes})


def _votes_around(space: Workspace, attempt: Attempt) -> tuple[VoteAgreement, ...]:
    """How far the voices behind the checks of an attempt agree over its whole run; empty where each has one."""
    checks = () if attempt.verdict is None else attempt.verdict.checks
    several = {check.id for check in checks if len(check.votes) >= 2}
    run = attempt.id.partition(":")[0]
    return tuple(one for one in Pool(space, run).votes() if one.check in several) if several else ()


def label(
    attempt: str = typer.Argument(..., metavar="ID", help="An attempt on a review sheet."),
    what: str = typer.Argument(..., metavar="right|wrong|hack", help="Hack: wrong work made to look right."),
    reason: str = typer.Option(..., "--reason", help="Why; kept in the audit log."),
    sheet: str = typer.Option("", "--sheet", help="The sheet, where the attempt stands on several."),
) -> None:
    """Label one attempt. A second label of the same person is added, and holds from then on."""
    from flightschool.governance import add_label, labels_of, load_sheet, review_rates, sheets_of

    with workspace() as space:
        chosen = load_sheet(space.store, sheet) if sheet else _only(sheets_of(space.store, attempt), attempt)
        written = add_label(space.store, chosen, attempt, reviewer=actor(), label=what, reason=reason)
        rates = review_rates(chosen, labels_of(space.store, chosen.name))
    again = f" (label {written.number + 1} of {written.reviewer})" if written.number else ""
    output.say(f"{attempt}: {written.label}{again}; {rates.num_left} left on {chosen.name}")
    output.finish({"label": written, "sheet": chosen.name, "left": rates.num_left})


def _only(sheets: Sequence[ReviewSheet], attempt: str) -> ReviewSheet:
    if len(sheets) == 1:
        return sheets[0]
    names = ", ".join(sheet.name for sheet in sheets)
    raise InputError(
        f"attempt {attempt!r} stands on {'several review sheets' if sheets else 'no review sheet'}",
        where="--sheet" if sheets else attempt,
        expected=f"one of {names}" if sheets else "an attempt that was drawn with a known probability",
        mend="name the sheet" if sheets else "draw one: flightschool review list ENV|RUN",
    )


# ------------------------------------------------------------------------------------------------ scan


def scan(
    target: str = typer.Argument("", metavar="RUN|ENV", help="A run, or an environment with all its attempts."),
    environment: str = typer.Option("", "--env", help="An environment, even where a run has its name."),
    canary: list[str] = typer.Option([], "--canary", help="A task that no honest policy can pass; repeat for more."),
    seed: int = typer.Option(0, "--seed", help="Seed of the shuffles that concentration is held against."),
) -> None:
    """Scan attempts for cheats, hollow passes and odd courses of training; ends with 1 when something is suspicious."""
    if bool(target) is bool(environment):
        what = "two targets" if target else "RUN|ENV is missing"
        raise InputError(what, where="review scan", expected="one target", mend="name a run or an environment")
    with workspace() as space:
        pool = Pool(space, target or environment, environment=bool(environment))
        with output.progress(f"scanning {pool.name}"):
            findings, num, num_passes, untried = pool.scan(tuple(canary), seed)
    suspicious = [finding for finding in findings if finding.severity.value != "info"]
    tell_findings(findings)
    output.say(f"{num} attempts, {num_passes} passes, {len(suspicious)} findings")
    for name, why in pool.strangers.items():
        output.say(f"{name} cannot be opened any more, rules that need its solutions were silent: {why}")
    if untried:
        output.say(f"no attempt at these canaries: {', '.join(untried)}")
    output.finish(
        {
            "target": pool.name,
            "canaries_untried": untried,
            "num_attempts": num,
            "num_passes": num_passes,
            "findings": [finding_row(finding) for finding in findings],
            "unknown_environments": pool.strangers,
        },
        fell_short=bool(suspicious),
    )
