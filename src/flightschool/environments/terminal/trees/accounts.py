"""From a user's name to ids, by the accounts that the tree itself has."""

from __future__ import annotations

from flightschool.environments.terminal.trees.laying import Tree
from flightschool.environments.terminal.trees.records import Account
from flightschool.errors import InputError

__all__ = ["find_account", "find_owner"]

_MOST_ID = 65535


def find_account(tree: Tree, user: str, where: str) -> Account:
    """The account of ``name``, ``id``, ``name:group`` or ``id:id``; empty: root.

    Raises:
        InputError: the tree knows no such account.
    """
    wanted, _, group = user.partition(":")
    rows = _rows(tree, "/etc/passwd")
    row = next((row for row in rows if wanted and wanted in (row[0], row[2])), None)
    if row is not None and len(row) >= 6 and row[2].isdigit() and row[3].isdigit():
        uid, gid, name, home = int(row[2]), int(row[3]), row[0], row[5] or "/"
    elif not wanted:
        uid, gid, name, home = 0, 0, "root", "/root"
    elif wanted.isdigit():
        uid, gid, name, home = int(wanted), 0, wanted, "/"
    else:
        raise _unknown("user", wanted, where)
    if group:
        gid = _group(tree, group, where)
    if uid > _MOST_ID or gid > _MOST_ID:
        raise InputError(f"id {max(uid, gid)}", where=where, expected=f"at most {_MOST_ID}", mend="choose another")
    return Account(name=name, uid=uid, gid=gid, home=home)


def find_owner(tree: Tree, owner: str, where: str) -> tuple[int, int]:
    """Ids of a ``--chown``; empty: root.

    Raises:
        InputError: the tree knows no such account.
    """
    user, _, group = owner.partition(":")
    account = find_account(tree, owner, where)
    if user.isdigit() and not group:
        return account.uid, account.uid
    return account.uid, account.gid


def _group(tree: Tree, group: str, where: str) -> int:
    row = next((row for row in _rows(tree, "/etc/group") if group in (row[0], row[2])), None)
    if row is not None and row[2].isdigit():
        return int(row[2])
    if group.isdigit():
        return int(group)
    raise _unknown("group", group, where)


def _rows(tree: Tree, path: str) -> list[list[str]]:
    text = (tree.read(path) or b"").decode(errors="replace")
    return [row for line in text.splitlines() if len(row := line.split(":")) >= 3]


def _unknown(kind: str, name: str, where: str) -> InputError:
    return InputError(
        f"the image has no {kind} {name!r}", where=where, expected=f"a {kind} of the image", mend="make it in a RUN"
    )
