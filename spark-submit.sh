#!/usr/bin/env bash
# Sets up what Tidemark needs, once, and hands a job to spark-submit. Without arguments it says how.
#
# Environment: JAVA_HOME         a JDK 17 or 21, if `java` on the PATH is another
#              TIDEMARK_PYTHON   the Python to make the environment with (default: the first of 3.11 to 3.14 found)
#              TIDEMARK_VENV     where the environment lies (default: .venv next to this script)
#              TIDEMARK_IVY      where Spark keeps the jars it fetched (default: ~/.ivy2.5.2, Spark's own)
#              SPARK_CONF_DIR    Spark's configuration (default: conf/ next to this script)
#              TIDEMARK_IMAGE    set in the image of conf/kubernetes: executors have all that the driver has
set -euo pipefail

script=${BASH_SOURCE[0]}
while [ -L "$script" ]; do
  target=$(readlink "$script")
  case $target in /*) script=$target ;; *) script=$(dirname "$script")/$target ;; esac
done
here=$(cd "$(dirname "$script")" && pwd -P)
venv=${TIDEMARK_VENV:-$here/.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac
ivy=${TIDEMARK_IVY:-$HOME/.ivy2.5.2}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tidemark
export SPARK_CONF_DIR=${SPARK_CONF_DIR:-$here/conf}

say() { printf 'tidemark: %s\n' "$*" >&2; }
as_json=
# Ends with a sentence, or with the JSON object that a job started with --json ends with.
die() { # CODE SENTENCE
  if [ -n "$as_json" ]; then
    local told
    told=$(printf '%s' "$2" | tr '\n\t' '  ' | sed 's/[\\"]/\\&/g')
    printf '{"recordings": [], "error": "%s", "exit_code": %d, "failure": {"kind": "setup", "message": "%s", "exit_code": %d, "type": null, "file": null, "line": null, "details": null}}\n' \
      "$told" "$1" "$told" "$1" >&3 # some of this runs where standard output is read
  else
    say "$2"
  fi
  exit "$1"
}
sha256() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }

help() {
  cat <<'TEXT'
Tidemark replays Kafka's replication protocol from broker logs, and says which acknowledged records were lost, when and why.

  ./spark-submit.sh demo                                        a real recording, from logs to report, in a few minutes
  ./spark-submit.sh collect --broker ID=FOLDER.. --into DIR     make a recording of what brokers left on their disks
  ./spark-submit.sh inspect --recording DIR                     what is in a recording, and what it can answer
  ./spark-submit.sh run --recording DIR --warehouse DIR         parse, order, replay, validate, report
  ./spark-submit.sh ingest|replay|validate|report ...           one stage of it
  ./spark-submit.sh show incident|partition|record|broker ...   an incident, a partition, a record, a broker, from the tables
  ./spark-submit.sh maintain --warehouse DIR                    small files together, old ones away: once a week
  ./spark-submit.sh views --warehouse DIR [--run]               tables and views for SQL and BI tools: CREATE statements
  ./spark-submit.sh tests [pytest arguments]                    every check of this repository
  ./spark-submit.sh bench [CASE...] [--events N]                ratios against what Spark itself costs, measured side by side
  ./spark-submit.sh completion bash|zsh                         lets the shell complete all of this
  ./spark-submit.sh JOB --help                                  the flags of a job, with examples

Everything after `--` goes to spark-submit:  ./spark-submit.sh run --recording DIR --warehouse DIR -- --master yarn --conf K=V
Needed: Python 3.11 to 3.14, a JDK 17 or 21; the rest is fetched at the first start (PyPI, Maven Central) and kept.
Exit codes: 0 done; 1 failed; 2 bad usage or input; 3 an expectation failed; 4 losses found and --fail-on-loss given.
TEXT
}

# Prints the first Python that can make the environment.
find_python() {
  local name found='' candidates=(python3 python3.13 python3.12 python3.11 python3.14 python)
  [ -z "${TIDEMARK_PYTHON:-}" ] || candidates=("$TIDEMARK_PYTHON")
  for name in "${candidates[@]}"; do
    command -v "$name" >/dev/null || continue
    "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null || { found=$name; continue; }
    "$name" -c 'import ensurepip, venv' 2>/dev/null || { found="$name without venv"; continue; }
    command -v "$name"
    return
  done
  case $found in
    *' without venv') die 2 "${found% without venv} cannot make virtual environments: install its venv package (Debian, Ubuntu: python3-venv)" ;;
    '') die 2 'no Python found: install Python 3.11, 3.12, 3.13 or 3.14, or name one in TIDEMARK_PYTHON' ;;
    *) die 2 "Python 3.11 to 3.14 is needed, and $found is $("$found" --version 2>&1 || true): install one, or name one in TIDEMARK_PYTHON" ;;
  esac
}

check_java() {
  local java=java version
  [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
  command -v "$java" >/dev/null || die 2 "no Java found${JAVA_HOME:+ in JAVA_HOME ($JAVA_HOME)}: install a JDK 17 or 21, and put it on the PATH or in JAVA_HOME"
  version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -1)
  case $version in
    17 | 21) ;;
    *) die 2 "a JDK 17 or 21 is needed, and $java is ${version:-none that starts}: install one, and put it on the PATH or in JAVA_HOME" ;;
  esac
}

lock_hash() { sha256 <"$here/$1" | cut -c1-64; }
is_installed() { [ -x "$venv/bin/python" ] && [ "$(cat "$venv/tidemark-$1" 2>/dev/null)" = "$(lock_hash "$1")" ]; }
has_jars() { (cd "$ivy/jars" 2>/dev/null && sha256 -c "$here/conf/jars.sha256" >/dev/null 2>&1); }

# Installs one lock file into the environment; its hash, written last, says that it is whole.
install_lock() {
  is_installed "$1" && return
  say "installing the packages of $1 into $venv (once; it takes some minutes)"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$here/$1" ||
    die 1 "pip could not install $1; what it said stands above; the next start tries again"
  # Where PYTHONDONTWRITEBYTECODE is set, every Python that Spark starts would compile pandas anew: seconds, each time.
  "$venv/bin/python" -m compileall -q "$venv/lib" >/dev/null || true # some packages carry sources of other Pythons
  lock_hash "$1" >"$venv/tidemark-$1.new" && mv "$venv/tidemark-$1.new" "$venv/tidemark-$1"
}

# Jobs hold a shared lock for as long as they run (hold_environment): what they run in is not removed under them.
remove_environment() { # PYTHON
  "$1" -c 'import fcntl, subprocess, sys
with open(sys.argv[1], "a") as lock:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("tidemark: jobs run in the environment that is to be renewed; waiting for their end", file=sys.stderr, flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    sys.exit(subprocess.call(["rm", "-rf", sys.argv[2]]))' "$venv.in-use" "$venv" || die 1 "$venv could not be removed"
}

# The lock is this process's and that of the JVM which takes its place; the system lets go of it when that ends.
hold_environment() {
  { : >>"$venv.in-use"; } 2>/dev/null || return 0 # where nobody can write, nobody can remove
  exec 7>>"$venv.in-use"
  "$venv/bin/python" -c 'import fcntl; fcntl.flock(7, fcntl.LOCK_SH)' && is_installed requirements.lock
}

make_environment() {
  local python
  if ! is_installed requirements.lock; then
    python=$(find_python)
    if [ -e "$venv/tidemark" ]; then
      remove_environment "$python" # made for another lock file, or half made
    elif [ -n "$(ls -A "$venv" 2>/dev/null)" ]; then
      die 2 "$venv is there, and Tidemark did not make it: move it away, or name another place in TIDEMARK_VENV"
    fi
    mkdir -p "$venv" && touch "$venv/tidemark"
    "$python" -m venv "$venv" || die 1 "$python could not make a virtual environment in $venv"
  fi
  install_lock requirements.lock
  [ "${1:-}" != tests ] || install_lock requirements-dev.lock
  printf '%s\n' "$here" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tidemark.pth"
}

# Lets Spark's own resolver fetch Delta's jars: it wants a program to run, and version.py only sets a variable.
fetch_jars() {
  local log
  has_jars && return
  log=$(mktemp "${TMPDIR:-/tmp}/tidemark-jars.XXXXXX")
  say "fetching Delta's jars into $ivy"
  sed 's/^[0-9a-f]*  //' "$here/conf/jars.sha256" | while IFS= read -r jar; do rm -f "$ivy/jars/$jar"; done
  "$SPARK_HOME/bin/spark-submit" --master 'local[1]' --conf "spark.jars.ivy=$ivy" "$SPARK_HOME/version.py" >"$log" 2>&1 ||
    die 1 "Spark could not fetch Delta's jars from Maven Central; see $log (a mirror: spark.jars.repositories in conf/spark-defaults.conf)"
  has_jars || die 1 "the jars in $ivy/jars are not those of conf/jars.sha256; see $log"
  rm -f "$log"
}

use_environment() {
  export PYSPARK_PYTHON=$venv/bin/python PYSPARK_DRIVER_PYTHON=$venv/bin/python
  export GX_ANALYTICS_ENABLED=false PYTHONHASHSEED=0 TZ=UTC
  # -I: with another Spark on the PYTHONPATH, as below a Spark driver, its home would be found.
  SPARK_HOME=$("$venv/bin/python" -I -c 'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])')
  export SPARK_HOME
  # Compiled code of other sources (replay/arrays/code_cache.py) goes when it was not read for a month.
  find "$here/replay" "$here/pipelines" -path '*/__pycache__/rules-*' -type f -atime +30 -delete 2>/dev/null || true
}

