"""Packing: a group becomes flat tokens in which a shared prompt stands once. Imports no torch.

The members of a group share their prompt, which is most of their tokens. A *pack* is a forest of *segments*: the
shared prefix, then each member's own tokens, split only where its span forest branches. A segment sees itself causally
and all of the segments above it. Each trained token is a *target*: the id that was sampled and the flat index of the
token that predicts it, which for a member's first token may lie in the shared prefix.

Tokens that predict nothing are left out: the last token of a trajectory, and observations after the last completion.

Shape letters: ``N`` flat tokens of a pack, ``M`` targets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from flightschool.errors import TokenContractError
from flightschool.records import SpanKind, TokenSpan
from flightschool.training.contract import check_span
from flightschool.training.messages import TrainGroup, TrainMember

__all__ = ["Pack", "Restriction", "Segment", "Target", "pack_group"]


@dataclass(frozen=True)
class Segment:
    """A run of flat tokens of one path."""

    start: int
    """Flat index of its first token."""
    length: int
    parents: tuple[int, ...]
    """Segments above it, root first."""


@dataclass(frozen=True)
class Restriction:
    """A completion that was sampled under a grammar."""

    grammar: str
    """Its text."""
    token_ids_T: tuple[int, ...]
    """The whole completion: what is allowed at a token follows from those before it."""
    where: str
    """Attempt and span, for errors."""


@dataclass(frozen=True)
class Target:
    """One trained token."""

    predictor: int
    """Flat index of the token whose hidden state predicts it."""
    token_id: int
    logprob: float | None
    """Behaviour log-probability; None: demonstrated, so no policy of ours sampled it."""
    advantage: float
    temperature: float
    member: int
    """Member of the group, counted from 0."""
    fresh: bool = False
    """Whether the token and all cached context under it are said to be of the trainer's present weights."""
    restriction: tuple[Restriction, int] | None = None
    """The restricted completion that the token is of, and its place there; None: the full support."""


@dataclass(frozen=True)
class Pack:
    """What goes through the model in one pass."""

    tokens_N: list[int]
    positions_N: list[int]
    segments: list[Segment]
    """Parents stand before their children."""
    targets: list[Target]
    routes_N: list[bytes] = field(default_factory=list)
    """Experts of each flat token, empty where none are known; no list for dense models."""

    @property
    def num_tokens(self) -> int:
        """Flat tokens."""
        return len(self.tokens_N)


_Label: TypeAlias = tuple[float | None, float, float, bool, tuple[Restriction, int] | None]
"""(log-probability, advantage, temperature, fresh, restriction)."""


@dataclass
class _Node:
    """A segment being built: tokens with, for completion tokens, what makes them targets."""

    member: int
    parent: int | None
    tokens: list[int] = field(default_factory=list)
    labels: list[_Label | None] = field(default_factory=list)
    """Of each token, None where nothing trains."""
    is_leaf: bool = True
    routes: list[bytes] = field(default_factory=list)
    """Experts of each token, or no list at all."""


Routes: TypeAlias = Callable[[str], Sequence[bytes]]
"""Reference of a span → experts of its first tokens."""


def pack_group(
    group: TrainGroup, *, newest_step: int, max_tokens: int = 1 << 30, routes: Routes | None = None
) -> list[Pack]:
    """Pack a group, in as few packs as ``max_tokens`` allows; a pack holds at least one member.

    Args:
        group: whose members.
        newest_step: the trainer's version.
        max_tokens: of a pack.
        routes: finds experts that were recorded; None: a dense model.

    Raises:
        TokenContractError: a completion is not token-exact, or nothing stands before it.
    """
    forests = [_forest(member, index, newest_step, routes) for index, member in enumerate(group.members)]
    forests = [forest for forest in forests if forest]
    if not forests:
        return []
    shared = _shared_length([forest[0] for forest in forests])
    own = [sum(len(node.tokens) for node in forest) - shared for forest in forests]
    packs: list[Pack] = []
    batch: list[list[_Node]] = []
    size = shared
    for forest, length in zip(forests, own, strict=True):
        if batch and size + length > max_tokens:
            packs.append(_lay_out(batch, shared))
            batch, size = [], shared
        batch.append(forest)
        size += length
    packs.append(_lay_out(batch, shared))
    return packs


# ------------------------------------------------------------------------------------------------ spans to nodes


def _forest(member: TrainMember, index: int, newest_step: int, routes: Routes | None) -> list[_Node]:
    """The member's spans as nodes, chains merged, untrained ends cut off; the longest-lived root first."""
    children: dict[int | None, list[TokenSpan]] = {}
    for span in member.spans:
        children.setdefault(span.parent, []).append(span)
    nodes: list[_Node] = []
    for root in children.get(None, []):
        stack: list[tuple[TokenSpan, int | None]] = [(root, None)]
        while stack:
            span, parent = stack.pop()
            node = _Node(member=index, parent=parent)
            nodes.append(node)
            place = len(nodes) - 1
            below = _extend(node, span, children, member, newest_step, routes)
            node.is_leaf = not below
            stack += [(child, place) for child in reversed(below)]
    return _prune(nodes)


