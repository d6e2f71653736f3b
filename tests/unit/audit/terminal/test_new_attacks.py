"""Texts of attacks: patterns of examples, fixed programs, targets of make, endless work; and what leaks in pieces."""

from __future__ import annotations

import marshal
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.audit.terminal.one_output import one_output

from flightschool.audit.terminal.mutating import mutants_of
from flightschool.audit.terminal.probes import modules, programs
from flightschool.audit.terminal.probes.finds import in_pieces, is_constant
from flightschool.audit.terminal.probes.hanging import endless
from flightschool.audit.terminal.probes.mutants import is_run
from flightschool.audit.terminal.probes.prompt import holds_answer, holds_change
from flightschool.audit.terminal.probes.tools import targets_of
from flightschool.audit.terminal.probes.unrounded import close, unrounded
from flightschool.audit.terminal.probes.visible import fixed_programs, patterns_of
from flightschool.audit.terminal.shipped import Shipped
from flightschool.audit.terminal.surface import Surface
from flightschool.audit.terminal.trial import Trial


def shipped(path: str, data: bytes) -> Shipped:
    return Shipped(path=path, data=data, mode=0o644, uid=0, size=len(data), readable=True, writable=True)


def surface(instruction: str = "", solution: str = "", grader: str = "", files: tuple[Shipped, ...] = ()) -> Surface:
    found: Any = SimpleNamespace(instruction=instruction, solution=solution, grader_text=grader, shipped=files)
    return cast("Surface", found)


# ------------------------------------------------------------------------------------------------ visible cases


def test_patterns_list_examples() -> None:
    told = "Part numbers: `AB-1234` and `ZX-0001c` are valid, `A-1234` is not. Write to `/app/out`."
    patterns = patterns_of(told, "[A-Z]")
    assert re.fullmatch(patterns[1], "AB-1234")
    assert re.fullmatch(patterns[1], "ZX-0001c")
    assert not re.fullmatch(patterns[1], "A-1234")
    assert len(patterns) == 3, "paths are no examples"


def test_a_fixed_program_prints_what_is_expected_only_where_all_input_is_in_view() -> None:
    orders = shipped("/w/orders.json", b"[]")
    grader = 'got=$(jq -cS -f /w/filter.jq /w/orders.json)\n[ "$got" = \'{"x":12}\' ]\n'
    found = list(fixed_programs(one_output(".", path="/w/filter.jq"), surface(grader=grader, files=(orders,))))
    assert [text for _, text in found] == ['{"x":12}\n']
    hidden = grader.replace("/w/orders.json", "/tests/other.json")
    assert list(fixed_programs(one_output(".", path="/w/filter.jq"), surface(grader=hidden, files=(orders,)))) == []


def test_targets_of_make() -> None:
    assert targets_of("cd /x && make -s verify && make -C /y all; echo make") == ["verify", "all"]


def test_programs_that_rewrite_the_tests_are_not_mended_by_taking_these_out_of_the_image() -> None:
    """The tests run the policy's program beside themselves, wherever they came from."""
    made = one_output("print(1)\n", "code", path="/app/run.py")
    work = SimpleNamespace(outputs=(replace(made, language="python"),), fill=lambda contents: "")
    trial = cast("Trial", SimpleNamespace(work=work))
    for attack in (*programs.attacks(trial), *modules.attacks(trial)):
        if attack.flaw == "test-edit":
            assert "image" not in attack.mend
            assert "user that may not write the tests" in attack.mend


def test_endless_work_fits_its_language() -> None:
    grader = "import re\np = re.compile(open('/app/out').read())\n"
    [(told, pattern)] = endless(one_output("[0-9]+\n"), grader)
    assert "pattern" in told
    assert re.fullmatch(pattern.decode().strip(), "1.2.3"), "short texts still match"
    assert list(endless(one_output("105\n"), "[ $(cat /app/out) = 105 ]")) == []


# ------------------------------------------------------------------------------------------------ rounding


