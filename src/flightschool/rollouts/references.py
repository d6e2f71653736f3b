"""The policy grammar of the command line, made into policies.

``oracle | noop | random | constant:FILE | script:FILE | model:DIR | run:RUN[@STEP] | openai:URL#MODEL |
anthropic:URL#MODEL``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flightschool.errors import InputError
from flightschool.protocols import Environment
from flightschool.rollouts.endpoint_policy import EndpointPolicy
from flightschool.rollouts.policies import (
    ConstantPolicy,
    NoopPolicy,
    OraclePolicy,
    Policy,
    RandomPolicy,
    ScriptPolicy,
    load_calls,
)
from flightschool.rollouts.transcript import Sampling

__all__ = ["GRAMMAR", "model_policy", "parse_policy"]

GRAMMAR = (
    "oracle | noop | random | constant:FILE | script:FILE | model:DIR | run:RUN[@STEP] | openai:URL#MODEL | "
    "anthropic:URL#MODEL"
)


def parse_policy(
    text: str,
    environment: Environment | None,
    *,
    sampling: Sampling | None = None,
    resolve_run: Callable[[str], Path] | None = None,
    device: str = "cpu",
) -> Policy:
    """The policy that ``text`` names.

    Args:
        environment: whose references the oracle plays; None where nothing is known of them.
        resolve_run: finds the model folder of ``RUN[@STEP]``.

    Raises:
        InputError: the text is no policy, or what it names does not exist.
    """
    kind, _, argument = text.partition(":")
    plain: dict[str, Callable[[], Policy]] = {
        "noop": NoopPolicy,
        "random": RandomPolicy,
    }
    if environment is not None:
        plain["oracle"] = lambda: OraclePolicy(environment)
    named: dict[str, Callable[[], Policy]] = {
        "constant": lambda: ConstantPolicy(load_calls(Path(argument)), name=f"constant:{Path(argument).name}"),
        "script": lambda: ScriptPolicy(Path(argument)),
        "model": lambda: model_policy(Path(argument), text, sampling, device),
        "openai": lambda: EndpointPolicy(text, sampling),
        "anthropic": lambda: EndpointPolicy(text, sampling),
    }
    if resolve_run is not None:
        named["run"] = lambda: model_policy(resolve_run(argument), text, sampling, device)
    make = named.get(kind) if argument else plain.get(kind)
    if make is not None:
        return make()
    raise InputError("not a policy", where=text or "--policy", expected=GRAMMAR, mend="see flightschool rollout --help")


def model_policy(folder: Path, name: str, sampling: Sampling | None = None, device: str = "cpu") -> Policy:
    """A local model folder behind the engine that runs it: our own, or the generic one."""
    from flightschool.engines.opening import local_kind, open_engine  # torch is heavy and only needed here
    from flightschool.engines.settings import EngineSettings
    from flightschool.rollouts.policies import EnginePolicy

    opened = open_engine(EngineSettings(kind=local_kind(folder)), folder, device=device)
    return EnginePolicy(opened.engine, opened.tokenizer, name, sampling)