set_up() { # [tests|packages]
  make_environment "$@"
  use_environment
  [ "${1:-}" = packages ] || fetch_jars
}

# What was missing is said already, on standard error.
set_up_failed() { # CODE
  [ -z "$as_json" ] || die "$1" 'the environment could not be set up; standard error says why'
  exit "$1"
}

is_set_up() { # [tests|packages]
  is_installed requirements.lock && { [ "${1:-}" != tests ] || is_installed requirements-dev.lock; } &&
    { [ "${1:-}" = packages ] || has_jars; } &&
    grep -qxF "$here" "$venv"/lib/python3*/site-packages/tidemark.pth
}

# Sets up under a lock that the system lets go of when its holder dies, however it dies.
ensure_set_up() { # [tests|packages]
  local python
  until is_set_up "$@" && hold_environment; do
    exec 7>&- # or this very job would be waited for
    python=$(find_python)
    mkdir -p "$(dirname "$venv")"
    "$python" -c 'import fcntl, subprocess, sys
lock = open(sys.argv[1], "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("tidemark: another start is setting up; waiting for it", file=sys.stderr)
    fcntl.flock(lock, fcntl.LOCK_EX)
sys.exit(subprocess.call(sys.argv[2:], pass_fds=[lock.fileno()]))' "$venv.lock" "$BASH" "$here/spark-submit.sh" set-up "$@" || set_up_failed $?
  done
  use_environment
}

run_tests() {
  check_java
  ensure_set_up tests
  cd "$here"
  export SPARK_LOCAL_IP=127.0.0.1
  local step failed=()
  for step in 'ruff check .' 'ruff format --check .' 'mypy' 'lint-imports'; do
    say "$step"
    # shellcheck disable=SC2086
    PATH=$venv/bin:$PATH "$venv/bin/"$step || failed+=("$step")
  done
  if [ $# -gt 0 ]; then
    say "pytest $*"
    "$venv/bin/python" -m pytest "$@" || failed+=(pytest)
  else
    local beside=(-n auto --maxprocesses 4 --dist loadfile) # what a file of tests shares is made once
    # The rules as they stand are quicker in small steps than compiled; a test compares the two.
    say "pytest tests/unit tests/bench"
    NUMBA_DISABLE_JIT=1 "$venv/bin/python" -m pytest "${beside[@]}" tests/unit tests/bench ||
      failed+=('pytest tests/unit tests/bench')
    say "pytest tests/spark tests/cluster tests/live"
    "$venv/bin/python" -m pytest "${beside[@]}" tests/spark tests/cluster tests/live ||
      failed+=('pytest tests/spark tests/cluster tests/live')
  fi
  [ ${#failed[@]} -eq 0 ] || die 1 "failed: $(printf '%s; ' "${failed[@]}" | sed 's/; $//')"
}

# What --master says, as a flag, as --conf, or in the defaults.
master_of() {
  local master
  master=$(awk '$1 == "spark.master" { print $2 }' "$SPARK_CONF_DIR/spark-defaults.conf" 2>/dev/null || true)
  while [ $# -gt 0 ]; do
    case $1 in
      --master) master=${2:-} ;;
      --master=*) master=${1#--master=} ;;
      spark.master=*) master=${1#spark.master=} ;;
      --conf=spark.master=*) master=${1#--conf=spark.master=} ;;
    esac
    shift
  done
  printf '%s' "${master:-local[*]}"
}

# Where an archive lies that is made of what stands on stdin: made once, for all runs.
archive_of() { printf '%s' "$cache/$1-$(sha256 | cut -c1-16).tar.gz"; }

# Packs the installed packages, and prints the archive. The nodes need the same Python at the same place. What only the
# driver needs, and is large, goes along where the driver does: vl_convert draws the page's pictures.
pack_environment() { # MODE
  local archive stage packages drawing=(--exclude '*/site-packages/vl_convert*')
  [ "$1" != cluster ] || drawing=()
  archive=$({ declare -f pack_environment && echo "$1" && "$venv/bin/python" -c 'import sys; print(sys.base_prefix, sys.version)' &&
    cat "$here/requirements.lock"; } | archive_of environment)
  if [ ! -e "$archive" ]; then
    say "packing the environment for the cluster into $archive (once; it takes half a minute)"
    mkdir -p "$cache"
    stage=$(mktemp -d "$cache/stage.XXXXXX")
    packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    mkdir -p "$stage/${packages#"$venv"/}"
    # Beside the environment, where our own packages are unpacked.
    echo ../../../../tidemark >"$stage/${packages#"$venv"/}/tidemark-shipped.pth"
    tar -cf - --exclude '*/pyspark/jars' --exclude '*/site-packages/*/tests' --exclude '*/site-packages/pip' \
      --exclude __pycache__ --exclude tidemark.pth ${drawing[@]+"${drawing[@]}"} -C "$venv" . -C "$stage" lib | gzip -1 >"$stage/packed"
    mv "$stage/packed" "$archive"
    rm -rf "$stage"
  fi
  printf '%s' "$archive"
}

# Packs our own packages, with what was compiled of them here so far, and prints the archive.
pack_tidemark() {
  local archive rooms=(schemas replay pipelines jobs)
  archive=$(cd "$here" && { find "${rooms[@]}" -name '*.py' -o -path '*/templates/*' -type f | LC_ALL=C sort | while IFS= read -r file; do
    echo "$file" && cat "$file"
  done; find replay -name '*.nbi' | LC_ALL=C sort; } | archive_of tidemark)
  if [ ! -e "$archive" ]; then
    tar -czf "$archive.$$" --exclude '*.pyc' -C "$here" "${rooms[@]}"
    mv "$archive.$$" "$archive"
  fi
  printf '%s' "$archive"
}

as_uri() { "$venv/bin/python" -c 'import pathlib, sys; print(pathlib.Path(sys.argv[1]).as_uri())' "$1"; }

submit() { # FILE ARGUMENTS... [-- SPARK FLAGS...]
  local job=$1 arguments=() flags=() mode=client master jars environment tidemark
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do arguments+=("$1"); shift; done
  [ $# -eq 0 ] || shift
  jars=$(sed "s|^[0-9a-f]*  |$ivy/jars/|" "$here/conf/jars.sha256" | paste -sd, -)
  flags=(--jars "$jars" --conf spark.jars.packages=)
  case " $* " in
    *'--deploy-mode cluster '* | *'--deploy-mode=cluster '* | *'spark.submit.deployMode=cluster '*) mode=cluster ;;
  esac
  master=$(master_of "$@")
  case "$mode $master" in
    *' local' | *' local['*) export SPARK_LOCAL_IP=127.0.0.1 ;;
    'cluster spark://'*) die 2 'a standalone cluster starts no Python drivers: without --deploy-mode cluster the driver runs here' ;;
    *' k8s://'*) ;; # in our image, as executors are
    *)
      environment=$(pack_environment "$mode") && environment=$(as_uri "$environment")
      tidemark=$(pack_tidemark) && tidemark=$(as_uri "$tidemark")
      flags+=(--archives "$environment#environment,$tidemark#tidemark")
      flags+=(--conf spark.pyspark.python=./environment/bin/python)
      [ "$mode" = cluster ] || flags+=(--conf "spark.pyspark.driver.python=$venv/bin/python")
      ;;
  esac
  set -- "$SPARK_HOME/bin/spark-submit" "${flags[@]}" "$@" "$here/jobs/$job" ${arguments[@]+"${arguments[@]}"}
  case "$dry_run $master" in
    *' local' | *' local['* | ' '*) ;;
    *)
      say "would run: $(printf '%q ' "$@")"
      [ "$mode" = client ] || exit 0 # a driver in the cluster would be one
      ;;
  esac
  exec "$@"
}

