"""Text to instructions: directives, comments, continuations, flags and heredocs, with their lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.environments.terminal import Dockerfile, parse_dockerfile
from flightschool.environments.terminal.dockerfile import json_form
from flightschool.errors import InputError

WORD = st.text(alphabet="abcXYZ019-_./=:+,@%", min_size=1, max_size=8)


@given(
    words=st.lists(WORD, min_size=1, max_size=8),
    breaks=st.lists(
        st.sampled_from(["", "\\\n", "\\  \n", "\\\r\n", "\\\n# c \\\n", "\\\n   # c\n\n"]), min_size=8, max_size=8
    ),
    escape=st.sampled_from("\\`"),
    indent=st.sampled_from(["", "  ", "\t"]),
)
def test_continuations_comments_and_blank_lines_leave_the_command(
    words: list[str], breaks: list[str], escape: str, indent: str
) -> None:
    """However an instruction is broken over lines, its words are the same and the next one begins where it ends."""
    if words[0].startswith("--"):
        return  # a flag
    gaps = [*breaks[: len(words) - 1], ""]  # a gap behind the last word would take the next instruction in
    body = "".join(f" {word} {gap}" for word, gap in zip(words, gaps, strict=True)).replace("\\", escape)
    text = f"# escape={escape}\nFROM a\n{indent}run{body}\nUSER b\n"
    first, second, third = parse_dockerfile(text).instructions
    assert (first.keyword, second.keyword, third.keyword) == ("FROM", "RUN", "USER")
    assert second.rest.split() == words
    assert (second.line, third.line) == (3, text.replace("\r\n", "\n").rstrip().count("\n") + 1)
    assert third.line == second.end_line + 1


def parse_or_refuse(text: str) -> Dockerfile | InputError:
    try:
        return parse_dockerfile(text)
    except InputError as error:
        return error


@given(st.text(alphabet="FROM RUN COPY\\`\n\r\t#<-EOF'\"[]=$ ab", max_size=120))
def test_any_text_parses_or_is_refused_with_a_line(text: str) -> None:
    result = parse_or_refuse(text)
    if isinstance(result, InputError):
        assert result.where.startswith("Dockerfile:")
    else:
        lines = [line for i in result.instructions for line in (i.line, i.end_line)]
        assert lines == sorted(lines)


@pytest.mark.parametrize("tail", ["x\\\\", "x"])
def test_two_escape_characters_do_not_continue(tail: str) -> None:
    rests = [i.rest for i in parse_dockerfile(f"RUN {tail}\nUSER a").instructions]
    assert rests == [tail, "a"]


def test_directives_count_only_at_the_top() -> None:
    top = parse_dockerfile("# syntax=docker/dockerfile:1.7\n# Escape = `\nFROM a`\n:b\n")
    assert (top.syntax, top.escape, top.instructions[0].rest) == ("docker/dockerfile:1.7", "`", "a:b")
    late = parse_dockerfile("# a comment\n# escape=`\nFROM a\\\n:b\n")
    assert (late.escape, late.instructions[0].rest) == ("\\", "a:b")


def test_heredocs_take_their_lines_and_their_quotes() -> None:
    text = "FROM a\n"
    text += "COPY <<one 3<<-\"two\" <<'three' /x/\n  $A\n# no comment\none\n\t\tB\n\ttwo\nUSER no\nthree\nUSER yes\n"
    _, copy, user = parse_dockerfile(text).instructions
    assert [(d.name, d.content, d.expand, d.descriptor) for d in copy.heredocs] == [
        ("one", "  $A\n# no comment\n", True, ""),
        ("two", "B\n", False, "3"),
        ("three", "USER no\n", False, ""),
    ]
    assert (copy.end_line, user.line, user.rest) == (9, 10, "yes")


def test_what_only_looks_like_a_heredoc_is_none() -> None:
    text = 'FROM a\nRUN cat <<<x && echo $((1<<3)) && python -c "print(1 << 2)"\nRUN ["cat", "<<EOF"]\nUSER b\n'
    assert [len(i.heredocs) for i in parse_dockerfile(text).instructions] == [0, 0, 0, 0]


def test_flags_are_split_off() -> None:
    copy, run = parse_dockerfile(
        "COPY --chown=a:b --link x --y z\nRUN --mount=type=cache,target=/c -- ls\n"
    ).instructions
    assert (copy.flags, copy.rest) == ((("chown", "a:b"), ("link", "")), "x --y z")
    assert (run.flags, run.rest) == ((("mount", "type=cache,target=/c"),), "ls")


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ('["a", "b c"]', ("a", "b c")),
        ("['a']", None),
        ('["a", 1]', None),
        ("[ -e /a ] && b", None),
        ("[]", ()),
        ("a", None),
    ],
)
def test_json_form_only_when_it_is_json(rest: str, expected: tuple[str, ...] | None) -> None:
    assert json_form(rest) == expected


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("", "no instruction", 1),
        ("FROM a\nRUNN x\n", "unknown instruction 'RUNN'", 2),
        ("FROM a\nRUN \\\n cat <<E\nx\n", "heredoc 'E' has no end", 2),
        ("FROM a\n\nUSER\n", "USER without an argument", 3),
        ("# escape=%\nFROM a\n", "escape character '%'", 1),
        ("# escape=`\n# escape=`\nFROM a\n", "directive 'escape' stands twice", 2),
    ],
)
def test_broken_files_are_refused_with_the_line(text: str, what: str, line: int) -> None:
    with pytest.raises(InputError, match=what) as caught:
        parse_dockerfile(text, "environment/Dockerfile")
    assert caught.value.where == f"environment/Dockerfile:{line}"
