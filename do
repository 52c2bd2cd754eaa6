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

  run                    build and run `weir serve` on loopback with a demo workload; says what to try
  run search-service     build and run the search service example with its upstream, with live figures
  test                   build and run the default tests (under 10 minutes on 2 cores)
  test --all             both compilers, every sanitizer, switch mode and long test, aarch64 under an
                         emulator, static programs with musl, 20 million simulated runs (by
                         default 2 million), simulation at worker level, races planted for ThreadSanitizer
                         to find, each fuzz target for 12 seconds, curl, undici, wrk, requests and
                         slowhttptest against the server, 10,000 connections, ten minutes of load,
                         the gdb script, the unit tests
                         under valgrind, promtool on the metrics and the alerts, dot on the map,
                         the Debian packages on a machine of their own, and `check`
  test --rest            what --all has beyond the default tests
  test --filter NAME     only the tests whose name contains NAME, or below a folder (unit/rt), with
                         gcc and with clang's ASan+UBSan
  bench [GROUP]          benchmarks beside their peers (GROUP: runtime echo flow store server resilience sim); no GROUP: all.
                         sim also tells in how many runs each planted bug is found.
                         --quick, --reps N, --only WORKLOAD: see bench/README.md
  bench service          the search service and three naive variants of it through overload and an
                         outage: figures and pictures, to docs/guide/pictures (about 6 minutes)
  check                  clang-format, clang-tidy (--all leaves out the tests, and long paths),
                         cppcheck, gcc -fanalyzer, clang thread-safety analysis, tools/tidy
                         (include matrix and house rules)
  reference              the reference of all calls: build/reference/html/index.html, and man pages
                         (man -M build/reference weir_spawn)
  coverage               lines of src that the default tests run, by file
  format                 lay out all C files by .clang-format
  package                the Debian packages weir, libweir0 and libweir-dev: build/package/*.deb
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
packages_build="gcc:gcc libc6-dev meson:meson ninja-build:ninja pkg-config:pkg-config liburing-dev libssl-dev zlib1g-dev libinih-dev"
packages_test="g++:g++ clang:clang libclang-rt-14-dev llvm:llvm-symbolizer python3:python3 libsqlite3-dev openssl:openssl mandoc:mandoc"
packages_debug="gdb:gdb valgrind:valgrind binutils:strip"
packages_check="clang-format:clang-format clang-tidy:clang-tidy cppcheck:cppcheck mandoc:mandoc"
packages_aarch64="gcc-aarch64-linux-gnu:aarch64-linux-gnu-gcc libc6-dev-arm64-cross qemu-user:qemu-aarch64"
packages_graph="graphviz:dot"
packages_disks="e2fsprogs:mkfs.ext4 xfsprogs:mkfs.xfs"
packages_musl="musl-tools:musl-gcc linux-libc-dev file:file"
packages_package="debhelper:dh dpkg-dev:dpkg-buildpackage fakeroot:fakeroot python3:python3"
packages_machine="lintian:lintian systemd:systemctl iproute2:ip procps:ps man-db:man"
packages_pictures="librsvg2-bin:rsvg-convert fonts-dejavu-core"
# Only unpacked, as their installation would start them; and what they need of libraries.
packages_servers="redis-server redis-tools beanstalkd nginx wrk libjemalloc2 liblua5.1-0 lua-bitop lua-cjson liblzf1 libluajit-5.1-2"
packages_clients="curl:curl wrk:wrk slowhttptest:slowhttptest python3-requests nodejs:node npm:npm"
packages_bench="golang:go cargo-web:cargo rustc-web:rustc g++:g++ libboost-fiber-dev libuv1-dev liburing-dev libsqlite3-dev liblmdb-dev linux-perf:perf python3:python3"

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
    # Another program of the machine may be installing just now: it is waited for.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 \
        -o DPkg::Lock::Timeout=180 "$@"
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

# find_llhttp - the C sources of llhttp, which HTTP is parsed with. Their package would bring Node
# along, which nothing here runs; so it is only unpacked. Without them that part is not built.
find_llhttp() {
    llhttp_option=
    [ ! -f /usr/share/llhttp/llhttp.c ] || return 0
    folder=build/llhttp
    if [ ! -f "$folder/usr/share/llhttp/llhttp.c" ] && [ "${WEIR_NO_INSTALL-}" != 1 ]; then
        echo "do: unpacking the sources of llhttp" >&2
        mkdir -p "$logs" "$folder"
        (
            cd "$folder"
            apt-get -q download node-llhttp || { apt update && apt-get -q download node-llhttp; }
            dpkg-deb -x node-llhttp_*.deb . && rm -f node-llhttp_*.deb
        ) >"$logs/llhttp-unpack.log" 2>&1 || tail -n 5 "$logs/llhttp-unpack.log" >&2
    fi
    if [ -f "$folder/usr/share/llhttp/llhttp.c" ]; then
        llhttp_option=-Dllhttp=$root/$folder/usr/share
    else
        echo "do: building without HTTP: the package node-llhttp is missing" >&2
    fi
}

# find_servers - the peers of the group server, and their load, on PATH. Installing them would start
# them as services of the system; so they are only unpacked. Those that are missing are left out.
find_servers() {
    folder=build/servers
    there=0
    for command in redis-server beanstalkd nginx wrk; do
        command -v "$command" >/dev/null 2>&1 && there=$((there + 1))
    done
    [ "$there" -lt 4 ] || return 0
    if [ ! -x "$folder/usr/bin/wrk" ] && [ "${WEIR_NO_INSTALL-}" != 1 ]; then
        echo "do: unpacking the servers to compare with" >&2
        mkdir -p "$logs" "$folder"
        (
            cd "$folder"
            # shellcheck disable=SC2086 # the names are words
            apt-get -q download $packages_servers ||
                { apt update && apt-get -q download $packages_servers; }
            for file in *.deb; do dpkg-deb -x "$file" . && rm -f "$file"; done
        ) >"$logs/servers-unpack.log" 2>&1 || tail -n 5 "$logs/servers-unpack.log" >&2
    fi
    PATH=$PATH:$root/$folder/usr/bin:$root/$folder/usr/sbin
    LD_LIBRARY_PATH=$root/$folder/usr/lib/$(gcc -dumpmachine)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export PATH LD_LIBRARY_PATH
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
    # The shared library is what is installed, and what gdb is shown; everything else links the static one.
    options="-Dwerror=true -Dshared=false"
    sanitize="-Db_lundef=false -Dbuildtype=debug -Doptimization=1"
    case $kind in
    release) options="-Dwerror=true" ;;
    clang) options="-Dwerror=true" compiler=clang ;;
    sim) options="$options -Dsim_workers=true -Dserver=disabled" ;;
    valgrind) options="$options -Dvalgrind=enabled -Dexamples=false -Dserver=disabled" ;;
    bench) options="$options -Dbench=true -Dtests=false -Dexamples=false -Db_lto=true -Doptimization=3" ;;
    asan-gcc) options="$options $sanitize -Db_sanitize=address,undefined" ;;
    asan-clang) options="$options $sanitize -Db_sanitize=address,undefined -Dserver=disabled" compiler=clang ;;
    tsan-*-ordered | tsan-*-strict)
        compiler=${kind#tsan-}
        mode=${compiler#*-}
        compiler=${compiler%-*}
        case $compiler in gcc | clang) ;; *) die 2 "unknown build kind '$kind' (see ./do help)" ;; esac
        options="$options $sanitize -Db_sanitize=thread -Dtsan_mode=$mode"
        # The server once, with gcc: clang's is for what users of the library do.
        [ "$compiler" = gcc ] || options="$options -Dserver=disabled"
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
        options="$options --cross-file tools/cross/aarch64.ini -Dserver=disabled"
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
    sources_now >"build/sources.$kind"
    # shellcheck disable=SC2086 # options are words
    if [ ! -f "$dir/build.ninja" ]; then
        rm -rf "$dir"
        find_llhttp
        CC=$compiler CFLAGS=$cflags meson setup "$dir" $options $llhttp_option >"$log" 2>&1 || build_failed || return 1
    elif ! cmp -s "build/sources.$kind" "$dir/sources"; then
        find_llhttp
        meson setup --reconfigure "$dir" $llhttp_option >"$log" 2>&1 || build_failed || return 1
    fi
    mv "build/sources.$kind" "$dir/sources"
    timeout --foreground 1500 ninja -C "$dir" -j "$jobs" >"$log" 2>&1 || build_failed
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
    run_suite "$@"
    count "$1"
}

# run_suite NAME SECONDS COMMAND... - only run it, maybe behind others; count NAME adds it later.
run_suite() {
    name=$1
    seconds=$2
    shift 2
    mkdir -p "$logs"
    rm -f "$logs/$name.end"
    status=0
    began=$(date +%s)
    timeout -k 10 "$seconds" "$@" >"$logs/$name.log" 2>&1 || status=$?
    echo "$status $seconds $(($(date +%s) - began))" >"$logs/$name.end"
}

closing_line='^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$'

count() {
    log=$logs/$1.log
    read -r status seconds took <"$logs/$1.end" || { status=1 seconds=0 took=0; }
    line=$(grep -E "$closing_line" "$log" | tail -n 1)
    skipped=${line#*failed}
    ok=${line%% passed*}
    bad=${line#*passed, }
    bad=${bad%% failed*}
    why=
    if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
        why="was still running after $seconds seconds and was ended"
    elif [ -z "$line" ]; then
        why="ended with status $status and without a closing line"
    elif [ $((ok + bad)) -eq 0 ]; then
        why="ran no test at all"
    elif [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
        why="ended with status $status although no test failed"
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
    echo "$1: $ok passed, $bad failed$skipped ($took s)"
}

# await FILE - until what runs behind has made it, or has ended.
await() {
    while [ ! -f "$1" ] && kill -0 "$behind" 2>/dev/null; do sleep 1; done
}

# built KIND - build it, or wait until it has been built ahead; a build that fails is a failed suite of
# its own, and the caller leaves out what needs it.
built() {
    began=$(date +%s)
    case " $ahead " in
    *" $1 "*) await "$logs/ahead-$1" ;;
    esac
    if build "$1"; then
        seconds=$(($(date +%s) - began))
        [ "$seconds" -lt 5 ] || echo "build-$1: $seconds s"
        return 0
    fi
    failed=$((failed + 1))
    failures="$failures build-$1"
    echo "build-$1: 0 passed, 1 failed"
    return 1
}

# judge NAME SECONDS COMMAND... - a suite of one: passed when the status is 0.
judge() {
    run_judged "$@"
    count "$1"
}

# run_judged NAME SECONDS COMMAND... - as run_suite.
run_judged() {
    run_suite "$@"
    if [ "$status" -eq 0 ]; then
        echo "1 passed, 0 failed" >>"$logs/$1.log"
    else
        echo "0 passed, 1 failed" >>"$logs/$1.log"
    fi
}

# What only computes runs behind the suites, with what they leave of the processor while their tests
# wait (a quarter of it): builds before they are asked for, and analyses. At the scheduler's idle class
# it takes nothing from a test.
ahead=
behind=

# run_behind COMMAND [KIND...] - build the kinds one after the other, then run the shell's COMMAND. Ended
# with this script.
run_behind() {
    command_behind=$1
    shift
    ahead="$*"
    mkdir -p "$logs"
    for kind in "$@"; do rm -f "$logs/ahead-$kind"; done
    (
        chrt -i -p 0 "$(exec sh -c 'echo "$PPID"')" 2>/dev/null || true # this subshell
        for kind_ahead in "$@"; do
            build "$kind_ahead" >"$logs/ahead-$kind_ahead.log" 2>&1 || true # told when it is asked for
            : >"$logs/ahead-$kind_ahead"
        done
        "$command_behind"
    ) &
    behind=$!
    trap 'kill "$behind" 2>/dev/null || true' EXIT
    trap 'exit 130' INT TERM
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

# Runs of a whole store take milliseconds each, in slow builds many times that: they are made with gcc,
# with its AddressSanitizer, and at worker level.
not_stores="--skip sim/store_jobs --skip sim/store_outbox --skip sim/server_api_planted"

# A store writes by threads of its own, whatever the backend: its tests run on io_uring with gcc and
# with one ThreadSanitizer, and not again where only stacks or the number of workers differ.
not_durable="--skip unit/store --skip scenario/jobs* --skip scenario/outbox*"

# tests_uring KIND SUITE ... - the same on io_uring, if that works here.
tests_uring() {
    if WEIR_TEST_BACKEND=io_uring "build/$1/tests/weir-tests" \
        file_calls_that_the_kernel_has_not_seen_can_be_taken_back | grep -q "^1 passed"; then
        backend=io_uring
        durable=$not_durable
        case $2 in gcc-uring-* | tsan-gcc-ordered-uring) durable= ;; esac
        # shellcheck disable=SC2086 # several words
        tests "$@" $not_simulated $durable
        backend=epoll
    else
        echo "$2: left out, since io_uring does not work here"
    fi
}

# sim_runs SUITE SECONDS RUNS - the tests of tests/sim at task level, until there were so many
# simulated runs; says how many.
sim_runs() {
    suite "$1" "$2" tools/sim-runs build/release/tests/weir-tests "$3" "$jobs" "$logs/sim-runs.count"
    grep '^sim: ' "$logs/$1.log" | tail -n 1 || true
}

# run_covered - the tests that coverage counts, from zero.
run_covered() {
    find build/coverage -name '*.gcda' -delete
    # shellcheck disable=SC2086
    tests coverage coverage-2 800 2 $not_stores
}

test_default() {
    need $packages_build $packages_test
    if built release; then
        run_behind true asan-clang
        tests release gcc-2 480 2 --skip sim # sim-runs has those
        suite compile 120 tests/compile/run build/release/libweir.a
        suite examples 120 tools/examples build/release/examples
        suite corpus 120 tests/fuzz/run replay build/release
        suite e2e 400 tests/e2e/run build/release
        suite crash-server 90 tests/crash/server build/release --kill 8
        judge reference 60 tools/reference --check --library build/release/libweir.so
        sim_runs sim-runs 400 2000000
    fi
    if built asan-clang; then
        # All of it, with the server, runs with gcc's in --rest.
        # shellcheck disable=SC2086
        tests asan-clang asan-clang 600 2 $not_simulated $not_durable
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

# test_aarch64 - the unit tests under an emulator, which is slower, and knows fewer system calls:
# docs/platforms.md.
test_aarch64() {
    built aarch64 || return 0
    emulator="$(command -v qemu-aarch64) -L /usr/aarch64-linux-gnu"
    # shellcheck disable=SC2086 # the emulator with its options
    suite aarch64 800 env WEIR_TEST_WORKERS=2 WEIR_TEST_SLOW=4 \
        WEIR_TEST_EMULATOR="$emulator" $emulator build/aarch64/tests/weir-tests -j "$tests_at_once" unit
    # shellcheck disable=SC2086
    suite aarch64-check 240 tools/aarch64-check build/aarch64 $emulator
}

# test_musl - all tests in one static program, and the examples: docs/platforms.md.
test_musl() {
    built musl || return 0
    # shellcheck disable=SC2086
    tests musl musl 600 2 $not_stores
    if built release; then
        suite static 240 tools/static-check build/musl build/release
    fi
}

# What runs behind the suites of test_rest, in the order in which these ask for it: builds, the
# packages, analyses.
behind_rest() {
    find_llhttp
    run_judged package-build 1800 env WEIR_LLHTTP="${llhttp_option#-Dllhttp=}" tools/package build/package
    run_checks --brief src testing examples # tests, and longer paths, are for ./do check
}
kinds_rest="asan-gcc sim clang tsan-gcc-ordered tsan-clang-strict aarch64 musl valgrind fuzz"

# Between them the suites have both compilers, both sanitizers, both modes of ThreadSanitizer, both
# backends, and one and two workers, but not every product of these: that takes longer than CI has.
test_rest() {
    need $packages_build $packages_test $packages_check $packages_debug $packages_aarch64 \
        $packages_musl $packages_disks $packages_graph $packages_package $packages_machine
    need_promtool # without it the tests are skipped, and a suite that ran nothing has failed
    built release || return 0
    # shellcheck disable=SC2086 # several words
    rm -f "$logs/package-build.end"
    run_behind behind_rest $kinds_rest
    rest_release
    if built asan-gcc; then
        # asan-clang of the default tests has the others on epoll.
        tests asan-gcc asan-gcc 800 2 sim unit/sim unit/engine unit/store unit/server unit/cli \
            unit/proto 'scenario/jobs*' 'scenario/outbox*'
        tests_uring asan-gcc asan-gcc-uring 800 2 unit/rt unit/io unit/flow unit/watch scenario
    fi
    # At worker level: simulations with several workers, the bugs that are planted in that build, and
    # the tests of what its atomics and locks are in.
    if built sim; then
        tests sim sim-build 600 2 sim unit/sim unit/base unit/rt unit/flow
    fi
    if built clang; then
        # shellcheck disable=SC2086
        tests clang clang-2 600 2 $not_simulated
    fi
    # gcc's has an eye on the library too; clang's on what uses it, and on the long tests, since its
    # fibers need little memory.
    if built tsan-gcc-ordered; then
        # A simulation is one thread, of which it learns little.
        # shellcheck disable=SC2086
        tests tsan-gcc-ordered tsan-gcc-ordered 1000 2 $not_simulated
        tests_uring tsan-gcc-ordered tsan-gcc-ordered-uring 1000 2 unit/rt unit/io unit/flow unit/watch \
            unit/store scenario
        suite tsan-gcc-ordered-planted 120 build/tsan-gcc-ordered/tests/weir-planted
    fi
    if built tsan-clang-strict; then
        # shellcheck disable=SC2086
        tests tsan-clang-strict tsan-clang-strict 1000 2 $not_simulated $not_durable
        suite tsan-clang-strict-planted 120 build/tsan-clang-strict/tests/weir-planted
        # shellcheck disable=SC2086
        tests tsan-clang-strict tsan-clang-strict-long 600 2 --only-long $not_simulated $not_durable
    fi
    test_aarch64
    test_musl
    debuggers
    if built fuzz; then
        suite fuzz 400 tests/fuzz/run fuzz build/fuzz 12
    fi
    test_package
    wait "$soak" || true
    count soak
    wait "$behind" || true
    count_checks
}

# rest_release - of test_rest, what needs the release only.
rest_release() {
    # Stacks with guards by mprotect.
    # shellcheck disable=SC2086
    suite masked 600 env WEIR_TEST_MASK=guard WEIR_TEST_WORKERS=2 \
        build/release/tests/weir-tests -j "$tests_at_once" $not_simulated $not_durable
    # shellcheck disable=SC2086
    tests release gcc-1 480 1 $not_simulated
    tests_uring release gcc-uring-2 480 2
    tests release stores 480 2 "sim/store_jobs*" "sim/store_outbox*" "sim/server_api*"
    # Ten minutes of load on one core, beside the others; counted at the end.
    run_suite soak 720 tests/e2e/soak build/release --seconds 600 &
    soak=$!
    sim_runs sim-runs-long 900 20000000
    tests release long 900 2 --only-long
    tests_uring release long-uring 900 2 --only-long
    suite install 120 tools/install-check build/release
    if command -v systemd-analyze >/dev/null 2>&1; then
        judge unit-exposure 60 systemd-analyze security --offline=true --threshold=15 \
            packaging/systemd/weir.service
    fi
    # Programs that nobody here wrote; those that cannot be had are skipped with a notice.
    try_install $packages_clients || echo "do: going on without: $lacking" >&2
    suite clients 300 tests/e2e/clients build/release
    suite connections 200 tests/e2e/connections build/release
    suite promtool 60 build/release/tests/weir-tests promtool_finds_nothing_wrong_with_the_metrics
    suite alerts 180 tests/alerts/run build/release
    # Kills; and power cuts, where file systems can be mounted.
    suite crash-server-long 400 tests/crash/server build/release --kill 100
    if tests/crash/run --possible; then
        suite crash 600 tests/crash/run build/release 300
        suite crash-server-power 400 tests/crash/server build/release --cut ext4 30 --cut xfs 30
    fi
    suite graphviz 60 build/release/tests/weir-tests dot_draws_the_graph
}

# test_package - of the packages that are built behind: look at them, install them on a machine made of namespaces.
test_package() {
    await "$logs/package-build.end"
    count package-build
    suite package 600 tests/package/run build/package
}

# debuggers - the gdb script on builds of both compilers, and the unit tests under valgrind.
debuggers() {
    if built release && built clang; then
        suite gdb 600 tests/gdb/run build/release build/clang
    fi
    # A build of its own: build/release may be older than valgrind's header.
    if built valgrind; then
        # Engine, store and simulator are left to AddressSanitizer, which is quicker.
        suite valgrind 900 tests/valgrind/run build/valgrind unit/base unit/rt unit/io unit/flow \
            unit/watch unit/policy unit/harness unit/proto
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

check_names="format clang-tidy cppcheck analyzer thread-safety man-pages tidy"

# run_checks [--brief] [FOLDER...] - clang-tidy, which takes most of the time, only below these.
run_checks() {
    depth=
    if [ "${1-}" = "--brief" ]; then
        depth=$1
        shift
    fi
    run_judged format 900 tools/analyse format
    # shellcheck disable=SC2086 # a word or none
    run_judged clang-tidy 3000 tools/analyse clang-tidy $depth build/clang "$@"
    run_judged cppcheck 900 tools/analyse cppcheck
    run_judged analyzer 1800 tools/analyse analyzer
    run_judged thread-safety 900 tools/analyse thread-safety
    run_judged man-pages 120 tools/reference --lint
    run_judged tidy 120 tools/tidy
}

count_checks() {
    for name in $check_names; do count "$name"; done
}

command_check() {
    [ $# -eq 0 ] || die 2 "check takes no argument"
    need $packages_build $packages_test $packages_check
    built clang # clang-tidy wants to know how each file is compiled
    run_checks
    count_checks
    finish
}

# ---- the other commands -----------------------------------------------------

# run - the server with a demo workload; or the search service of the examples.
command_run() {
    need $packages_build
    build release
    if [ "${1-}" = search-service ]; then
        shift
        exec build/release/examples/search-service --demo "$@"
    fi
    [ -x build/release/programs/weir ] ||
        die 3 "weir was not built: it needs libssl-dev, zlib1g-dev, libinih-dev and node-llhttp"
    PATH=$root/build/release/programs:$PATH
    export PATH
    exec build/release/programs/weir serve --demo "$@"
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
    case ${1-server} in server | -*) find_servers ;; esac
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

command_package() {
    [ $# -eq 0 ] || die 2 "package takes no argument"
    need $packages_build $packages_package
    find_llhttp
    mkdir -p "$logs"
    # Of node-llhttp the sources are enough.
    WEIR_LLHTTP=${llhttp_option#-Dllhttp=} tools/package build/package >"$logs/package-build.log" 2>&1 || {
        tail -n 30 "$logs/package-build.log" >&2
        die 1 "the packages were not built (all of it: $logs/package-build.log)"
    }
    ls build/package/*.deb
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
run | test | bench | check | reference | coverage | format | package | build) "command_$command" "$@" ;;
help | --help | -h) help ;;
*) die 2 "unknown command '$command' (./do help lists them)" ;;
esac
