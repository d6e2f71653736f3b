"""What a command would fetch from the network, as far as its words tell.

apt and pip name packages, so a request can be met by what is there already; every other fetch needs the network. The
answer errs towards *needs network*: names that come from a file, a substitution or an unknown variable count as unmet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from flightschool.environments.terminal.shell_words import simple_commands
from flightschool.environments.terminal.uv_stand_in import parse as parse_uv
from flightschool.records import Record

__all__ = ["UV_INSTALLER", "Fetch", "PackageRequest", "ReadFile", "fetches_of_argv", "fetches_of_script"]

ReadFile = Callable[[str], "str | None"]
"""Text of a file by the path that the command names, None where it is not known: for ``pip install -r``."""


class PackageRequest(Record, frozen=True, kw_only=True):
    """A package that a command asks for."""

    manager: str
    """``apt``, ``pip``; ``python`` for a version of Python itself, ``uv`` for its stand-in or its installer's."""
    name: str
    """Normal form: lower case; for pip with ``-`` for runs of ``-``, ``_`` and ``.``."""
    specifier: str = ""
    """Version as asked for: ``==2.0``, ``>=1,<2`` or empty."""


class Fetch(Record, frozen=True, kw_only=True):
    """One command that would use the network."""

    tool: str
    reason: str
    packages: tuple[PackageRequest, ...] = ()
    """All that it asks for, when apt or pip name everything; empty: it cannot be met by what is there."""
    index_only: bool = False
    """It only refreshes lists of packages (``apt-get update``): not needed once every package is there."""
    project: bool = False
    """It asks for what a project in the working directory asks for as well, which no word of it tells."""