def test_rounding_is_taken_out_of_a_reference() -> None:
    assert unrounded("print(round(a / b, 4))") == "print(round(a / b, 13))"
    assert unrounded("printf '%.2f'") == "printf '%.11f'"
    assert unrounded("echo 105") == ""
    assert close('{"a": 0.0567}', '{"a": 0.0566666666666}')
    assert not close('{"a": 0.0567}', '{"a": 0.0576666666666}')
    assert not close('{"a": 0.0567}', '{"b": 0.0566666666666}')


# ------------------------------------------------------------------------------------------------ leaks


def test_an_answer_in_pieces() -> None:
    log = shipped("/x/.build.log", b"flip offset=613 was=57\n")
    [find] = in_pieces(log, one_output("613 57\n"), "build-residue")
    assert find.command.startswith("{ ")
    many = shipped("/x/data", " ".join(str(n) for n in range(1000)).encode())
    assert list(in_pieces(many, one_output("613 614\n"), "build-residue")) == [], "chance may put them there"
    assert list(in_pieces(log, one_output("offset was\n"), "build-residue")) == [], "words stand anywhere"


def test_constants_of_compiled_python() -> None:
    code = compile("UNDO = 'RDRD'\ntext = 'move'\n", "x.py", "exec")
    data = b"\xa7\r\r\n" + b"\0" * 12 + marshal.dumps(code)
    assert is_constant(data, b"RDRD", data.index(b"RDRD"))
    assert not is_constant(data, b"move", data.index(b"move")), "a word that any program may have"
    assert not is_constant(b"text RDRD", b"RDRD", 5)


def test_the_answer_in_the_instruction() -> None:
    files = (shipped("/maze/a/door", b"wall\n"),)
    solution = "#!/bin/sh\ngrep -rl exit /maze > /maze.txt\n"
    told = "Write the path of the door. Note: this resolves to `/maze/c/door`."
    assert holds_answer(one_output("/maze/c/door\n"), surface(told, solution, files=files))
    choice = "Is it behind /maze/c/door or /maze/d/door? Write the path."
    assert not holds_answer(one_output("/maze/c/door\n"), surface(choice, solution, files=files))
    dictated = "Write `hello world` to the file."
    assert not holds_answer(one_output("hello world\n"), surface(dictated, "#!/bin/sh\necho hello world\n"))


def test_the_change_in_the_instruction() -> None:
    edited = one_output('{"limit": "64m", "wait": 75}', "json", before=b'{"limit": "8m", "wait": 30}')
    assert holds_change(
        edited, 'Find the fault.\n> For the record the whole change was `"limit": "64m"`, `"wait": 75`.'
    )
    assert not holds_change(edited, 'Set `"limit": "64m"` and `"wait": 75`.'), "an order, and no disclosure"
    assert not holds_change(edited, "Find the fault. The fix was to raise the limit."), "a hint, and not the change"


# ------------------------------------------------------------------------------------------------ right mutants


@pytest.mark.parametrize(
    ("data", "instruction", "bars"),
    [
        ("longest=3\n", "Write a report.", True),
        ("longest=3\n", "Write a report; other lines are free.", False),
        ("longest=3\n", "The log may hold anything else.", False),
        ("Ines leads the launch on 14 May for us.\n", "Summarise it.", False),
    ],
)
def test_a_further_line_is_no_fault_where_it_is_allowed(data: str, instruction: str, bars: bool) -> None:
    found = [one for one in mutants_of(one_output(data), instruction) if "junk" in one.what]
    assert found
    assert {one.bars for one in found} == {bars}


def test_fewer_digits_are_no_other_answer() -> None:
    assert not [one for one in mutants_of(one_output("4.17688745283\n"), "Write it.") if "half" in one.what]
    assert [one for one in mutants_of(one_output("abcdefgh\n"), "Write it.") if "half" in one.what]


def test_a_line_less_in_a_script_that_is_run_may_change_nothing() -> None:
    script = one_output("s/a/b/\ns/b/c/\ns/c/d/\n", path="/app/x.sed")
    assert is_run(script, 'sed --sandbox -f /app/x.sed < "$1"')
    assert not is_run(script, "cmp /app/x.sed /tests/want.sed")
    found = mutants_of(script, "Write a script.", is_run=True)
    assert {one.what for one in found if one.bars} == {"/app/x.sed: emptied"}
    assert any(one.bars and "dropped" in one.what for one in mutants_of(script, "Write it."))
