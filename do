#!/bin/sh
# do - the one entry to this project: run, test, bench, check. See `./do help`.
#
# Needs nothing but sh, git and apt on a fresh Debian 12; installs what a command
# is missing and nothing else, and works offline once that is there.
set -eu
LC_ALL=C.UTF-8
export LC_ALL
cd "$(dirname "$0")"
root=$(pwd)
jobs=$(nproc 2>/dev/null || echo 2)
# Of tests at a time: many wait for a clock or a child, and with one for each core these rest.
tests_at_once=$((jobs * 2))
logs=build/log

help() {
    cat <<'HELP'
usage: ./do COMMAND

  run                    build and run the search service example with its upstream, with live figures
  test                   build and run the default tests (under 10 minutes on 2 cores)
  test --all             every compiler, sanitizer, switch mode and long test, aarch64 under an
                         emulator, static programs with musl, 20 million simulated runs (by
                         default 2 million), simulation at worker level, races planted for ThreadSanitizer
                         to find, each fuzz target for 20 seconds, the gdb script, the unit tests
                         under valgrind, promtool on the metrics and the alerts, dot on the map,
                         and `check`
  test --rest            what --all has beyond the default tests
  test --filter NAME     only the tests whose name contains NAME, or below a folder (unit/rt), with
                         gcc and with clang's ASan+UBSan
  bench [GROUP]          benchmarks beside their peers (GROUP: runtime echo flow resilience sim); no GROUP: all.
                         sim also tells in how many runs each planted bug is found.
                         --quick, --reps N, --only WORKLOAD: see bench/README.md
  bench service          the search service and three naive variants of it through overload and an
                         outage: figures and pictures, to docs/guide/pictures (about 6 minutes)
  check                  clang-format, clang-tidy, cppcheck, gcc -fanalyzer, clang thread-safety
                         analysis, tools/tidy (include matrix and house rules)
  reference              the reference of all calls: build/reference/html/index.html, and man pages
                         (man -M build/reference weir_spawn)
  coverage               lines of src that the default tests run, by file
  format                 lay out all C files by .clang-format
  build KIND             only build: release clang asan-gcc asan-clang tsan-{gcc,clang}-{ordered,strict}
                         coverage fuzz aarch64 musl valgrind sim (every atomic of the library is a
                         point at which a simulated thread may be interrupted)
  help                   this text

Missing Debian packages are installed with apt (by root, or through sudo); with all of them
there, no command but `bench` needs the network (its peers fetch their packages once).
Builds go to build/KIND, the full output of every suite to build/log/SUITE.log.
A test command closes with `N passed, N failed`, the sum of its suites.

  environment   WEIR_NO_INSTALL=1   name missing packages instead of installing them
  exit status   0 all well, 1 a failure, 2 wrong usage, 3 something needed is missing
HELP
}

die() {
    status=$1
    shift
    echo "do: $*" >&2
    exit "$status"
}

# ---- packages ---------------------------------------------------------------

# Words are package[:command]: a tool also counts as present when its command is
# on PATH from elsewhere (a newer go, for instance).
packages_build="gcc:gcc libc6-dev meson:meson ninja-build:ninja pkg-config:pkg-config liburing-dev"
packages_test="g++:g++ clang:clang libclang-rt-14-dev llvm:llvm-symbolizer python3:python3"
packages_debug="gdb:gdb valgrind:valgrind binutils:strip"
packages_check="clang-format:clang-format clang-tidy:clang-tidy cppcheck:cppcheck mandoc:mandoc"
packages_aarch64="gcc-aarch64-linux-gnu:aarch64-linux-gnu-gcc libc6-dev-arm64-cross qemu-user:qemu-aarch64"
packages_graph="graphviz:dot"
packages_musl="musl-tools:musl-gcc linux-libc-dev file:file"
packages_pictures="librsvg2-bin:rsvg-convert fonts-dejavu-core"
packages_bench="golang:go cargo-web:cargo rustc-web:rustc g++:g++ libboost-fiber-dev libuv1-dev liburing-dev linux-perf:perf python3:python3"