_PACKAGE_TOOLS: Mapping[str, frozenset[str]] = {
    "apk": frozenset({"add", "update", "upgrade", "fetch"}),
    "brew": frozenset({"install", "update", "upgrade"}),
    "bundle": frozenset({"install", "update"}),
    "cargo": frozenset({"install", "build", "fetch", "add", "update", "run", "test", "b"}),
    "composer": frozenset({"install", "require", "update", "create-project"}),
    "conda": frozenset({"install", "create", "update", "env"}),
    "dnf": frozenset({"install", "update", "upgrade", "makecache"}),
    "docker": frozenset({"pull", "build", "run"}),
    "dotnet": frozenset({"add", "restore", "tool", "build"}),
    "gem": frozenset({"install", "update", "fetch"}),
    "git": frozenset({"clone", "fetch", "pull", "ls-remote", "submodule"}),
    "go": frozenset({"get", "install", "mod", "build", "run"}),
    "hf": frozenset({"download"}),
    "huggingface-cli": frozenset({"download"}),
    "mamba": frozenset({"install", "create", "update", "env"}),
    "microdnf": frozenset({"install", "update"}),
    "mix": frozenset({"deps.get"}),
    "npm": frozenset({"install", "i", "ci", "add", "update", "exec"}),
    "opam": frozenset({"install", "init", "update"}),
    "pacman": frozenset({"-S", "-Sy", "-Syu", "-Syyu"}),
    "pdm": frozenset({"install", "add", "sync"}),
    "pipx": frozenset({"install", "run"}),
    "playwright": frozenset({"install", "install-deps"}),
    "pnpm": frozenset({"install", "i", "add", "dlx"}),
    "poetry": frozenset({"install", "add", "update"}),
    "rustup": frozenset({"install", "update", "toolchain", "component", "target", "default"}),
    "snap": frozenset({"install"}),
    "svn": frozenset({"checkout", "co", "update"}),
    "yarn": frozenset({"install", "add", "global", "dlx"}),
    "yum": frozenset({"install", "update", "makecache"}),
    "zypper": frozenset({"install", "in", "refresh", "update"}),
}
"""Tool → first words that fetch. Whether the cache of the tool could serve it cannot be seen from here."""
_ALWAYS = frozenset(
    [
        "add-apt-repository",
        "aria2c",
        "cpan",
        "cpanm",
        "ftp",
        "git-lfs",
        "mvn",
        "mvnw",
        "gradle",
        "gradlew",
        "npx",
        "nvm",
        "pnpx",
        "rsync",
        "rustup-init",
        "scp",
        "sftp",
        "wget",
        "curl",
        "lynx",
    ]
)
_LOCAL = re.compile(r"^(?:https?://)?(?:localhost|127\.0\.0\.1|\[::1\])(?:[:/]|$)|^file:")
_URLISH = re.compile(r"^(?:[a-z+]+://|[\w.-]+\.[a-z]{2,}(?:/|$)|localhost|127\.)", re.IGNORECASE)
_WRAPPERS: Mapping[str, frozenset[str]] = {
    "command": frozenset(),
    "eatmydata": frozenset(),
    "env": frozenset({"-u", "-C", "-S"}),
    "exec": frozenset({"-a"}),
    "ionice": frozenset({"-c", "-n"}),
    "nice": frozenset({"-n"}),
    "nohup": frozenset(),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "sudo": frozenset({"-u", "-g", "-C", "-h", "-p"}),
    "timeout": frozenset({"-k", "-s"}),
    "xargs": frozenset({"-a", "-d", "-E", "-I", "-L", "-n", "-P", "-s"}),
}
"""Programs that run another → their options that take a value."""
UV_INSTALLER = re.compile(
    r"https://(?:astral\.sh/uv/(?:[0-9.]+/)?install\.sh"
    r"|github\.com/astral-sh/uv/releases/(?:latest/download|download/[0-9.]+)/uv-installer\.sh)$"
)
"""Addresses of uv's installer, which is stood in for with uv itself."""
_CURL_PLAIN = re.compile(r"-[LsSfq]+|--(?:location|silent|show-error|fail|proto|tlsv1\.2)|=https")
_WGET_PLAIN = re.compile(r"-q?O-?|-q|-|--quiet|-nv")
MAX_NAME = 200
"""Characters of a package's name and version that are looked at."""
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ash", "ksh"})
_PYTHON = re.compile(r"python[0-9.]*$")
_PIP = re.compile(r"pip[0-9.]*$")
_PIP_NAME = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:\[[^\]]*\])?\s*((?:[=<>!~]=?=?\s*[^;#\s]+)?)$")
_APT_NAME = re.compile(r"([a-z0-9][a-z0-9+.-]*)(?::[a-z0-9]+)?(?:/[\w.-]+)?(=[^\s=]+)?$")
_PIP_WITH_VALUE = frozenset(
    [
        "-i",
        "--index-url",
        "--extra-index-url",
        "-f",
        "--find-links",
        "-t",
        "--target",
        "--prefix",
        "--root",
        "--python",
        "-c",
        "--constraint",
        "--platform",
        "--python-version",
        "--cache-dir",
        "--timeout",
        "--retries",
        "--trusted-host",
        "--progress-bar",
        "--root-user-action",
        "--src",
    ]
)
_APT_WITH_VALUE = frozenset({"-t", "--target-release", "-o", "--option", "-c", "--config-file", "-a"})


def fetches_of_script(
    script: str, values: Mapping[str, str] | None = None, read: ReadFile | None = None
) -> list[Fetch]:
    """Fetches of all commands of a shell script, in order."""
    found: list[Fetch] = []
    own_project = False
    for words in simple_commands(script, values):
        for fetch in fetches_of_argv(words, values, read):
            own_project = own_project or fetch.tool in ("uv init", "uv venv")
            found.append(msgspec.structs.replace(fetch, project=False) if own_project else fetch)
    return found


def fetches_of_argv(
    words: Sequence[str], values: Mapping[str, str] | None = None, read: ReadFile | None = None
) -> list[Fetch]:
    """Fetches of one command."""
    words = _unwrap(list(words))
    if not words:
        return []
    tool = PurePosixPath(words[0]).name
    if tool in _SHELLS:
        flag = next((i for i, word in enumerate(words[1:], 1) if re.fullmatch(r"-[a-z]*c", word)), 0)
        return fetches_of_script(words[flag + 1], values, read) if 0 < flag < len(words) - 1 else []
    if _PYTHON.match(tool):
        return _python(words, values, read)
    if tool in ("apt", "apt-get", "aptitude"):
        return _apt(words[1:])
    if _PIP.match(tool):
        return _pip(words[1:], read)
    return _uv(tool, words[1:], read) if tool in ("uv", "uvx") else _other(tool, words[1:])


def _unwrap(words: list[str]) -> list[str]:
    """The command behind sudo, env, xargs …; arguments that xargs will add stand as one that no one knows."""
    while words and PurePosixPath(words[0]).name in _WRAPPERS:
        wrapper = PurePosixPath(words[0]).name
        if wrapper == "xargs":
            words = [*words, "$()"]
        words = words[1:]
        while words and (words[0].startswith("-") or "=" in words[0] or re.fullmatch(r"[0-9.]+[smhd]?", words[0])):
            words = words[2 if words[0] in _WRAPPERS[wrapper] else 1 :]
    return words


def _python(words: list[str], values: Mapping[str, str] | None, read: ReadFile | None) -> list[Fetch]:
    if "-m" not in words[:-1]:
        return []
    module, rest = words[words.index("-m") + 1], words[words.index("-m") + 2 :]
    if module == "pip":
        return _pip(rest, read)
    if module in ("nltk.downloader", "playwright") or module.startswith("spacy"):
        return [Fetch(tool=module, reason=f"python -m {module} downloads")] if rest else []
    return fetches_of_argv([module, *rest], values, read) if module in ("uv", "poetry", "pipx") else []


def _plain(words: Sequence[str], with_value: frozenset[str]) -> Iterator[str]:
    """Arguments that are no options and no values of options."""
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in with_value
        else:
            yield word


def _apt(words: Sequence[str]) -> list[Fetch]:
    verb, *names = [*_plain(words, _APT_WITH_VALUE), ""]
    names = [name for name in names if name]
    if verb == "update":
        return [Fetch(tool="apt", reason="apt refreshes its lists", index_only=True)]
    if verb in ("upgrade", "dist-upgrade", "full-upgrade", "build-dep", "source", "download"):
        return [Fetch(tool="apt", reason=f"apt {verb} fetches packages")]
    if verb != "install" or not names or "--no-download" in words:
        return []
    requests: list[PackageRequest] = []
    for name in names:
        name = name[:MAX_NAME]
        if name.startswith((".", "/")) or name.endswith("-"):
            continue  # a file of the image, or a removal
        match = _APT_NAME.match(name.removesuffix("+") if name.endswith("+") and not name.endswith("++") else name)
        if match is None:
            return [Fetch(tool="apt", reason=f"apt is asked for {name!r}, which is no plain name")]
        specifier = "=" + match.group(2) if match.group(2) else ""
        requests.append(PackageRequest(manager="apt", name=match.group(1), specifier=specifier))
    if not requests:
        return [Fetch(tool="apt", reason="apt installs files, which may need further packages")]
    return [Fetch(tool="apt", reason=_asks("apt", requests), packages=tuple(requests))]


def _pip(words: Sequence[str], read: ReadFile | None, verb_at: int = 0) -> list[Fetch]:
    words = list(words)
    while words and words[0].startswith("-"):  # options of pip itself
        words = words[1:]
    if not words or words[verb_at] not in ("install", "download", "wheel") or "--no-index" in words:
        return []
    if words[verb_at] != "install":
        return [Fetch(tool="pip", reason=f"pip {words[verb_at]} fetches")]
    requests: list[PackageRequest] = []
    rest = iter(words[verb_at + 1 :])
    for word in rest:
        if word in ("-r", "--requirement") or word.startswith(("-r", "--requirement=")):
            file = (
                next(rest, "")
                if word in ("-r", "--requirement")
                else word.removeprefix("--requirement=").removeprefix("-r")
            )
            text = read(file) if read else None
            listed = _requirements(text) if text is not None else None
            if listed is None:
                return [Fetch(tool="pip", reason=f"pip installs what {file!r} lists")]
            requests += listed
        elif word in ("-e", "--editable"):
            return [Fetch(tool="pip", reason="pip builds a project, which fetches build tools")]
        elif word in _PIP_WITH_VALUE:
            next(rest, "")
        elif not word.startswith("-"):
            request = _pip_request(word)
            if request is None:
                return [Fetch(tool="pip", reason=f"pip is asked for {word!r}, which is no plain name")]
            requests.append(request)
    return [Fetch(tool="pip", reason=_asks("pip", requests), packages=tuple(requests))] if requests else []


def _pip_request(word: str) -> PackageRequest | None:
    wanted = word[:MAX_NAME].partition(";")[0].strip()
    match = _PIP_NAME.match(wanted)
    if match is None or word.startswith(("git+", "http:", "https:")) or word.endswith((".whl", ".gz", ".zip")):
        return None
    name = re.sub(r"[-_.]+", "-", match.group(1)).lower()
    return PackageRequest(manager="pip", name=name, specifier=match.group(2).strip())


def _requirements(text: str) -> list[PackageRequest] | None:
    """Requests of a requirements file; None when a line is more than a name with versions."""
    requests = []
    for line in text.replace("\\\n", "").splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        if not line:
            continue
        request = None if line.startswith("-") else _pip_request(re.sub(r"\s+--hash=\S+", "", line))
        if request is None:
            return None
        requests.append(request)
    return requests


def _uv(tool: str, words: Sequence[str], read: ReadFile | None) -> list[Fetch]:
    """What stands in for uv can do is asked of its own reader; the rest fetches."""
    if "--offline" in words or not words:
        return []
    ask = parse_uv(tool, list(words))
    if ask.verb == "version":
        return []
    name = f"uv {ask.verb}" if ask.verb else "uv"
    requests = [PackageRequest(manager="uv", name="uv")]
    if ask.python:
        specifier = f"=={ask.python}" if ask.python.count(".") == 2 else f"=={ask.python}.*"
        requests.append(PackageRequest(manager="python", name="python", specifier=specifier))
    problem = ask.problem
    for file in ask.files:
        text = read(file) if read else None
        listed = _requirements(text) if text is not None else None
        problem = problem or ("" if listed is not None else f"what {file!r} lists is not known")
        requests += listed or []
    for want in ask.wants:
        request = _pip_request(want)
        problem = problem or ("" if request else f"{want!r} is no plain name")
        requests += [request] if request else []
    if problem:
        return [Fetch(tool=name, reason=f"{tool} fetches: {problem}")]
    reason = _asks(name, requests[1:]) if requests[1:] else f"{name} wants uv"
    return [Fetch(tool=name, reason=reason, packages=tuple(requests), project=ask.project)]


def _address(tool: str, words: Sequence[str]) -> list[Fetch]:
    """Of programs that fetch what an address leads to."""
    urls = [word for word in words if _URLISH.match(word)]
    if not words or (urls and all(_LOCAL.match(url) for url in urls)):
        return []
    reason = f"{tool} fetches {urls[0]}" if urls else f"{tool} fetches"
    is_installer = len(urls) == 1 and UV_INSTALLER.match(urls[0]) and _prints(tool, words)
    packages = (PackageRequest(manager="uv", name=tool),) if is_installer else ()
    return [Fetch(tool=tool, reason=reason, packages=packages)]


def _other(tool: str, words: Sequence[str]) -> list[Fetch]:
    if tool in ("curl", "wget"):
        return _address(tool, words)
    if tool in _ALWAYS:
        return [Fetch(tool=tool, reason=f"{tool} fetches")]
    verb = next((word for word in words if not word.startswith("-") or tool == "pacman"), "")
    if tool == "yarn" and not words:
        verb = "install"
    if verb not in _PACKAGE_TOOLS.get(tool, ()) or "--offline" in words:
        return []
    if tool == "git" and any(_local_repository(word) for word in words[1:]):
        return []
    return [Fetch(tool=tool, reason=f"{tool} {verb} fetches")]


def _prints(tool: str, words: Sequence[str]) -> bool:
    """Whether what is fetched goes to standard output, and nothing else is asked for."""
    known = _CURL_PLAIN if tool == "curl" else _WGET_PLAIN
    rest = [word for word in words if not _URLISH.match(word)]
    return all(known.fullmatch(word) for word in rest) and (tool == "curl" or any("O" in word for word in rest))


def _local_repository(word: str) -> bool:
    return word.startswith(("/", "./", "../", "file:"))


def _asks(manager: str, requests: Sequence[PackageRequest]) -> str:
    names = ", ".join(request.name for request in requests[:6]) + (" …" if len(requests) > 6 else "")
    return f"{manager} is asked for {names}"
