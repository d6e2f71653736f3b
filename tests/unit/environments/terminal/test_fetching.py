"""What scripts would fetch: read from their words, never run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.environments.terminal import PackageRequest, fetches_of_script
from flightschool.environments.terminal.shell_words import simple_commands


@pytest.mark.parametrize(
    ("script", "tools"),
    [
        ("curl -LsSf https://example.org/install.sh | sh", ["curl"]),
        ("cd /x; wget -q example.org/a && tar xf a", ["wget"]),
        ("curl -s http://localhost:8000/health", []),
        ("echo 'curl https://example.org'", []),
        ("# curl https://example.org\ntrue", []),
        ("bash -lc 'set -e; git clone https://example.org/r.git'", ["git"]),
        ("git clone /srv/r.git && git commit -m 'git pull'", []),
        ("X=$(curl https://example.org)", ["curl"]),
        ('echo "`wget https://example.org`"', ["wget"]),
        ("if ! command -v node; then npm ci; fi", ["npm"]),
        ("for p in a b; do pip install $p; done", ["pip"]),
        ("cat <<EOF > f\ncurl https://example.org\nEOF\nnpx x", ["npx"]),
        ("sudo -E env A=1 timeout 30s pip3.11 install numpy", ["pip"]),
        ("python3 -m pip install --no-index ./wheels/a.whl", []),
        ("pip install --no-cache-dir .", ["pip"]),
        ("pip install -e ./pkg", ["pip"]),
        ("pip freeze; pip list", []),
        ("npm run build; npm --version; yarn", ["yarn"]),
        ("npm install --offline", []),
        ("uv pip install numpy && uv sync", ["uv pip install", "uv"]),
        ("apt-get clean && apt-get remove -y x && apt-get autoremove", []),
        ("apt-get upgrade -y", ["apt"]),
        ("xargs -a list apt-get install -y", ["apt"]),
        ("cargo build --release --offline; go version; cargo --version", []),
        ("python -m nltk.downloader punkt", ["nltk.downloader"]),
        ("make curl", []),
        ("mkdir -p /a/curl && /usr/bin/curl https://example.org -o x", ["curl"]),
        ("{ apk add x; } 2>/dev/null || true", ["apk"]),
    ],
)
def test_fetches_by_tool(script: str, tools: list[str]) -> None:
    assert [fetch.tool for fetch in fetches_of_script(script)] == tools


@pytest.mark.parametrize(
    ("script", "packages"),
    [
        (
            "apt-get install -y -t bookworm gawk=1:5.2 libstdc++6 python3:arm64 vim-",
            ["gawk=1:5.2", "libstdc++6", "python3"],
        ),
        ("P='a b'; apt install $P c", ["a", "b", "c"]),
        ("apt install ${LIST} c", ["x", "y", "c"]),
        ("DEBIAN_FRONTEND=noninteractive apt-get -qq -o A=b install --yes a > /dev/null 2>&1", ["a"]),
        (
            "pip install -U 'Num_Py[all]>=1.2,<3' scipy==1.0 -i https://example.org/simple",
            ["num-py>=1.2,<3", "scipy==1.0"],
        ),
        ("pip install 'a; python_version < \"3\"' B.C~=2", ["a", "b-c~=2"]),
        ("pip install -r req.txt c", ["a==1", "b", "c"]),
    ],
)
def test_packages_by_name(script: str, packages: list[str]) -> None:
    requirements = "# header\na==1 --hash=sha256:00\n\nb  # why\n"
    found = fetches_of_script(script, {"LIST": "x y"}, lambda path: requirements if path == "req.txt" else None)
    names = [p.name + p.specifier.replace("==", "=" if p.manager == "apt" else "==") for f in found for p in f.packages]
    assert names == packages


@pytest.mark.parametrize(
    "script",
    [
        "apt-get install -y $UNKNOWN",
        "apt-get install -y $(cat list)",
        "apt-get install -y python3.*",
        "apt-get install ./a.deb",
        "pip install -r other.txt",
        "pip install git+https://example.org/r.git numpy",
        "pip install https://example.org/a.whl",
        "pip install $X",
    ],
)
def test_what_cannot_be_named_cannot_be_met(script: str) -> None:
    (fetch,) = fetches_of_script(script)
    assert fetch.packages == ()
    assert not fetch.index_only


def test_lists_alone_are_marked() -> None:
    update, install = fetches_of_script("apt-get update && apt-get install -y a")
    assert update.index_only
    assert install.packages == (PackageRequest(manager="apt", name="a"),)


@given(st.text(alphabet="abc $(){}`'\"\\;&|<>#\n=-EOF", max_size=80))
def test_any_text_is_read_to_its_end(script: str) -> None:
    for words in simple_commands(script):
        assert words


@given(st.lists(st.lists(st.text(alphabet="abcXY/._+-", min_size=1, max_size=6), min_size=1, max_size=4), max_size=5))
def test_plain_commands_come_back_as_they_are(commands: list[list[str]]) -> None:
    leading = {"if", "then", "elif", "else", "while", "until", "do", "time", "fi", "done", "esac", "for", "case"}
    commands = [words for words in commands if words[0] not in leading]
    for separator in (" && ", "\n", "; ", " | "):
        assert list(simple_commands(separator.join(" ".join(words) for words in commands))) == commands
