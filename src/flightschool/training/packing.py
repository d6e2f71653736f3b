"""Packing: groups become flat tokens in which what they share stands once. Imports no torch.

The members of a group share their prompt, which is most of their tokens, and groups of one environment share the
beginning of theirs: the system turn, tools, worked examples. A *pack* is a forest of *segments*: a tree of shared
prefixes (``prefix_tree``), then each member's own tokens, split only where its span forest branches. A segment sees
itself causally and all of the segments above it. Each trained token is a *target*: the id that was sampled and the flat
index of the token that predicts it, which for a member's first token may lie in a shared prefix.

Tokens that predict nothing are left out: the last token of a trajectory, and observations after the last completion.

Shape letters: ``N`` flat tokens of a pack, ``M`` targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from flightschool.errors import TokenContractError
from flightschool.records import SpanKind, TokenSpan
from flightschool.training.contract import check_span
from flightschool.training.messages import TrainGroup, TrainMember
from flightschool.training.prefix_tree import Branch, Key, num_tree_tokens, prefix_tree

__all__ = ["Pack", "Restriction", "Segment", "Target", "pack_group", "pack_groups", "pack_paths"]


@dataclass(frozen=True)
class Segment:
    """A run of flat tokens of one path."""

    start: int
    """Flat index of its first token; below 0 for a stem, whose tokens stand before the pack's (see ``stem``)."""
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
    """Member, counted from 0 over all groups that were packed together."""
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

    @property
    def stem_length(self) -> int:
        """Tokens of the stem that the pack was cut off."""
        return max(0, -self.segments[0].start) if self.segments else 0


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
    """``pack_groups`` of one group."""
    return pack_groups([group], newest_step=newest_step, max_tokens=max_tokens, routes=routes)


def pack_groups(
    groups: Sequence[TrainGroup], *, newest_step: int, max_tokens: int = 1 << 30, routes: Routes | None = None
) -> list[Pack]:
    """Pack groups, in as few packs as ``max_tokens`` allows; a pack holds at least one member.

    Args:
        groups: whose members; a pack may hold members of several.
        newest_step: the trainer's version.
        max_tokens: of a pack.
        routes: finds experts that were recorded; None: a dense model. With it, groups share nothing with one another:
            the same prompt may have met other experts under other weights.

    Raises:
        TokenContractError: a completion is not token-exact, or nothing stands before it.
    """
    numbered = enumerate((place, member) for place, group in enumerate(groups) for member in group.members)
    rooted = [
        _Rooted(forest, _key(forest[0], place, apart=routes is not None))
        for index, (place, member) in numbered
        if (forest := _forest(member, index, newest_step, routes))
    ]
    return [_lay_out(batch) for batch in _batches(rooted, max_tokens)]


def pack_paths(groups: Sequence[TrainGroup], *, newest_step: int, max_tokens: int = 1 << 30) -> list[Pack]:
    """Pack groups without sharing: every root-leaf path of a member is a segment of its own, with no parents.

    For models of which no more is known than the plain pass of a sequence. What several paths share goes through the
    model with each of them, but its tokens are targets in the first alone: credit on a shared span counts once.

    Args:
        groups: whose members; a pack holds whole members, and at least one.
        newest_step: the trainer's version.
        max_tokens: of a pack.

    Raises:
        TokenContractError: a completion is not token-exact, or nothing stands before it.
    """
    packs: list[Pack] = []
    layout = _Layout()
    for index, member in enumerate(member for group in groups for member in group.members):
        paths = _paths(_forest(member, index, newest_step, None))
        size = sum(len(tokens) - 1 for tokens, _ in paths)
        if layout.pack.tokens_N and len(layout.pack.tokens_N) + size > max_tokens:
            packs.append(layout.pack)
            layout = _Layout()
        for tokens, labels in paths:
            layout.write(tokens, labels, (), (), member=index, is_leaf=True)
    return [*packs, layout.pack] if layout.pack.targets else packs


