"""Which packages of apt and pip are there already, asked of the base itself from inside a sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from flightschool.digest import digest
from flightschool.environments.terminal import uv_stand_in
from flightschool.environments.terminal.fetching import PackageRequest
from flightschool.records import Record
from flightschool.sandbox import ImageTree, ReadOnlyMount, SandboxProvider, SandboxSpec

__all__ = ["Presence", "find_presence", "stand_ins_digest", "write_stand_ins"]

_DPKG: Final = "/var/lib/dpkg"
_ASK_APT: Final = "dpkg-query -W -f '${db:Status-Status}\\t${Package}\\t${Version}\\t${Provides}\\n'"
_ASK_PIP: Final = """\
import importlib.metadata
import sys
print("", "{}.{}.{}".format(*sys.version_info), sys.executable, sep="\\t")
for found in importlib.metadata.distributions():
    print(found.metadata["Name"], found.version, sep="\\t")
"""
STAND_INS: Final = "/opt/present"
"""Where the stand-ins for package managers are seen inside."""

_COMMON: Final = """\
#!/bin/sh
# What is there already counts as installed; nothing is fetched here.
here=${0%/*}
IFS= read -r names < "$here/../@LIST@"
has() { case " $names " in *" $1 "*) return 0 ;; esac; return 1; }
rest() {
  path=":$PATH:"
  case $path in *":$here:"*) path=${path%%":$here:"*}:${path#*":$here:"} ;; esac
  path=${path#:}
  PATH=${path%:} exec "${0##*/}" "$@"
}
verb= missing= skip=
"""
_APT: Final = """\
for word in "$@"; do
  if [ -n "$skip" ]; then skip=; continue; fi
  case $word in
    -t|-o|-c|-a|--option|--target-release|--config-file) skip=1 ;;
    -*) ;;
    *)
      if [ -z "$verb" ]; then verb=$word
      elif [ "$verb" = install ]; then
        case $word in
          */*) missing="$missing $word" ;;
          *=*) has "$word" || missing="$missing $word" ;;
          *) has "${word%%:*}" || missing="$missing $word" ;;
        esac
      fi ;;
  esac
done
case $verb in
  install)
    [ -z "$missing" ] && { echo "all packages are there"; exit 0; }
    echo "E: not there, and nothing is fetched here:$missing" >&2; exit 100 ;;
  update|clean|autoclean|autoremove|check) exit 0 ;;
  *) rest "$@" ;;
esac
"""
_APT_CONF: Final = 'APT::Sandbox::User "root";\n'
"""For builds that fetch: root inside cannot become another user, which apt would for its downloads."""
_PIP: Final = """\
plain() { printf %s "${1%%[!A-Za-z0-9._-]*}" | tr 'A-Z_.' 'a-z--'; }
ask() { has "$(plain "$1")" || missing="$missing $1"; }
for word in "$@"; do
  case $skip in
    file)
      skip=
      while read -r line || [ -n "$line" ]; do
        line=${line%%#*}
        [ -z "${line%%[ ]*}" ] || ask "$line"
      done < "$word"
      continue ;;
    value) skip=; continue ;;
  esac
  case $word in
    -r|--requirement) skip=file ;;
    -i|--index-url|--extra-index-url|-f|--find-links|-c|--constraint|--timeout|--retries|--trusted-host) skip=value ;;
    -e|--editable|-t|--target|--prefix|--root) rest "$@" ;;
    -*) ;;
    *)
      if [ -z "$verb" ]; then verb=$word
      elif [ "$verb" = install ]; then
        case $word in .|./*|/*|*/*) rest "$@" ;; *) ask "$word" ;; esac
      fi ;;
  esac
done
[ "$verb" = install ] || rest "$@"
[ -z "$missing" ] && { echo "all packages are there"; exit 0; }
echo "ERROR: not there, and nothing is fetched here:$missing" >&2
exit 1
"""
_INSTALLER: Final = r"""
wanted=
for word in "$@"; do
  case $word in @ADDRESSES@) wanted=1 ;; esac
done
[ -n "$wanted" ] || rest "$@"
cat <<END
# Puts what stands in for uv where its installer would put it.
folder=\${UV_INSTALL_DIR:-\${XDG_BIN_HOME:-\$HOME/.local/bin}}
mkdir -p "\$folder"
ln -sf "$here/uv" "\$folder/uv"
ln -sf "$here/uvx" "\$folder/uvx"
rm -f "\$folder/env"
echo 'PATH=\$PATH:'"\$folder" > "\$folder/env"
END
"""
"""Programs that fetch: asked for uv's installer they print one that installs the stand-in, else they do their own."""
_ADDRESSES: Final = (
    "https://astral.sh/uv/install.sh|https://astral.sh/uv/[0-9]*/install.sh"
    "|https://github.com/astral-sh/uv/releases/*/uv-installer.sh"
)


