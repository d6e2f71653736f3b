"""``runs export``: a training run as files for other programs: its groups and tokens, or its model."""

from __future__ import annotations

from pathlib import Path

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.references import workspace
from flightschool.errors import InputError

__all__ = ["export"]


def export(
    run: str = typer.Argument(..., metavar="R", help="A training run; R@STEP names a kept checkpoint (--model only)."),
    out: Path | None = typer.Option(None, "--out", help="New folder for groups.jsonl and spans.jsonl."),
    model: Path | None = typer.Option(None, "--model", help="New folder for the weights in Hugging Face's layout."),
) -> None:
    """Write what a run trained on, token by token, or the model that came of it.

    groups.jsonl names every group that was admitted, whether it trained, and at which version; spans.jsonl holds
    tokens, mask, log-probabilities and versions: enough to check that nothing was lost, doubled or too old.
    """
    if out is None and model is None:
        raise InputError(
            "nothing to export",
            where="flightschool runs export",
            expected="--out DIR for groups and tokens, --model DIR for weights, or both",
            mend="name a folder",
        )
    name, _, step = run.partition("@")
    if step and (out is not None or not step.isdigit()):
        raise InputError(
            f"{run!r} names weights of a step",
            where="flightschool runs export",
            expected="R@NUMBER with --model alone; groups and tokens are of the whole run",
            mend="leave @STEP out" if out is not None else "write the number of a step",
        )
    found: dict[str, object] = {"run": name}
    with workspace() as space:
        folder = space.run_dir(name)
        if out is not None:
            from flightschool.training.exporting import export_run

            summary = export_run(folder, out)
            states = ", ".join(f"{count} {state}" for state, count in summary.states.items())
            output.say(f"{summary.groups} groups ({states}) and {summary.spans} spans written to {out}")
            for told in summary.unreadable:
                output.say(told, style="yellow")
            found |= {"out": str(out.resolve()), **msgspec.to_builtins(summary)}
        if model is not None:
            from flightschool.training.folders import RunFolder

            if step:
                RunFolder(folder).kept_checkpoint(int(step))  # before anything heavy is imported
            from flightschool.training.model_export import export_model

            digest = export_model(folder, model, int(step) if step else None)
            output.say(f"model written to {model}")
            found |= {"model": str(model.resolve()), "model_digest": digest}
    output.finish(found)