def _paths(forest: Sequence[_Node]) -> list[tuple[list[int], list[_Label | None]]]:
    """Tokens and labels from a root to each leaf; a node's labels stand in the first path through it."""
    told: set[int] = set()
    paths: list[tuple[list[int], list[_Label | None]]] = []
    for place in (place for place, node in enumerate(forest) if node.is_leaf):
        chain: list[int] = []
        above: int | None = place
        while above is not None:
            chain.append(above)
            above = forest[above].parent
        tokens: list[int] = []
        labels: list[_Label | None] = []
        for step in reversed(chain):
            node = forest[step]
            tokens += node.tokens
            labels += [None] * len(node.labels) if step in told else node.labels
            told.add(step)
        paths.append((tokens, labels))
    return paths


def _batches(rooted: Sequence[_Rooted], max_tokens: int) -> Iterator[list[_Rooted]]:
    """In order, as many in a batch as ``max_tokens`` allows."""
    batch: list[_Rooted] = []
    size = 0
    for row in rooted:
        added = row.num_own + (0 if batch and batch[-1].key == row.key else _num_added(row.key, batch))
        if batch and size + added > max_tokens:
            yield batch
            batch, size, added = [], 0, row.num_own + len(row.key.tokens)
        batch.append(row)
        size += added
    if batch:
        yield batch


def _num_added(key: Key, batch: Sequence[_Rooted]) -> int:
    keys = [row.key for row in batch]
    return num_tree_tokens([*keys, key]) - num_tree_tokens(keys)


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
    own_T = member.token_advantages.get(span.id) or (0.0,) * len(runs)
    if len(own_T) != len(runs):
        raise TokenContractError(
            f"{len(own_T)} advantages for {len(runs)} tokens",
            where=f"{member.attempt} span {span.id}",
            expected="one a token",
            mend="report this with the run's journal",
        )
    return [
        (value, advantage + own, span.temperature, new, None if restriction is None else (restriction, place))
        for place, (value, own, new) in enumerate(zip(span.logprobs_T, own_T, runs, strict=True))
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


@dataclass(frozen=True)
class _Rooted:
    """A member's forest, and what of its first root others may share."""

    forest: list[_Node]
    key: Key

    @property
    def num_own(self) -> int:
        """Tokens that nobody else may share."""
        return sum(len(node.tokens) for node in self.forest) - len(self.key.tokens)


def _key(root: _Node, group: int, *, apart: bool) -> Key:
    """The untrained beginning of a root; at least one token stays the root's own."""
    length = min(_num_leading_unlabelled(root), len(root.tokens) - 1)
    return Key(tokens=tuple(root.tokens[:length]), group=group, apart=apart)


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


def _lay_out(rows: Sequence[_Rooted]) -> Pack:
    layout = _Layout()

    def write(branch: Branch, above: tuple[int, ...]) -> None:
        if branch.end > branch.start:
            first = rows[branch.keys[0]].forest[0]
            part = slice(branch.start, branch.end)
            unlabelled: list[_Label | None] = [None] * (branch.end - branch.start)
            index = layout.write(first.tokens[part], unlabelled, first.routes[part], above, member=-1, is_leaf=False)
            above = (*above, index)
        for child in branch.below:
            if isinstance(child, Branch):
                write(child, above)
            else:
                _write_forest(layout, rows[child].forest, branch.end, above)

    write(prefix_tree([row.key for row in rows]), ())
    return layout.pack


def _write_forest(layout: _Layout, forest: Sequence[_Node], shared: int, top: tuple[int, ...]) -> None:
    """A member's own tokens: its first root without the ``shared`` ones, then all other nodes."""
    paths: list[tuple[int, ...]] = []
    for place, node in enumerate(forest):
        cut, above = (shared, top) if place == 0 else (0, () if node.parent is None else paths[node.parent])
        tokens, labels = node.tokens[cut:], node.labels[cut:]
        index = layout.write(tokens, labels, node.routes[cut:], above, member=node.member, is_leaf=node.is_leaf)
        paths.append((*above, index))