class Presence(Record, frozen=True, kw_only=True):
    """Packages of a base: name → version."""

    apt: dict[str, str]
    pip: dict[str, str]
    python: str = ""
    """Version of its Python; empty: it has none."""
    interpreter: str = ""
    """Path of that Python."""

    def __call__(self, request: PackageRequest) -> bool:
        """Whether a request is met."""
        if request.manager == "apt":
            version = self.apt.get(request.name)
            return version is not None and request.specifier in ("", f"={version}")
        if request.manager == "uv":
            return bool(self.python) and (request.name == "uv" or request.name in self.apt)
        name = str(canonicalize_name(request.name))
        if name == "uv" and name not in self.pip:  # pip is asked for what is stood in for
            return bool(self.python) and not request.specifier
        version = self.pip.get(name) if request.manager == "pip" else self.python or None
        if version is None:
            return False
        try:
            return SpecifierSet(request.specifier).contains(version, prereleases=True)
        except InvalidSpecifier:
            return False

    def lack(self, request: PackageRequest) -> str:
        """A request that is not met, and what there is instead."""
        known = {"apt": self.apt.get(request.name), "python": self.python}.get(
            request.manager, self.pip.get(str(canonicalize_name(request.name)))
        )
        return f"{request.name}{request.specifier} (here: {known or 'none'})"

    def told(self, request: PackageRequest) -> str:
        """By what a request that is met is met."""
        asked = f"{request.name}{request.specifier}"
        if request.manager == "uv":
            return "uv: what stands in for it runs the base's Python"
        if request.manager == "python":
            return f"{asked}: Python {self.python} of the base"
        if request.manager == "pip" and request.name == "uv" and "uv" not in self.pip:
            return "uv: what stands in for it runs the base's Python"
        known = self.apt if request.manager == "apt" else self.pip
        name = request.name if request.manager == "apt" else str(canonicalize_name(request.name))
        return f"{request.manager} {asked}: {known.get(name) or 'there'} of the base"

    @property
    def digest(self) -> str:
        """Digest of names and versions."""
        return digest(self)


async def find_presence(provider: SandboxProvider, tree: ImageTree | None) -> Presence:
    """Ask a base. What cannot answer (no dpkg, no Python) has nothing.

    Args:
        tree: the base, or an image; None: the curated view.
    """
    over_host = tree is None or (tree.over_host and not Path(tree.path + _DPKG).is_dir())
    mounts = (ReadOnlyMount(source=_DPKG, target=_DPKG),) if over_host and Path(_DPKG).is_dir() else ()
    async with provider.open(SandboxSpec(root=tree, mounts=mounts)) as box:
        apt = await box.exec(_ASK_APT, timeout_s=60, output_bytes=16 << 20)
        pip = await box.exec(["python3", "-c", _ASK_PIP], timeout_s=60, output_bytes=16 << 20)
    head, _, names = pip.stdout.decode(errors="replace").partition("\n")
    _, python, interpreter = head.split("\t") if head.count("\t") == 2 else ("", "", "")
    packages = _apt(apt.stdout.decode(errors="replace"))
    return Presence(apt=packages, pip=_pip(names), python=python, interpreter=interpreter)


def _apt(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        state, name, version, provides = [*line.split("\t"), "", "", ""][:4]
        if state != "installed":
            continue
        found[name] = version
        for provided in provides.split(","):
            found.setdefault(provided.strip().partition(" ")[0], "")
    found.pop("", None)
    return found


def _pip(text: str) -> dict[str, str]:
    pairs = (line.split("\t") for line in text.splitlines() if line.count("\t") == 1)
    return {str(canonicalize_name(name)): version for name, version in pairs}


def stand_ins_digest(presence: Presence) -> str:
    """Digest of what ``write_stand_ins`` writes."""
    return digest([presence.digest, _COMMON, _APT, _APT_CONF, _PIP, _INSTALLER, _ADDRESSES, _uv_text()])


def _uv_text() -> str:
    return Path(uv_stand_in.__file__).read_text(encoding="utf-8")


def write_stand_ins(folder: Path, presence: Presence) -> None:
    """Programs that answer for package managers: asked for what is there they are content, else they say what is not.

    To be mounted at ``STAND_INS`` with its ``bin`` in front of the path.
    """
    programs = folder / "bin"
    programs.mkdir(parents=True)
    pinned = [f"{name}={version}" for name, version in presence.apt.items()]
    (folder / "apt").write_text(" ".join([*presence.apt, *pinned]) + "\n", encoding="utf-8")
    modules = [*presence.pip, *(["uv"] if presence.python else [])]
    (folder / "pip").write_text(" ".join(modules) + "\n", encoding="utf-8")
    for names, list_, body in ((("apt", "apt-get"), "apt", _APT), (("pip", "pip3"), "pip", _PIP)):
        for name in names:
            (programs / name).write_text(_COMMON.replace("@LIST@", list_) + body, encoding="utf-8")
            (programs / name).chmod(0o755)
    if presence.python:
        _write_uv(folder, programs, presence)
    (folder / "apt.conf").write_text(_APT_CONF, encoding="utf-8")
    for path in (folder, programs):
        path.chmod(0o755)


def _write_uv(folder: Path, programs: Path, presence: Presence) -> None:
    """What stands in for uv, and for the programs that fetch its installer where the base has them."""
    pairs = sorted(presence.pip.items())
    (folder / "uv").write_text("".join(f"{name} {version}\n" for name, version in pairs), encoding="utf-8")
    body = _COMMON.replace("@LIST@", "pip") + _INSTALLER.replace("@ADDRESSES@", _ADDRESSES)
    written = dict.fromkeys(("uv", "uvx"), f"#!{presence.interpreter} -I\n{_uv_text()}")
    written |= {name: body for name in ("curl", "wget") if name in presence.apt}
    for name, content in written.items():
        (programs / name).write_text(content, encoding="utf-8")
        (programs / name).chmod(0o755)