installed() {
    case $1 in
    *:*) command -v "${1#*:}" >/dev/null 2>&1 && return 0 ;;
    esac
    [ "$(dpkg-query -W -f '${db:Status-Status}' "${1%%:*}" 2>/dev/null)" = installed ]
}

# missing WORD... - the names of the packages that are not there.
missing() {
    for word in "$@"; do
        installed "$word" || printf '%s ' "${word%%:*}"
    done
}

# as_root COMMAND... - apt needs it; everything else runs as whoever called.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        return 1
    fi
}

apt() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 "$@"
}

# try_install WORD... - install what is missing; the still missing names are in $lacking.
try_install() {
    lacking=$(missing "$@")
    [ -n "$lacking" ] || return 0
    [ "${WEIR_NO_INSTALL-}" != 1 ] || return 1
    command -v apt-get >/dev/null 2>&1 || return 1
    echo "do: installing $lacking" >&2
    mkdir -p "$logs"
    # One source that cannot be reached fails the update; the lists that are there may do.
    apt update >"$logs/apt.log" 2>&1 ||
        echo "do: apt-get update failed; trying with the package lists there are" >&2
    # shellcheck disable=SC2086 # the names are words
    apt install --no-install-recommends $lacking >>"$logs/apt.log" 2>&1 ||
        tail -n 5 "$logs/apt.log" >&2
    lacking=$(missing "$@")
    [ -z "$lacking" ]
}

need() {
    try_install "$@" || die 3 "these Debian packages are missing and could not be installed:" \
        "${lacking}(apt-get install $lacking)"
}

# need_promtool - the checker of metrics, on PATH. Its package also has a server, which an
# installation would start; so it is only unpacked.
need_promtool() {
    folder=build/promtool
    PATH=$PATH:$root/$folder/usr/bin
    command -v promtool >/dev/null 2>&1 && return 0
    [ "${WEIR_NO_INSTALL-}" != 1 ] ||
        die 3 "promtool is missing (apt-get install prometheus, or without WEIR_NO_INSTALL=1)"
    echo "do: unpacking promtool" >&2
    mkdir -p "$logs" "$folder"
    (
        cd "$folder"
        apt-get -q download prometheus || { apt update && apt-get -q download prometheus; }
        dpkg-deb -x prometheus_*.deb . && rm -f prometheus_*.deb
    ) >"$logs/promtool-unpack.log" 2>&1 || tail -n 5 "$logs/promtool-unpack.log" >&2
    command -v promtool >/dev/null 2>&1 || die 3 "promtool is missing (apt-get install prometheus)"
}

# ---- builds -----------------------------------------------------------------

# The list that meson.build was configured with; see tools/sources.
sources_now() {
    tools/sources src programs testing tests examples bench
}

# choose KIND - what it is built with: $compiler, $cflags and $options. Ends with
# wrong usage when there is no such kind. $packages_kind is what it needs beyond the usual.
choose() {
    kind=$1
    packages_kind=
    compiler=gcc
    cflags=
    options="-Dwerror=true"
    sanitize="-Db_lundef=false -Dbuildtype=debug -Doptimization=1"
    case $kind in
    release) ;;
    clang) compiler=clang ;;
    sim) options="$options -Dsim_workers=true" ;;
    valgrind) options="$options -Dvalgrind=enabled -Dexamples=false" ;;
    bench) options="$options -Dbench=true -Dtests=false -Dexamples=false -Db_lto=true -Doptimization=3" ;;
    asan-gcc) options="$options $sanitize -Db_sanitize=address,undefined" ;;
    asan-clang) options="$options $sanitize -Db_sanitize=address,undefined" compiler=clang ;;
    tsan-*-ordered | tsan-*-strict)
        compiler=${kind#tsan-}
        mode=${compiler#*-}
        compiler=${compiler%-*}
        case $compiler in gcc | clang) ;; *) die 2 "unknown build kind '$kind' (see ./do help)" ;; esac
        options="$options $sanitize -Db_sanitize=thread -Dtsan_mode=$mode"
        ;;
    coverage)
        options="$options -Dbuildtype=debug -Db_coverage=true -Dexamples=false"
        cflags="-fprofile-update=atomic" # tests count from several threads
        ;;
    fuzz)
        compiler=clang
        options="$options $sanitize -Db_sanitize=address,undefined -Dfuzz=true -Dexamples=false"
        ;;
    aarch64)
        compiler="aarch64-linux-gnu-gcc"
        options="$options --cross-file tools/cross/aarch64.ini"
        packages_kind=$packages_aarch64
        ;;
    musl)
        compiler=musl-gcc
        options="$options -Dstatic=true"
        packages_kind=$packages_musl
        ;;
    *) die 2 "unknown build kind '$kind' (see ./do help)" ;;
    esac
}

