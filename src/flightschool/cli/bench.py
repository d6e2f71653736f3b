"""``bench quickstart · episodes · robustness · sandbox · staleness · …``: promised figures against their targets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from flightschool.cli import bench_evaluation, bench_openenv, bench_training, output
from flightschool.cli.verb import group, verb
from flightschool.errors import InputError

if TYPE_CHECKING:
    from flightschool.bench import QuickstartBench, SandboxBench, StalenessBench, Target
    from flightschool.store import Workspace

__all__ = ["register"]

QUICK_EPISODES = 500


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    bench = group(
        app, "bench", "Benchmarks: promised figures measured on this machine; ends with 1 when one is missed."
    )
    verb(bench, "quickstart", example="flightschool bench quickstart --seeds 0,1,2 --json")(quickstart)
    verb(bench, "episodes", example="flightschool bench episodes --json")(episodes)
    verb(bench, "robustness", example="flightschool bench robustness --workspace quickstart --json")(robustness)
    verb(bench, "sandbox", example="flightschool bench sandbox --quick --json")(sandbox)
    verb(bench, "staleness", example="flightschool bench staleness --json")(staleness)
    bench_evaluation.register(bench)
    bench_openenv.register(bench)
    bench_training.register(bench)


def quickstart(
    seeds: str = typer.Option("0,1,2", "--seeds", help="Seeds, one job each, one after the other."),
    quick: bool = typer.Option(False, "--quick", help="The first seed only."),
    offline: bool = typer.Option(False, "--offline", help="Train the small model that ships with flightschool."),
    out: Path | None = typer.Option(None, "--out", help="Folder for the workspaces; a fresh temporary one otherwise."),
) -> None:
    """The main job in a fresh process and workspace a seed: time, memory, and success before and after.

    Seeds are drawn together on the side of caution. wall_s: slowest seed; peak_rss_mb: largest sum over the process
    tree of proportional set sizes, in 10^6 bytes; success_before and perturbed_before: largest of all seeds;
    success_after, perturbed_after and gain_low: smallest; gain_high: largest. The model is downloaded before the clock
    starts.

    Targets: 480 s, 6000 MB, before at most .15, after at least .9, gain_low above 0, a rise under faults with every
    seed, three seeds (one with --quick).
    """
    from flightschool.bench import bench_quickstart

    numbers = _seeds(seeds)
    folder = out or Path(tempfile.mkdtemp(prefix="flightschool-bench-"))
    measured = bench_quickstart(
        folder, numbers[:1] if quick else numbers, offline=offline, quick=quick, tell=output.say
    )
    _tell_flights(measured)
    _tell_targets(measured.targets)
    output.finish(msgspec.structs.asdict(measured), fell_short=not measured.met)


def episodes(
    num: int = typer.Option(2000, "--num", min=5, help="Episodes to measure."),
    seed: int = typer.Option(0, "--seed", help="Seed of the episodes."),
    quick: bool = typer.Option(False, "--quick", help=f"{QUICK_EPISODES} episodes."),
) -> None:
    """CPU of a scripted tool-only episode: fresh world, two tool calls, checks, reward, record.

    Beside it stands what no such episode can do without, measured in the same run: a SQLite image opened, two
    statements, the image taken out. Their ratio hardly depends on the machine. Target: 2 ms.
    """
    from flightschool.bench import all_met, bench_episodes

    measured = bench_episodes(QUICK_EPISODES if quick else num, seed=seed)
    rows = [
        ("CPU of an episode, median", f"{measured.cpu_ms:.3f} ms"),
        ("CPU of an episode, quietest round", f"{measured.cpu_ms_best:.3f} ms"),
        ("CPU of the physical reference", f"{measured.reference_ms:.3f} ms"),
        ("ratio", f"{measured.ratio:.1f}"),
        ("episodes a second, one core", f"{measured.episodes_per_s:.0f}"),
        ("checks an episode", f"{measured.checks_per_episode:.1f}"),
        ("success", f"{measured.success:.3f}"),
    ]
    output.table(f"{measured.num_episodes} scripted episodes", ("what", "#measured"), rows)
    _tell_targets(measured.targets)
    met = all_met(measured.targets) and measured.success == 1.0
    output.finish({**msgspec.structs.asdict(measured), "met": met}, fell_short=not met)


def robustness(
    model: str | None = typer.Option(
        None, "--model", help="DIR, model:DIR or run:RUN[@STEP]; by default what quickstart.json names."
    ),
    workspace: Path | None = typer.Option(None, "--workspace", help="Workspace with the suite; by default this one."),
    suite: str = typer.Option("checkride", "--suite", help="The frozen suite."),
    seed: int = typer.Option(0, "--seed", help="Seed of sampling and latencies."),
    other_seed: int = typer.Option(7, "--other-seed", help="Seed of the generator for other ids and values."),
    temperature: float = typer.Option(1.0, "--temperature", min=0.0, help="Sampling temperature."),
    samples: int = typer.Option(3, "--samples", min=1, help="Attempts at each task in each variant."),
) -> None:
    """A trained model on the suite's trained families: as frozen, other ids, other words, a renamed tool.

    Two controls: with random attention output weights the model must fail, and so must a script that knows one
    template of calls. Targets: as frozen above .15, variants within .1 of it; the controls at most .15 and below .5.
    """
    from flightschool.bench import Variant, bench_robustness
    from flightschool.store import Workspace

    def tell(variant: Variant) -> None:
        output.say(f"{variant.name}: {variant.success:.3f} ({variant.low:.3f} to {variant.high:.3f}) {variant.note}")

    with Workspace.find(workspace) as space:
        folder = _model_folder(model, space)
        measured = bench_robustness(
            folder,
            space,
            name=model or str(folder),
            suite=suite,
            seed=seed,
            other_seed=other_seed,
            temperature=temperature,
            samples=samples,
            tell=tell,
        )
    _tell_targets(measured.targets)
    output.finish(msgspec.structs.asdict(measured), fell_short=not measured.met)


def sandbox(
    quick: bool = typer.Option(False, "--quick", help="Fewer rounds and folders; under two minutes."),
    num_episodes: int = typer.Option(
        0, "--episodes", min=0, help="Fly so many littering episodes as well and count what they leave behind."
    ),
) -> None:
    """Sandboxes of the present user on two cores, no warm pool: start + `true` + destroy beside a bare clone in C.

    What is compared is made in turns in one run, so that ratios hardly depend on the machine. Targets are held to the
    quietest round. Figures that need a compiler, bubblewrap or runc are null where that is absent.

    Targets: ratio_to_floor at most 2, per_s_at_8 at least 250, exec_ms_p50 at most 2, live_mib at most 6, at least
    350 task folders read a second, light_task_s (a small task from the start of the command to its verdict) at most
    1.5, vs_bubblewrap at least 3, vs_runc at least 4, nothing left behind.
    """
    from flightschool.bench import bench_sandbox

    measured = bench_sandbox(quick=quick, num_episodes=num_episodes, tell=output.say)
    _tell_sandbox(measured)
    _tell_targets(measured.targets)
    output.finish(msgspec.structs.asdict(measured), fell_short=not measured.met)


def staleness(
    quick: bool = typer.Option(False, "--quick", help="Fewer groups and one seed; a few seconds."),
    seed: int = typer.Option(0, "--seed", help="First seed of the episode lengths."),
) -> None:
    """Rules of staleness on one simulated plant: discard what is old, bound what is admitted, hold the step.

    96 episodes at once, groups of 8, steps of 8 groups; bounds 1, 2 and 4; lengths lognormal, heavy-tailed and bimodal.
    Each rule's figures are its worst of all; `rows` has every one. `ours` is the rule object that a training run asks.
    inflation_over_bound compares the size of steps with the smallest that any rule could have had on the same episodes.

    Targets of ours: no excess, length bias, waste, expired tokens and gap between position deciles at most .02, at
    least .95 of the best throughput, at most 1.3 times the bound.
    """
    from flightschool.bench import bench_staleness

    measured = bench_staleness(quick=quick, seed=seed, tell=output.say)
    _tell_staleness(measured)
    _tell_targets(measured.targets)
    output.finish(msgspec.structs.asdict(measured), fell_short=not measured.met)


# ------------------------------------------------------------------------------------------------ small parts


def _seeds(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.strip().isascii() and word.strip().isdigit() for word in words):
        raise InputError(
            f"cannot read seeds {text!r}", where="--seeds", expected="whole numbers, such as 0,1,2", mend="correct it"
        )
    return [int(word) for word in words]


def _model_folder(reference: str | None, space: Workspace) -> Path:
    from flightschool.cli.references import existing_path, run_model

    if reference is None:
        path = existing_path(str(space.root / "quickstart.json"), "quickstart.json")
        return existing_path(str(msgspec.json.decode(path.read_bytes())["model_after"]), "model folder")
    if reference.startswith("run:"):
        return run_model(reference.removeprefix("run:"), space)
    return existing_path(reference.removeprefix("model:"), "model folder")


def _tell_flights(measured: QuickstartBench) -> None:
    rows = [
        (
            flight.seed,
            f"{flight.wall_s:.0f}",
            f"{flight.peak_rss_mb:.0f}",
            f"{flight.success_before:.3f}",
            f"{flight.success_after:.3f}",
            f"{flight.gain_low:+.3f} to {flight.gain_high:+.3f}",
            f"{flight.perturbed_before:.3f}",
            f"{flight.perturbed_after:.3f}",
        )
        for flight in measured.seeds
    ]
    columns = ("#seed", "#wall s", "#MB", "#before", "#after", "#gain", "#faults before", "#faults after")
    output.table("The main job", columns, rows)


def _tell_sandbox(measured: SandboxBench) -> None:
    absent = "not here"
    rows = [
        (what, absent if value is None else f"{value:{shape}} {unit}".rstrip())
        for what, value, shape, unit in (
            ("bare clone in C, `true`, wait, median", measured.floor_ms_p50, ".2f", "ms"),
            ("sandbox: start, `true`, destroyed, median", measured.start_ms_p50, ".2f", "ms"),
            ("the same by the launcher in Python", measured.python_start_ms_p50, ".2f", "ms"),
            ("sandbox / bare clone, quietest round", measured.ratio_to_floor, ".2f", ""),
            ("sandbox / bare clone, median of rounds", measured.ratio_to_floor_p50, ".2f", ""),
            ("sandboxes a second, 8 at a time", measured.per_s_at_8, ".0f", ""),
            ("bare clones a second, 8 at a time", measured.floor_per_s_at_8, ".0f", ""),
            ("`true` in a live sandbox", measured.exec_ms_p50, ".2f", "ms"),
            ("a live sandbox", measured.live_mib, ".2f", "MiB"),
            ("a bubblewrap for each command", measured.bubblewrap_ms_p50, ".2f", "ms"),
            ("commands a second, against those", measured.vs_bubblewrap, ".1f", "times"),
            ("runc run", measured.runc_ms_p50, ".2f", "ms"),
            ("starts a second, against runc", measured.vs_runc, ".1f", "times"),
            ("task folders read a second", measured.harbor_parse_tasks_per_s, ".0f", ""),
            ("a small task, from the command to its verdict", measured.light_task_s, ".2f", "s"),
        )
    ]
    if measured.left_behind is not None:
        left = ", ".join(f"{count} {name}" for name, count in measured.left_behind.items()) or "nothing"
        rows.append((f"left behind by {measured.num_episodes} episodes", left))
    title = f"{measured.mechanism}, user {measured.uid}, {measured.cores} cores; {measured.launcher}"
    output.table(title, ("what", "#measured"), rows)


def _tell_staleness(measured: StalenessBench) -> None:
    rows = [
        (
            name.replace("_", " "),
            f"{figures.throughput_share_of_best:.3f}",
            f"{figures.max_staleness_excess}",
            f"{figures.length_bias:.3f}",
            f"{figures.waste:.3f}",
            f"{figures.expired_token_share:.3f}",
            f"{figures.batch_inflation:.2f}",
            f"{figures.inflation_over_bound:.2f}",
        )
        for name, figures in (
            ("discard", measured.discard),
            ("admission", measured.admission),
            ("ours", measured.ours),
            ("ours_draining", measured.ours_draining),
        )
    ]
    columns = ("rule", "#of best", "#excess", "#length bias", "#waste", "#expired", "#inflation", "#over bound")
    output.table("At worst, over bounds and laws", columns, rows)


def _tell_targets(targets: Iterable[Target]) -> None:
    rows = [(t.name, f"{t.value:.3f}", f"{t.relation} {t.limit:g}", "met" if t.met else "MISSED") for t in targets]
    output.table("Targets", ("figure", "#measured", "#target", ""), rows)