def _extend(
    node: _Node,
    span: TokenSpan,
    children: dict[int | None, list[TokenSpan]],
    member: TrainMember,
    newest_step: int,
    routes: Routes | None,
) -> list[TokenSpan]:
    """Write a chain of only children into ``node``; returns the spans at which it branches."""
    while True:
        node.tokens += span.token_ids_T
        if routes is not None:
            known = list(routes(span.routing_ref)) if span.routing_ref else []
            node.routes += known + [b""] * (len(span.token_ids_T) - len(known))
        if span.kind is SpanKind.COMPLETION:
            check_span(span, f"{member.attempt} span {span.id}", newest_step, member.grammars)
            node.labels += _completion_labels(span, member, newest_step)
        elif span.kind is SpanKind.DEMONSTRATION:
            node.labels += [(None, member.advantage, span.temperature, False, None)] * len(span.token_ids_T)
        else:
            node.labels += [None] * len(span.token_ids_T)
        below = children.get(span.id, [])
        if len(below) != 1:
            return below
        span = below[0]


def _completion_labels(span: TokenSpan, member: TrainMember, newest_step: int) -> list[_Label | None]:
    advantage = member.advantage + member.turn_advantages.get(span.turn, 0.0)
    fresh = span.kv_step >= newest_step
    runs = [(run.step >= newest_step) and fresh for run in span.versions for _ in range(run.count)]
    grammar = member.grammars.get(span.support)
    restriction = (
        None if grammar is None else Restriction(grammar, span.token_ids_T, f"{member.attempt} span {span.id}")
    )
    return [
        (value, advantage, span.temperature, new, None if restriction is None else (restriction, place))
        for place, (value, new) in enumerate(zip(span.logprobs_T, runs, strict=True))
    ]


def _prune(nodes: list[_Node]) -> list[_Node]:
    """Cut what predicts nothing, from the leaves upward, and renumber parents."""
    keep = [True] * len(nodes)
    num_below = [0] * len(nodes)
    for place in range(len(nodes) - 1, -1, -1):
        node = nodes[place]
        node.is_leaf = num_below[place] == 0
        if node.is_leaf:
            while node.labels and node.labels[-1] is None:
                node.labels.pop()
                node.tokens.pop()
                del node.routes[len(node.tokens) :]
        keep[place] = bool(node.tokens) or not node.is_leaf
        if node.parent is not None:
            num_below[node.parent] += keep[place]
    renumbered: dict[int, int] = {}
    for place in (place for place, kept in enumerate(keep) if kept):
        renumbered[place] = len(renumbered)
    kept_nodes = [nodes[place] for place in renumbered]
    for node in kept_nodes:
        node.parent = None if node.parent is None else renumbered[node.parent]
    return kept_nodes


def _shared_length(roots: Sequence[_Node]) -> int:
    """Length of the untrained prefix that all first roots share; leaves each root at least one token."""
    if len(roots) < 2:
        return 0
    limit = min(_num_leading_unlabelled(root) for root in roots)
    limit = min(limit, *(len(root.tokens) - 1 for root in roots))
    first = roots[0].tokens
    length = 0
    while length < limit and all(root.tokens[length] == first[length] for root in roots):
        length += 1
    return length


def _num_leading_unlabelled(node: _Node) -> int:
    return next((i for i, label in enumerate(node.labels) if label is not None), len(node.labels))


# ------------------------------------------------------------------------------------------------ nodes to a pack


class _Layout:
    """Writes nodes into flat lists."""

    def __init__(self) -> None:
        self.pack = Pack([], [], [], [])

    def write(
        self,
        tokens: Sequence[int],
        labels: Sequence[_Label | None],
        routes: Sequence[bytes],
        parents: tuple[int, ...],
        *,
        member: int,
        is_leaf: bool,
    ) -> int:
        """Append a segment; returns its index. The last token of a leaf is a target only, not an input."""
        pack = self.pack
        start = len(pack.tokens_N)
        position = sum(pack.segments[parent].length for parent in parents)
        num_inputs = len(tokens) - 1 if is_leaf else len(tokens)
        pack.routes_N.extend(routes[:num_inputs])
        above = [pack.segments[parent] for parent in parents if pack.segments[parent].length]
        before = above[-1].start + above[-1].length - 1 if above else None
        for i, (token, label) in enumerate(zip(tokens, labels, strict=True)):
            if i < num_inputs:
                pack.tokens_N.append(token)
                pack.positions_N.append(position + i)
            if label is not None:
                predictor = start + i - 1 if i else before
                if predictor is None:
                    raise TokenContractError(
                        "a completion has nothing before it",
                        where=f"member {member}",
                        expected="a prompt before every completion",
                        mend="record the prompt's tokens as a span above the completion",
                    )
                pack.targets.append(Target(predictor, token, *label[:3], member, *label[3:]))
        pack.segments.append(Segment(start, num_inputs, parents))
        return len(pack.segments) - 1


def _lay_out(forests: Sequence[list[_Node]], shared: int) -> Pack:
    layout = _Layout()
    top: tuple[int, ...] = ()
    if shared:
        first = forests[0][0]
        prefix = first.tokens[:shared]
        top = (layout.write(prefix, [None] * shared, first.routes[:shared], (), member=-1, is_leaf=False),)
    for forest in forests:
        paths: list[tuple[int, ...]] = []
        for place, node in enumerate(forest):
            cut, above = (shared, top) if place == 0 else (0, () if node.parent is None else paths[node.parent])
            tokens, labels = node.tokens[cut:], node.labels[cut:]
            routes = node.routes[cut:]
            index = layout.write(tokens, labels, routes, above, member=node.member, is_leaf=node.is_leaf)
            paths.append((*above, index))
    return layout.pack
