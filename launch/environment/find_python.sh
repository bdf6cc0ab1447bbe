#!/bin/sh
# Prints the path of a Python 3.10 to 3.12. Usage: find_python.sh [plain] (PYTHON=path overrides the search).
# plain: for what needs no packages; any Python of these versions will do, also one that cannot make an environment.
#
# Each candidate is run, not only looked up: a version manager's python3.10 may exist and refuse to start.
# .venv comes first, so that the search is short once `make setup` is done.

root=$(cd "$(dirname "$0")/../.." && pwd)

# Without uv, the interpreter must be able to make an environment by itself (Debian packs ensurepip apart).
needed="sys"
[ "$1" = plain ] || command -v uv >/dev/null 2>&1 || needed="sys, ensurepip, venv"

suits() {
    "$1" -c "import $needed; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))" >/dev/null 2>&1
}

if [ -n "$PYTHON" ]; then
    suits "$PYTHON" && command -v "$PYTHON" && exit
    found=$("$PYTHON" --version 2>&1 | head -n 1)
    echo "error: PYTHON=$PYTHON is not a Python 3.10 to 3.12 with venv and ensurepip (found: $found)" >&2
    echo "       give another one, or leave PYTHON out to have one looked for" >&2
    exit 2
fi

for python in "$root/.venv/bin/python" python3 python3.12 python3.11 python3.10 python \
    "$HOME"/.pyenv/versions/3.1[0-2]*/bin/python "$HOME"/.local/share/uv/python/cpython-3.1[0-2]*/bin/python3; do
    suits "$python" && command -v "$python" && exit
done

cat >&2 <<'MESSAGE'
error: no Python 3.10, 3.11 or 3.12 found (with the modules venv and ensurepip, unless uv is installed)
       install one: apt-get install python3 python3-venv   (Debian 12, Ubuntu 22.04 and 24.04)
                    uv python install 3.11                 (https://docs.astral.sh/uv)
                    brew install python@3.12               (macOS)
       or name it:  make setup PYTHON=/path/to/python3.11
MESSAGE
exit 2