# build KIND - configure build/KIND once, and build it. Returns 1, having said why,
# when that fails.
build() {
    choose "$1"
    dir=build/$kind
    mkdir -p "$logs" build
    log=$logs/build-$kind.log
    sources_now >build/sources.new
    # shellcheck disable=SC2086 # options are words
    if [ ! -f "$dir/build.ninja" ]; then
        rm -rf "$dir"
        CC=$compiler CFLAGS=$cflags meson setup "$dir" $options >"$log" 2>&1 || build_failed || return 1
    elif ! cmp -s build/sources.new "$dir/sources"; then
        meson setup --reconfigure "$dir" >"$log" 2>&1 || build_failed || return 1
    fi
    cp build/sources.new "$dir/sources"
    rm -f build/sources.new
    ninja -C "$dir" -j "$jobs" >"$log" 2>&1 || build_failed
}

build_failed() {
    if grep -q -E 'error:|ERROR' "$log"; then
        grep -v -E '^(gcc|clang|cc) ' "$log" | grep -E -A 8 'error:|ERROR' | head -n 60 >&2
    else
        tail -n 30 "$log" >&2
    fi
    echo "do: the build in $dir failed (all of it: $log)" >&2
    return 1
}

# ---- suites -----------------------------------------------------------------

passed=0
failed=0
failures=

# suite NAME SECONDS COMMAND... - run a program that closes with `N passed, N
# failed`, print that line with the suite's name, and add it to the sum. A
# program that says nothing, ran nothing, or fails without saying so is one
# failure.
suite() {
    name=$1
    seconds=$2
    shift 2
    log=$logs/$name.log
    mkdir -p "$logs"
    status=0
    timeout -k 10 "$seconds" "$@" >"$log" 2>&1 || status=$?
    count "$name" "$status" "$seconds"
}

closing_line='^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$'

