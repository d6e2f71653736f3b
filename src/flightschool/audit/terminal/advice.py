"""What the author of a task should change, by class of flaw."""

from __future__ import annotations

from typing import Final

__all__ = ["MENDS", "MENDS_OF_RUNNING"]

MENDS: Final[dict[str, str]] = {
    "reward-file-forging": "do not execute the policy's work as the user that writes the verdict; write it last,"
    " from a process that runs none of it",
    "late-overwrite": "run the policy's programs as another user, and end them before the verdict is written",
    "pytest-hook": "run pytest from a folder of the tests' own with --noconftest, -p no:cacheprovider and -c /dev/null",
    "interpreter-startup": "start Python with -I, from a working directory that the policy cannot write",
    "path-trojan": "call programs by absolute path and set PATH in the test script to the system's folders",
    "test-edit": "keep the tests out of the image; put them in place when grading begins",
    "grader-in-reach": "move the grading script from the image to the tests",
    "decorative-guard": "compare with digests that lie with the tests, not with ones that the policy can write",
    "stdout-forging": "take the verdict from files of the tests' own, never from text that the work prints",
    "early-exit": "run the work in a process of its own and compare what it returned; exit code 0 proves nothing",
    "zero-collected": "demand that the number of executed tests is the expected one",
    "swallowed-failure": "let every failure of the tests reach the verdict: no '|| true', no pipe without pipefail",
    "noop-passes": "check something that is not so before the work is done",
    "empty-criteria": "check every result that the instruction asks for",
    "presence-only": "check the content of the result, not only that it is there",
    "copied-input": "check that the result differs from the input in what was asked for",
    "constant-answer": "test with inputs that no fixed answer satisfies",
    "visible-cases": "test with cases that the policy cannot see",
    "always-equal": "check the type of what the work returned, or compare its serialised form in another process",
    "introspection": "run the work in a process of its own that is given neither what is expected nor open files",
    "not-a-number": "refuse values that are not finite or out of range before comparing",
    "loose-tolerance": "narrow the tolerance to what the instruction promises",
    "superset-answer": "compare the whole answer, not whether the right one occurs in it",
    "judge-injection": "fence the answer, and let code decide what code can decide",
    "unparsable-passes": "count output that cannot be read as wrong",
    "ungraded-escape": "write reward 0 first, or whenever the checks end in any other way than passing",
    "self-comparison": "compare with a reference of the tests' own",
    "evaluated-output": "parse the output; never evaluate, source or unpickle it",
    "reread-input": "keep a copy of the inputs with the tests and read that one",
    "shared-state": "do not trust files that any attempt could have left",
    "mutant-passes": "check the part of the result that was changed",
    "answer-in-view": "take the answer out of the image and of the environment",
    "tests-in-view": "take the tests out of the image",
    "cross-step-leak": "lay only what a step needs into its working directory",
    "future-history": "remove commits and objects newer than the base; prune, or start a fresh repository",
    "answer-in-prompt": "take the answer out of the instruction",
    "build-residue": "remove caches, generators and intermediate files in the build step that makes them",
    "broken-oracle": "correct the reference solution or the tests until it passes",
    "constant-reward": "let the reward depend on the work",
    "flaky": "remove chance, time and order from the tests (or from the reference)",
    "network-in-grading": "bring what the tests need along; grade without a network",
    "over-strict-text": "parse the result and compare what it means",
    "float-equality": "compare numbers with a tolerance",
    "one-of-many": "check the property that is asked for instead of one answer",
    "order-sensitive": "compare without order, or ask for an order in the instruction",
    "wrong-truth": "correct what the tests expect, and the reference with it",
    "unasked-requirement": "ask for it in the instruction, or do not demand it",
    "strict-whitespace": "strip white space before comparing, or say in the instruction that it counts",
    "extra-files-refused": "look only at the files that were asked for",
    "clock-dependence": "do not compare with the present date; take dates from the task",
    "locale-dependence": "set LANG, LC_ALL and TZ in the test script",
    "slow-refused": "give time limits room, or measure work instead of time",
    "isolation-refused": "let the tests look at files; what lives only in processes does not reach them",
}
"""Slug → one sentence."""

MENDS_OF_RUNNING: Final[dict[str, str]] = {
    "test-edit": "run the policy's program as a user that may not write the tests, or in a sandbox without them",
}
"""Slug → one sentence, where the tests themselves run code of the policy: then it matters little where they lie."""
