# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# How the checks make the wheel, virtual environments, and run python/tests. Source it after
# lib.sh.

# True if python3 can do what is needed.
python_ready() {
    have python3 && python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null
}

# make_venv FOLDER: a virtual environment, unless this python3 has made it before.
make_venv() {
    local version

    version=$(python3 -c 'import sys; print(sys.version, sys.base_prefix)')
    [ "$(cat "$1/.made" 2>/dev/null)" != "$version" ] || return 0
    rm -rf "$1"
    python3 -m venv "$1"
    printf '%s\n' "$version" >"$1/.made"
}

# venv_pip FOLDER WORD...: pip, which asks nothing and says little.
venv_pip() {
    "$1/bin/python" -m pip --disable-pip-version-check --quiet "${@:2}" </dev/null
}

# Of all that a wheel is made from.
wheel_words() {
    find CMakeLists.txt pyproject.toml README.md LICENSE cmake include man python/build python/motet src tools scripts/gate.py \
        -type f ! -path '*/__pycache__/*' -print0 | sort -z | xargs -0 cksum | cksum
}

# install_wheel VENV: `pip wheel .`, if something changed since, and the wheel into VENV.
# Its file is in build/wheel/out.
install_wheel() {
    local words

    words=$(wheel_words)
    if [ "$(cat build/wheel/.words 2>/dev/null)" != "$words" ]; then
        say "pip wheel ."
        rm -rf build/wheel/out build/wheel/.words
        venv_pip "$1" wheel --no-deps --wheel-dir build/wheel/out .
        printf '%s\n' "$words" >build/wheel/.words
    fi
    [ "$(cat "$1/.wheel" 2>/dev/null)" != "$words" ] || return 0
    rm -f "$1/.wheel"
    venv_pip "$1" install --no-deps --no-index --force-reinstall build/wheel/out/motet-*.whl
    printf '%s\n' "$words" >"$1/.wheel"
}

# lint_python VENV: what pyproject.toml asks of ruff and mypy. Their versions are named: each has
# rules of its own. Without an index that has them, it says so.
lint_python() {
    local ruff=0.17.6 mypy=2.4.1 sources=(python examples bench/torch)

    venv_pip "$1" install "ruff==$ruff" "mypy==$mypy" 2>/dev/null || {
        skipped+=("ruff and mypy: pip has no ruff $ruff or no mypy $mypy")
        return 0
    }
    "$1/bin/ruff" check --quiet "${sources[@]}"
    "$1/bin/ruff" format --quiet --check "${sources[@]}"
    "$1/bin/mypy" --no-error-summary
}

# asan_runtime: AddressSanitizer to preload, or nothing. LLVM's, since ranks are forked: GCC 12's
# leaves a lock of its allocator locked in the child once in a while.
asan_runtime() {
    local file

    file=$(clang-19 -print-file-name="libclang_rt.asan-$(uname -m).so" 2>/dev/null) || return 0
    [ ! -e "$file" ] || printf '%s' "$file"
}

# python_tests FOLDER LABEL: those of python/tests with LABEL, by FOLDER/venv's python.
python_tests() {
    cmake -S python/tests -B "$1/tests" -DMOTET_PYTHON="$PWD/$1/venv/bin/python" \
        -DMOTET_WHEELS="$PWD/build/wheel/out" -DMOTET_ASAN_RUNTIME="$(asan_runtime)" >/dev/null
    run_tests "$1/tests" -L "$2"
}
