"""A look around in the sandbox as the policy: what the bytes of its files do not show to a reader."""

from __future__ import annotations

from typing import Final

from flightschool.audit.terminal.examination import Examination
from flightschool.sandbox.written import WrittenKind

__all__ = ["look_around"]

SEEN: Final = "/var/tmp/.look"
_LOOK: Final = f"""exec > {SEEN} 2>&1
mode='%M %u %s %p\\n'
echo '# id; env'
id
env | grep -v -e ^_= -e ^PWD= -e ^OLDPWD= -e ^SHLVL= | sort
echo "# files (mode, owner, bytes)"
find "$PWD" "$HOME" /opt /srv /data /var/lib /var/cache /tmp /var/tmp -xdev -type f -size -4096k \\
  -not -path '*/.git/objects/*' -printf "$mode" 2>/dev/null | sort -k4 -u | head -150
all() {{ find / -xdev \\( -path /usr -o -path /proc -o -path /sys -o -path /lib \\) -prune -o "$@" 2>/dev/null; }}
all -name '*.pyc' -printf "$mode" | sort -k4 | head -20
for repo in $(all -maxdepth 5 -name .git -print | sort | head -3); do
  look() {{ git -c safe.directory='*' -C "${{repo%/.git}}/" "$@" 2>/dev/null; }}
  echo "# history of ${{repo%/.git}}, all refs"
  look log --all --format='commit %s (%D)' -p | head -c 4000
  echo "# commits that nothing leads to"
  for id in $(look fsck --unreachable --no-reflogs | awk '$2 == "commit" {{print $3}}'); do
    look show --format='commit %s' "$id"
  done | head -c 3000
  look stash list --format='stash %s' | head -5
done
for base in $(all -name '*.db' -size -4096k -print -o -name '*.sqlite*' -size -4096k -print | sort | head -4); do
  echo "# database $base"
  python3 -c 'import sqlite3, sys
for line in sqlite3.connect(f"file:{{sys.argv[1]}}?mode=ro&immutable=1", uri=True).iterdump():
    print(line)' "$base" 2>/dev/null | head -c 5000
done
for pack in $(find "$PWD" "$HOME" /opt /srv /data -xdev -size -4096k \\
    \\( -name '*.tar*' -o -name '*.tgz' -o -name '*.zip' \\) 2>/dev/null | head -5); do
  echo "# inside $pack"
  {{ tar -tf "$pack" || python3 -m zipfile -l "$pack"; }} 2>/dev/null | awk '{{print $1}}' | head -30
done
"""
"""No dates and no ids of commits: the same image looks the same each time it is built."""


async def look_around(exam: Examination) -> str:
    """What the policy's account sees: variables, files, history, archives."""
    play = await exam.run(_LOOK, plain=True)
    for state in play.states[:1]:
        for entry in state.entries:
            if entry.path == SEEN and entry.kind is WrittenKind.FILE:
                return entry.data.decode(errors="replace")
    return "(nothing could be seen)"
