"""``bench training``: the trainer beside TRL, beside the limits of the machine, and beside itself in turn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.verb import verb

if TYPE_CHECKING:
    from flightschool.bench import TrainingBench

__all__ = ["register"]


def register(bench: typer.Typer) -> None:
    """Add the verb to the group ``bench``."""
    verb(bench, "training", example="flightschool bench training --quick --json")(training)


def training(
    quick: bool = typer.Option(
        False, "--quick", help="Smaller batches, one measured step, one repeat; no wall time to success."
    ),
    peer: bool = typer.Option(True, "--peer/--no-peer", help="Install TRL apart and measure it in the same run."),
    steps: int | None = typer.Option(None, "--steps", min=1, help="Measured steps of each flight beside TRL."),
    repeats: int | None = typer.Option(None, "--repeats", min=1, help="Flights of each side."),
    parts: str = typer.Option(
        "all",
        "--parts",
        help="Separated by commas: kernels, overlap, tokens, multi, wall, kills; all is all but kills.",
    ),
    model: str | None = typer.Option(None, "--model", help="Folder or name; smollm2-135m by default."),
) -> None:
    """The trainer on two cores: tokens and wall time beside TRL's GRPOTrainer, shares of what the machine can do.

    Both sides get the same model, prompts as the same token ids, group size, lengths, reward and optimizer, and take
    turns. What cannot be measured is null, and reasons says why. others: mean cores that other processes used.

    Targets: trl_ratio_tokens at least 4, trl_ratio_multi 6, trl_ratio_wall 8, multi_share_of_bound,
    generation_share_of_limit and training_share_of_peak .6, async_share_of_bound .95 at equal final reward, no token
    older than the bound. With --parts kills (50 kills -9 of stations, some ten minutes): no fault of the lineage.
    """
    from flightschool.bench import DEFAULT_PARTS, bench_training

    chosen = DEFAULT_PARTS if parts == "all" else tuple(part.strip() for part in parts.split(","))
    measured = bench_training(
        quick=quick,
        peer=peer,
        steps=steps,
        repeats=repeats,
        parts=chosen,
        model=_folder(model),
        tell=output.say,
    )
    _tell(measured)
    output.finish(msgspec.to_builtins(measured), fell_short=not measured.met)


def _folder(model: str | None) -> Path | None:
    from flightschool.cli.references import existing_path, is_path
    from flightschool.engines import get_model

    if model is None:
        return None
    return existing_path(model, "model folder") if is_path(model) else get_model(model, progress=output.say)


def _tell(measured: TrainingBench) -> None:
    names = (
        "trl_ratio_tokens",
        "trl_ratio_tokens_async",
        "trl_ratio_multi",
        "trl_ratio_multi_async",
        "multi_share_of_bound",
        "multi_share_of_torch_bound",
        "trl_ratio_wall",
        "trl_ratio_wall_async",
        "generation_share_of_limit",
        "training_share_of_peak",
        "training_share_of_torch_peak",
        "async_share_of_bound",
        "async_over_two_threads",
        "equal_final_reward",
        "trainer_idle",
        "waste",
        "length_bias",
        "expired_token_share",
        "batch_inflation",
        "staleness_bound",
        "max_trained_staleness",
        "ess",
        "num_kills",
        "lineage_faults",
        "attempts_lost",
        "killed_groups_trained",
    )
    limits = {target.name: target for target in measured.targets}
    rows = []
    for name in names:
        value, target = getattr(measured, name), limits.get(name)
        shown = "not measured" if value is None else str(value) if isinstance(value, int) else f"{value:.3f}"
        if name.startswith("trl_ratio_wall") and measured.trl_ratio_wall_is_lower_bound:
            shown = f"at least {shown}"
        held = "" if target is None else f"{target.relation} {target.limit:g}"
        verdict = "" if target is None else ("met" if target.met else "MISSED")
        rows.append((name, shown, held, verdict, measured.reasons.get(name, "")[:60]))
    busy = ", ".join(f"{cores:.2f} ({part})" for part, cores in measured.others.items())
    title = f"Training; cores that others used at worst: {busy}"
    output.table(title, ("figure", "#measured", "#target", "", "why not"), rows)
