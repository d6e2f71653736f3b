"""Words and variables: against hand-made cases, generated ones, and a real shell where both know the form."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import needs

from flightschool.environments.terminal import expand_word
from flightschool.environments.terminal.substitution import SubstitutionError, expand_text, name_values, split_words

VALUES = {"full": "abc.tar.gz", "empty": "", "dir": "/opt/x/y", "two": "a b"}
TEXT = st.text(alphabet="abc $\"'\\`{}=/", max_size=12)

FORMS = [
    "$full", "${full}x", "$none", "${none}", "$empty-", "$fullx", "a$", "$ b", "${full:-d}", "${empty:-d}",
    "${empty-d}", "${none-d}", "${none:-${full}}", "${none:-a b}", "${full:+s}", "${empty:+s}",
    "${empty+s}", "${none+s}",
    "${full#*.}", "${full##*.}", "${full%.*}", "${full%%.*}", "${dir##*/}", "${dir%/*}", "${full#b}", "${full%?}",
    "${full/a/Z}", "${full//a/Z}", "${dir//\\//_}", "${full/x}", "${full/.*/}", "'$full'", '"$full"',
    '"\\$full"', "\\$full",
    '"a\\"b"', '"a\\nb"', "'a'\"b\"c", "${dir}/${full}", "$two", '"$two"', "${none:-'q r'}", "${none:-\"$two\"}",
]  # fmt: skip


@pytest.mark.skipif(
    shutil.which("bash") is None,
    reason=needs.reason("the program bash", "install it with this machine's package manager"),
)
def test_forms_mean_what_they_mean_to_a_shell() -> None:
    """Unquoted words are put into an assignment, where a shell splits nothing either."""
    asked = [form for form in FORMS if form != "$ b"]  # two words to a shell
    script = "\n".join(f"w={form}; printf '%s\\0' \"$w\"" for form in asked)
    done = subprocess.run(["bash", "-c", script], env=VALUES, capture_output=True, text=True, check=True)
    answers = dict(zip(asked, done.stdout.split("\0"), strict=False))
    assert len(answers) == len(asked)
    assert {form: expand_word(form, VALUES) for form in asked} == answers


@given(TEXT)
def test_single_quotes_protect_everything(text: str) -> None:
    inner = text.replace("'", "")
    assert expand_word(f"'{inner}'", VALUES) == inner


@given(TEXT, st.sampled_from("\\`"))
def test_escaping_every_character_gives_the_text(text: str, escape: str) -> None:
    word = "".join(escape + char for char in text)
    assert expand_word(word, VALUES, escape) == text
    assert split_words(word, escape) == ([word] if text else [])


@given(TEXT, st.sampled_from("\\`"))
def test_double_quotes_with_the_three_protected_give_the_text(text: str, escape: str) -> None:
    inner = "".join(escape + char if char in f'"${escape}' else char for char in text)
    assert expand_word(f'"{inner}"', VALUES, escape) == text


@given(st.lists(st.tuples(st.sampled_from(["full", "empty", "none", "dir"]), st.text("xyz/.", max_size=3)), max_size=6))
def test_plain_variables_are_replaced_where_they_stand(parts: list[tuple[str, str]]) -> None:
    word = "".join(f"${{{name}}}{text}" for name, text in parts)
    assert expand_word(word, VALUES) == "".join(VALUES.get(name, "") + text for name, text in parts)


@given(TEXT, st.dictionaries(st.sampled_from("abc"), TEXT, max_size=3))
def test_any_word_is_read_or_refused(text: str, values: dict[str, str]) -> None:
    try:
        result = expand_word(text, values)
    except SubstitutionError:
        return
    if not set(text) & set("$'\"\\"):
        assert result == text


@pytest.mark.parametrize("word", ["'a", '"a', "${a", "${}", "${a:-b", "${none:?gone}", "${a!b}"])
def test_broken_words_are_refused(word: str) -> None:
    with pytest.raises(SubstitutionError):
        expand_word(word, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1 B=two", {"A": "1", "B": "two"}),
        ("A=\"x y\" B=x\\ y C='$full'", {"A": "x y", "B": "x y", "C": "$full"}),
        ("A  the whole $two rest", {"A": "the whole a b rest"}),
        ('A "quoted rest"', {"A": "quoted rest"}),
        ("full=new COPY=$full", {"full": "new", "COPY": "abc.tar.gz"}),
        ("A=b=c", {"A": "b=c"}),
        ("A=", {"A": ""}),
    ],
)
def test_assignments(text: str, expected: dict[str, str]) -> None:
    assert name_values(text, VALUES) == expected


@pytest.mark.parametrize("text", ["A=1 B", "A", "=x"])
def test_what_assigns_nothing_is_refused(text: str) -> None:
    with pytest.raises(SubstitutionError):
        name_values(text, {})


def test_in_a_document_quotes_are_characters() -> None:
    assert expand_text('it\'s "$full" \\$full \\n\n', VALUES) == 'it\'s "abc.tar.gz" $full \\n\n'
