"""What the curated view lacks to stand in for the image of a system: accounts, and the rules for making new ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from flightschool.environments.terminal.trees.laying import Tree

__all__ = ["furnish"]

_USERS: Final = {
    "daemon": (1, "/usr/sbin"),
    "bin": (2, "/bin"),
    "sys": (3, "/dev"),
    "games": (5, "/usr/games"),
    "man": (6, "/var/cache/man"),
    "lp": (7, "/var/spool/lpd"),
    "mail": (8, "/var/mail"),
    "news": (9, "/var/spool/news"),
    "proxy": (13, "/bin"),
    "www-data": (33, "/var/www"),
    "backup": (34, "/var/backups"),
    "nobody": (65534, "/nonexistent"),
}
_GROUPS: Final = {
    "root": 0,
    "daemon": 1,
    "bin": 2,
    "sys": 3,
    "adm": 4,
    "tty": 5,
    "disk": 6,
    "lp": 7,
    "mail": 8,
    "news": 9,
    "man": 12,
    "proxy": 13,
    "dialout": 20,
    "cdrom": 24,
    "sudo": 27,
    "audio": 29,
    "www-data": 33,
    "backup": 34,
    "shadow": 42,
    "utmp": 43,
    "video": 44,
    "staff": 50,
    "games": 60,
    "users": 100,
    "nogroup": 65534,
}
_LOGIN_RULES: Final = {
    "UID_MIN": "1000",
    "UID_MAX": "60000",
    "SYS_UID_MIN": "100",
    "SYS_UID_MAX": "999",
    "GID_MIN": "1000",
    "GID_MAX": "60000",
    "SYS_GID_MIN": "100",
    "SYS_GID_MAX": "999",
    "UMASK": "022",
    "HOME_MODE": "0755",
    "USERGROUPS_ENAB": "yes",
    "CREATE_HOME": "no",
    "ENCRYPT_METHOD": "SHA512",
}
_FOLDERS: Final = ("/opt", "/srv", "/mnt", "/media", "/var/lib", "/var/log", "/var/cache", "/var/spool", "/var/www")


def furnish(tree: Tree) -> None:
    """Write the accounts that the usual base images have, with their usual ids."""
    users = ["root:x:0:0:root:/root:/bin/bash"]
    users += [f"{name}:x:{id_}:{id_}:{name}:{home}:/usr/sbin/nologin" for name, (id_, home) in _USERS.items()]
    tree.write("/etc/passwd", _lines(users))
    tree.write("/etc/group", _lines(f"{name}:x:{id_}:" for name, id_ in _GROUPS.items()))
    tree.write("/etc/login.defs", _lines(f"{key} {value}" for key, value in _LOGIN_RULES.items()))
    tree.write("/etc/hosts", b"127.0.0.1 localhost sandbox\n::1 localhost\n")
    tree.write("/etc/hostname", b"sandbox\n")
    tree.write("/etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
    tree.write("/etc/resolv.conf", b"")
    for folder in _FOLDERS:
        tree.make_folder(folder)
    if Path("/usr/bin/python3").exists() and not Path("/usr/bin/python").exists():
        tree.link("/usr/local/bin/python", "/usr/bin/python3")


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
