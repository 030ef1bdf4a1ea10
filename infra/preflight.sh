#!/bin/sh
# Says in one line what this machine lacks, or prints the Python to use. Needs nothing but a shell.
# PYTHON, JAVA_HOME and SEAM_SETUP_FREE_MB are honoured.
set -u

fail() {
    echo "seam: $1" >&2
    exit 1
}

works() {
    command -v "$1" >/dev/null 2>&1 && "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1
}

python=
for candidate in ${PYTHON:-python3.11 python3 python}; do
    if works "$candidate"; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || fail "Python 3.11 is not here${PYTHON:+ (PYTHON=$PYTHON is not one)}. Install it (Debian: apt-get install python3.11 python3.11-venv) or name it: make PYTHON=/path/to/python3.11"
"$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || fail "$python cannot make a venv. Install its venv module (Debian: apt-get install python3.11-venv)."

if [ -n "${JAVA_HOME:-}" ]; then java=$JAVA_HOME/bin/java where="under JAVA_HOME=$JAVA_HOME"; else java=java where="on the PATH"; fi
command -v "$java" >/dev/null 2>&1 || fail "Java is not $where. Install Java 17 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME."
version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
[ "${version:-0}" -ge 17 ] 2>/dev/null || fail "Java $where is version ${version:-unknown}; 17 or newer is needed. Install it or point JAVA_HOME to it."

free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1024) }')
if [ -f .venv/.seam-stamp ]; then needed=1024; else needed=3072; fi
needed=${SEAM_SETUP_FREE_MB:-$needed}
[ "${free:-0}" -ge "$needed" ] || fail "$(pwd) has $free MB free, $needed MB are needed (Python packages, jars and the demo's data). Free some space."

echo "$python"
