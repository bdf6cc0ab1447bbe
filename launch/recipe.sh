# Sourced by every recipe, whose place launch/recipe.py takes: it reads the lines below this one by itself
# (launch/config/recipe_file.py), so that there is one reader. What happens then, ACTION=run|print|rehearse|plan says.
set -eu

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$root/.venv/bin/python
if [ ! -x "$python" ]; then
    python=$(sh "$root/launch/environment/find_python.sh" plain) || exit 2
fi
exec "$python" "$root/launch/recipe.py" "$0" "$@"
