"""The shell script by which a job on a cluster finds its Python interpreter.

Ray starts a job by a shell command. A head that was started by the path of a virtual environment
(``/opt/venv/bin/ray start``) does not have that environment's ``python`` on its path. A command that begins
with ``python`` then runs another interpreter, which lacks Rowsieve's dependencies. The script below tries
``python`` first, since a job may choose its own, then the interpreter of the Ray node, then ``python3``.
"""

from __future__ import annotations

from engine.jobs.package import RECIPE

SCRIPT_NAME = "rowsieve-start.sh"
ENTRYPOINT = f"sh {SCRIPT_NAME} run {RECIPE} --log-format plain"
"""Shell command of a job, in the folder with the shipped files."""
SCRIPT = r"""# Starts Rowsieve with the first interpreter that has its dependencies.
node_python() {
    process=$PPID
    while [ "${process:-0}" -gt 1 ] && [ -r "/proc/$process/cmdline" ]; do
        found=$(tr '\000' '\n' <"/proc/$process/cmdline" |
            sed -n 's/^--python_worker_command=\([^ ]*\).*/\1/p')
        [ -n "$found" ] && echo "$found" && return
        process=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$process/status")
    done
}

check='import sys; from importlib.util import find_spec as f
sys.exit(not all(map(f, ("engine", "ray", "typer", "pydantic"))))'
node=$(node_python)
for candidate in python "$node" python3; do
    if [ -n "$candidate" ] && "$candidate" -c "$check" 2>/dev/null; then
        exec "$candidate" -m engine.cli "$@"
    fi
done
printf '%s ' "error: No Python on the cluster's head has Rowsieve's dependencies. Looked at: python" \
    "($(command -v python || echo none)), the Ray node's interpreter (${node:-unknown}), python3" \
    "($(command -v python3 || echo none)). Install them where Ray runs (pip install 'rowsieve[deploy]')," \
    "or activate the environment that has them before 'ray start'." >&2
echo >&2
exit 2
"""