# What --dry-run says for Kubernetes: neither the environment nor a JVM is needed.
print_manifests() { # JOB ARGUMENTS... [-- SPARK FLAGS...]
  local python=$venv/bin/python
  [ -x "$python" ] || python=$(find_python)
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here exec "$python" "$here/jobs/manifests.py" "$@"
}

# What a pod does that Spark made on Kubernetes; the variables are Spark's.
run_executor() {
  local name options=()
  use_environment
  for name in $(compgen -v SPARK_JAVA_OPT_ | sort -V); do options+=("${!name}"); done
  exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" ${options[@]+"${options[@]}"} "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "$SPARK_CONF_DIR:$SPARK_HOME/jars/*${SPARK_CLASSPATH:+:$SPARK_CLASSPATH}" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
}

# The flags of a job, by its own parser: neither the environment nor a JVM is needed.
job_help() { # FILE ARGUMENTS...
  local python=$venv/bin/python job=$1
  shift
  [ -x "$python" ] || python=$(find_python)
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here exec "$python" "$here/jobs/$job" "$@"
}

command=${1:-help}
[ $# -eq 0 ] || shift
dry_run='' runs_statements=''
# spark-submit reads both streams of a Python driver, which so cannot see whether there is a terminal.
[ ! -t 2 ] || export TIDEMARK_TERMINAL=yes
[ ! -t 1 ] || { TIDEMARK_COLUMNS=$(stty size <&1 2>/dev/null | cut -d' ' -f2) && export TIDEMARK_COLUMNS; } || true
for argument in "$@"; do
  case $argument in
    --) break ;;
    --json) as_json=yes && exec 3>&1 ;;
  esac
