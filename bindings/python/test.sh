#!/bin/sh
# Builds the wheel into a virtual environment and tests it. Needs Rust, a C compiler, Python 3.9 or
# later with venv, and the package index. Usage: bindings/python/test.sh [--compare]
set -eu
cd "$(dirname "$0")"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv" || { echo "bindings/python needs python3 with venv"; exit 3; }
"$work/venv/bin/pip" install --quiet 'maturin>=1.9,<2' 'pytest>=8' 'mypy>=1.13' ||
    { echo "bindings/python needs the package index"; exit 3; }
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/../target}" \
    "$work/venv/bin/maturin" build --quiet --release --out "$work/wheels"
"$work/venv/bin/pip" install --quiet "$work"/wheels/*.whl
# Runs the code of the README.
awk '/^```python$/ { code = 1; next } /^```$/ { code = 0 } code' README.md > "$work/readme.py"
(cd "$work" && venv/bin/python readme.py)
"$work/venv/bin/mypy" --strict --cache-dir "$work/mypy" python tests
"$work/venv/bin/pytest" -q -p no:cacheprovider tests
if [ "${1:-}" = --compare ]; then
    "$work/venv/bin/pip" install --quiet plyvel rocksdict
    "$work/venv/bin/python" compare.py
fi