count() {
    line=$(grep -E "$closing_line" "$log" | tail -n 1)
    skipped=${line#*failed}
    ok=${line%% passed*}
    bad=${line#*passed, }
    bad=${bad%% failed*}
    why=
    if [ "$2" -eq 124 ] || [ "$2" -eq 137 ]; then
        why="was still running after $3 seconds and was ended"
    elif [ -z "$line" ]; then
        why="ended with status $2 and without a closing line"
    elif [ $((ok + bad)) -eq 0 ]; then
        why="ran no test at all"
    elif [ "$2" -ne 0 ] && [ "$bad" -eq 0 ]; then
        why="ended with status $2 although no test failed"
    fi
    ok=${ok:-0}
    bad=${bad:-0}
    [ -z "$why" ] || bad=$((bad + 1))
    passed=$((passed + ok))
    failed=$((failed + bad))
    if [ "$bad" -gt 0 ]; then
        failures="$failures $1"
        echo "---- $1: the end of $log"
        grep -v -E "$closing_line" "$log" | tail -n 60 | sed 's/^/    /'
        [ -z "$why" ] || echo "---- $1 $why"
    fi
    echo "$1: $ok passed, $bad failed$skipped"
}

# built KIND - build it; a build that fails is a failed suite of its own, and the
# caller leaves out what needs it.
built() {
    build "$1" && return 0
    failed=$((failed + 1))
    failures="$failures build-$1"
    echo "build-$1: 0 passed, 1 failed"
    return 1
}

# judge NAME SECONDS COMMAND... - a suite of one: passed when the status is 0.
judge() {
    name=$1
    seconds=$2
    shift 2
    log=$logs/$name.log
    mkdir -p "$logs"
    status=0
    timeout -k 10 "$seconds" "$@" >"$log" 2>&1 || status=$?
    if [ "$status" -eq 0 ]; then
        echo "1 passed, 0 failed" >>"$log"
    else
        echo "0 passed, 1 failed" >>"$log"
    fi
    count "$name" "$status" "$seconds"
}

# finish - the closing line; a run without a test is a failure.
finish() {
    [ -z "$failures" ] || echo "failed suites:$failures (full output in $logs)"
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

# Sanitizers end the process at the first finding, with a stack that names functions.
export ASAN_OPTIONS="abort_on_error=0:detect_stack_use_after_return=0:strict_string_checks=1:detect_leaks=1"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:history_size=4"

# tests KIND SUITE SECONDS WORKERS [ARGUMENT...] - the test program of a build, on the
# backend that $backend names.
backend=epoll
tests() {
    program=build/$1/tests/weir-tests
    name=$2
    seconds=$3
    workers=$4
    shift 4
    suite "$name" "$seconds" env WEIR_TEST_BACKEND="$backend" WEIR_TEST_WORKERS="$workers" \
        "$program" -j "$tests_at_once" "$@"
}

# A simulation knows neither the backend nor WEIR_TEST_WORKERS, and the engine has no runtime: their
# tests run once in a build.
not_simulated="--skip sim --skip unit/sim --skip unit/engine"

# tests_uring KIND SUITE ... - the same on io_uring, if that works here.
tests_uring() {
    if WEIR_TEST_BACKEND=io_uring "build/$1/tests/weir-tests" \
        file_calls_that_the_kernel_has_not_seen_can_be_taken_back | grep -q "^1 passed"; then
        backend=io_uring
        # shellcheck disable=SC2086 # several words
        tests "$@" $not_simulated
        backend=epoll
    else
        echo "$2: left out, since io_uring does not work here"
    fi
}

# sim_runs SUITE SECONDS RUNS - the tests of tests/sim at task level, until there were so many
# simulated runs; says how many.
sim_runs() {
    suite "$1" "$2" tools/sim-runs build/release/tests/weir-tests "$3" "$jobs"
    grep '^sim: ' "$logs/$1.log" | tail -n 1 || true
}

# run_covered - the tests that coverage counts, from zero.
run_covered() {
    find build/coverage -name '*.gcda' -delete
    # shellcheck disable=SC2086
    tests coverage coverage-1 800 1 $not_simulated
    tests coverage coverage-2 800 2
}

test_default() {
    need $packages_build $packages_test
    if built release; then
        # shellcheck disable=SC2086
        tests release gcc-1 480 1 $not_simulated
        tests release gcc-2 480 2
        tests_uring release gcc-uring-2 480 2
        suite compile 120 tests/compile/run build/release/libweir.a
        suite examples 120 tools/examples build/release/examples
        suite corpus 120 tests/fuzz/run replay build/release
        judge reference 60 tools/reference --check --library build/release/libweir.so
        sim_runs sim-runs 400 2000000
    fi
    if built asan-clang; then
        tests asan-clang asan-clang 600 2
        suite corpus-asan 120 tests/fuzz/run replay build/asan-clang
    fi
    suite reference-rules 60 tools/reference --self-test
    suite tidy-rules 60 tools/tidy --self-test
    judge tidy 60 tools/tidy
}

test_filter() {
    case $1 in
    *[/*?]*) set -- "$1" ;; # a folder or a pattern of its own
    *) set -- "*$1*" ;;
    esac
    need $packages_build $packages_test
    if built release; then
        tests release gcc-1 240 1 "$1"
        tests release gcc-2 240 2 "$1"
    fi
    if built asan-clang; then
        tests asan-clang asan-clang 300 2 "$1"
        tests_uring asan-clang asan-clang-uring 300 2 "$1"
    fi
}

# test_aarch64 - all tests under an emulator, which is slower, and knows fewer system calls:
# docs/platforms.md.
test_aarch64() {
    need $packages_build $packages_aarch64
    built aarch64 || return 0
    emulator="$(command -v qemu-aarch64) -L /usr/aarch64-linux-gnu"
    # shellcheck disable=SC2086 # the emulator with its options
    skip=
    for workers in 2 1; do
        suite "aarch64-$workers" 800 env WEIR_TEST_WORKERS=$workers WEIR_TEST_SLOW=4 \
            WEIR_TEST_EMULATOR="$emulator" $emulator build/aarch64/tests/weir-tests -j "$tests_at_once" $skip
        skip=$not_simulated
    done
    # shellcheck disable=SC2086
    suite aarch64-check 240 tools/aarch64-check build/aarch64 $emulator
}

# test_musl - all tests in one static program, and the examples: docs/platforms.md.
test_musl() {
    need $packages_build $packages_musl
    built musl || return 0
    tests musl musl 600 2
    if built release; then
        suite static 240 tools/static-check build/musl build/release
    fi
}

test_rest() {
    need $packages_build $packages_test $packages_check $packages_debug
    if built asan-gcc; then
        tests asan-gcc asan-gcc 800 2
        tests_uring asan-gcc asan-gcc-uring 800 2
    fi
    if built asan-clang; then
        tests_uring asan-clang asan-clang-uring 800 2
    fi
    # At worker level: every test of the library, simulations with several workers, and the bugs
    # that are planted in that build.
    if built sim; then
        tests sim sim-build 600 2
    fi
    if built clang; then
        # shellcheck disable=SC2086
        tests clang clang-1 600 1 $not_simulated
        tests clang clang-2 600 2
    fi
    for kind in tsan-gcc-ordered tsan-gcc-strict tsan-clang-ordered tsan-clang-strict; do
        built $kind || continue
        # gcc's on both backends; clang's on one each: all four on both take longer than CI has.
        case $kind in *-clang-ordered) ;; *) tests $kind $kind 1000 2 ;; esac
        case $kind in *-clang-strict) ;; *) tests_uring $kind "$kind-uring" 1000 2 ;; esac
        suite "$kind-planted" 120 "build/$kind/tests/weir-planted"
        # One of the four: one worker, and the long tests, which take minutes here.
        if [ $kind = tsan-gcc-strict ]; then
            # shellcheck disable=SC2086
            tests $kind $kind-1 1000 1 $not_simulated
            tests $kind $kind-long 600 2 --only-long
        fi
    done
    if built release; then
        # shellcheck disable=SC2086
        suite masked 600 env WEIR_TEST_MASK=guard WEIR_TEST_WORKERS=2 \
            build/release/tests/weir-tests -j "$tests_at_once" $not_simulated
        sim_runs sim-runs-long 900 20000000
        tests release long 900 2 --only-long
        tests_uring release gcc-uring-1 600 1
        tests_uring release long-uring 900 2 --only-long
        suite install 120 tools/install-check build/release
        # Without promtool the test is skipped, and a suite that ran nothing has failed.
        need_promtool
        suite promtool 60 build/release/tests/weir-tests promtool_finds_nothing_wrong_with_the_metrics
        suite alerts 180 tests/alerts/run build/release
        # The same for dot.
        need $packages_graph
        suite graphviz 60 build/release/tests/weir-tests dot_draws_the_graph
    fi
    test_aarch64
    test_musl
    debuggers
    if built fuzz; then
        suite fuzz 400 tests/fuzz/run fuzz build/fuzz 20
    fi
    if built coverage; then
        run_covered
        judge coverage 120 tools/coverage build/coverage
        grep 'all of src' "$logs/coverage.log" || true # the judgement is made; this is for the record
    fi
    checks
}

# debuggers - the gdb script on builds of both compilers, and the unit tests under valgrind.
debuggers() {
    if built release && built clang; then
        suite gdb 600 tests/gdb/run build/release build/clang
    fi
    # A build of its own: build/release may be older than valgrind's header.
    if built valgrind; then
        suite valgrind 900 tests/valgrind/run build/valgrind
    fi
}

command_test() {
    case ${1-} in
    "") [ $# -eq 0 ] || die 2 "test: an empty argument"; test_default ;;
    --all)
        [ $# -eq 1 ] || die 2 "test --all takes no further argument"
        test_default
        test_rest
        ;;
    --rest)
        [ $# -eq 1 ] || die 2 "test --rest takes no further argument"
        test_rest
        ;;
    --filter)
        [ $# -eq 2 ] && [ -n "$2" ] || die 2 "test --filter needs one NAME"
        test_filter "$2"
        ;;
    *) die 2 "test: unknown argument '$1' (see ./do help)" ;;
    esac
    finish
}

# ---- check ------------------------------------------------------------------

checks() {
    judge format 180 tools/analyse format
    if built clang; then
        judge clang-tidy 1800 tools/analyse clang-tidy build/clang
    fi
    judge cppcheck 600 tools/analyse cppcheck
    judge analyzer 1200 tools/analyse analyzer
    judge thread-safety 300 tools/analyse thread-safety
    judge man-pages 60 tools/reference --lint
    judge tidy 60 tools/tidy
}

command_check() {
    [ $# -eq 0 ] || die 2 "check takes no argument"
    need $packages_build $packages_test $packages_check
    checks
    finish
}

# ---- the other commands -----------------------------------------------------

command_run() {
    need $packages_build
    build release
    exec build/release/examples/search-service --demo "$@"
}

command_bench() {
    need $packages_build python3:python3
    if [ "${1-}" = service ]; then
        shift
        try_install $packages_pictures || echo "do: going on without: $lacking" >&2
        build release
        exec examples/search-service/run-load "$@"
    fi
    if [ "${1-}" = sim ]; then
        build bench
        status=0
        bench/run --build build/bench "$@" || status=$?
        # In how many runs each planted bug is found, by either strategy.
        build sim
        build/sim/tests/weir-tests planted-runs
        exit "$status"
    fi
    # A peer that cannot be had is left out with a notice by the runner itself.
    try_install $packages_bench || echo "do: going on without: $lacking" >&2
    build bench
    exec bench/run --build build/bench "$@"
}

command_reference() {
    [ $# -eq 0 ] || die 2 "reference takes no argument"
    need python3:python3 mandoc:mandoc
    tools/reference --man build/reference
    tools/reference --html build/reference/html
    echo "build/reference/html/index.html; man -M build/reference weir_spawn"
}

command_coverage() {
    [ $# -eq 0 ] || die 2 "coverage takes no argument"
    need $packages_build $packages_test
    build coverage
    run_covered
    tools/coverage build/coverage
    finish
}

command_format() {
    [ $# -eq 0 ] || die 2 "format takes no argument"
    need $packages_check
    tools/analyse reformat
}

command_build() {
    [ $# -eq 1 ] || die 2 "build needs one KIND (see ./do help)"
    choose "$1" # refuses an unknown one before anything is installed
    need $packages_build $packages_test $packages_kind
    build "$1"
    echo "built in $root/build/$1"
}

[ $# -gt 0 ] || { help >&2; exit 2; }
command=$1
shift
case $command in
run | test | bench | check | reference | coverage | format | build) "command_$command" "$@" ;;
help | --help | -h) help ;;
*) die 2 "unknown command '$command' (./do help lists them)" ;;
esac