done
case $command in
  help | --help | -h) help; exit 0 ;;
  set-up) set_up "$@"; exit 0 ;;
  executor) run_executor ;;
  tests) run_tests "$@"; exit 0 ;;
  demo | run | ingest | validate | report | maintain | views) job=$command.py ;;
  replay) job=replay_job.py ;;
  inspect) job=inspect_recording.py ;;
  collect) job=collect.py ;;
  show | completion) job=$command.py ;;
  bench) job=../tests/bench/bench.py; export PYTHONPATH=$here/tests/bench${PYTHONPATH:+:$PYTHONPATH} ;;
  *) die 2 "there is no job '$command': demo, collect, inspect, run, ingest, replay, validate, report, show, maintain, views, completion, bench or tests" ;;
esac
for argument in "$@"; do
  case $argument in
    --) break ;;
    -h | --help) if [ "$command" = show ]; then job_help "$job" "$@"; else job_help "$job" --help; fi ;;
    --dry-run) dry_run=yes ;;
    --run) runs_statements=yes ;;
  esac
done
case $command$runs_statements in
  collect | show | completion | views) # read files only: there is nothing to give to Spark
    ensure_set_up packages
    exec "$venv/bin/python" "$here/jobs/$job" "$@"
    ;;
esac
case "$dry_run $(master_of "$@")" in
  'yes k8s://'*) print_manifests "$command" "$@" ;;
  ' k8s://'*) [ -n "${TIDEMARK_IMAGE:-}" ] || die 2 'on Kubernetes the driver runs in a pod: --dry-run prints the manifests for it (docs/cluster.md)' ;;
esac
check_java
case $command in bench) ensure_set_up tests ;; *) ensure_set_up ;; esac
submit "$job" "$@"
