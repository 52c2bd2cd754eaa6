//! tokio's side of `bench runtime`; that of `bench echo` is in echo.rs.
//!
//! Usage: `bench-tokio WORKLOAD [N]`; prints one line of JSON for each metric.
//! BENCH_WORKERS=1 (the default) runs the current_thread flavour, anything
//! larger the multi-thread flavour with that many workers. BENCH_POOL=rayon makes the
//! workload `pool` one of rayon, and the peer calls itself that.

mod echo;

mod flow;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::{coop::unconstrained, yield_now, JoinHandle};
use tokio::time::{sleep_until, Instant as Deadline, Sleep};

/// Tasks alive at a time in the spawn workloads.
const ALIVE: usize = 10_000;
const YIELDING_MANY: usize = 1_000;
/// Deadlines lie between these, so that no timer fires while it is measured.
const DEADLINE_MS_MIN: u64 = 60_000;
const DEADLINE_MS_SPREAD: u64 = 540_000;

struct Bench {
    workload: String,
    workers: usize,
    n: usize,
    rayon: bool,
}

impl Bench {
    fn peer(&self) -> String {
        if self.rayon {
            "rayon".into()
        } else if self.workers == 1 {
            "tokio".into()
        } else {
            format!("tokio{}", self.workers)
        }
    }

    fn print_ns(&self, workload: &str, elapsed: Duration, ops: usize) {
        println!(
            "{{\"workload\":\"{}\",\"peer\":\"{}\",\"n\":{},\"ns_per_op\":{:.3}}}",
            workload,
            self.peer(),
            ops,
            elapsed.as_nanos() as f64 / ops as f64
        );
    }

    /// What was computed: the runner compares it with the other peers'.
    fn print_checksum(&self, sum: u64) {
        println!(
            "{{\"workload\":\"{}\",\"peer\":\"{}\",\"n\":{},\"checksum\":\"{:016x}\"}}",
            self.workload,
            self.peer(),
            self.n,
            sum
        );
    }

    fn print_bytes(&self, workload: &str, bytes: i64, tasks: usize) {
        println!(
            "{{\"workload\":\"{}\",\"peer\":\"{}\",\"n\":{},\"bytes_per_task\":{:.1}}}",
            workload,
            self.peer(),
            tasks,
            bytes as f64 / tasks as f64
        );
    }
}

/// The same generator as in every peer, so that all see the same deadlines and
/// the same order of victims.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn deadline(&mut self, base: Deadline) -> Deadline {
        base + Duration::from_millis(DEADLINE_MS_MIN + self.next() % DEADLINE_MS_SPREAD)
    }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("read /proc/self/status");
    let field = |name: &str| -> u64 {
        let line = status
            .lines()
            .find(|line| line.starts_with(name))
            .expect("field in status");
        line.split_whitespace()
            .nth(1)
            .expect("value")
            .parse::<u64>()
            .expect("number")
            * 1024
    };
    field("VmRSS:") + field("VmPTE:")
}

/// Spawns ALIVE tasks, joins them by their handles, and so on until n are done.
/// Handles in a reused vector measured a third faster than JoinSet.
async fn spawn_rounds(n: usize, yields: bool) {
    let mut handles: Vec<JoinHandle<()>> = Vec::with_capacity(ALIVE);
    let mut left = n;
    while left > 0 {
        let batch = left.min(ALIVE);
        for _ in 0..batch {
            handles.push(if yields {
                tokio::spawn(async { yield_now().await })
            } else {
                tokio::spawn(async {})
            });
        }
        for handle in handles.drain(..) {
            handle.await.expect("a task failed");
        }
        left -= batch;
    }
}

async fn spawn_measured(n: usize, yields: bool) -> Duration {
    spawn_rounds(ALIVE, yields).await;
    let begin = Instant::now();
    spawn_rounds(n, yields).await;
    begin.elapsed()
}

async fn yield_measured(tasks: usize, n: usize) -> (Duration, usize) {
    let each = (n / tasks).max(1);
    let begin = Instant::now();
    let handles: Vec<_> = (0..tasks)
        .map(|_| {
            tokio::spawn(async move {
                for _ in 0..each {
                    yield_now().await;
                }
            })
        })
        .collect();
    for handle in handles {
        handle.await.expect("a task failed");
    }
    (begin.elapsed(), tasks * each)
}

/// A Sleep enters the wheel at its first poll. `timers` never reallocates and
/// its elements are only ever replaced in place, so pinning them is sound, and
/// saves tokio the allocation that a boxed timer would cost.
fn poll_once(timer: &mut Sleep) {
    let mut context = Context::from_waker(Waker::noop());
    let pinned = unsafe { Pin::new_unchecked(timer) };
    assert!(pinned.poll(&mut context).is_pending());
}

/// Lets the driver see one deadline that is earlier than all others: else it
/// knows of none and each insert would write to its eventfd to wake it.
async fn prime_driver() -> JoinHandle<()> {
    let handle = tokio::spawn(tokio::time::sleep(Duration::from_millis(
        DEADLINE_MS_MIN / 2,
    )));
    for _ in 0..256 {
        yield_now().await;
    }
    handle
}

/// Inserts n timers, and with churn > 0 measures that many pairs of cancel and
/// insert instead, in order or at random. With `touch` their memory is resident before the clock runs.
async fn timers_measured(n: usize, touch: bool, churn: usize, at_random: bool) -> Duration {
    let early = prime_driver().await;
    let mut random = Random(88_172_645_463_325_252);
    let base = Deadline::now();
    let mut timers: Vec<Sleep> = Vec::with_capacity(n);
    if touch {
        // Spare capacity: nothing reads it before it is written again.
        unsafe { std::ptr::write_bytes(timers.as_mut_ptr(), 1, n) };
    }

    let begin = Instant::now();
    for i in 0..n {
        timers.push(sleep_until(random.deadline(base)));
        poll_once(&mut timers[i]);
    }
    let mut elapsed = begin.elapsed();

    if churn > 0 {
        let begin = Instant::now();
        for i in 0..churn {
            let victim = if at_random {
                (random.next() % n as u64) as usize
            } else {
                i
            };
            // Dropping the old value takes it out of the wheel.
            timers[victim] = sleep_until(random.deadline(base));
            poll_once(&mut timers[victim]);
        }
        elapsed = begin.elapsed();
    }
    early.abort();
    elapsed
}

static PARKED: AtomicUsize = AtomicUsize::new(0);
static DONE: Notify = Notify::const_new();

async fn parked_million(bench: &Bench) {
    let n = bench.n;
    let before = resident_bytes();
    let begin = Instant::now();
    let mut handles = Vec::with_capacity(n);
    for _ in 0..n {
        handles.push(tokio::spawn(async {
            let done = DONE.notified();
            PARKED.fetch_add(1, Ordering::Relaxed);
            done.await;
        }));
    }
    while PARKED.load(Ordering::Relaxed) < n {
        yield_now().await;
    }
    yield_now().await;
    bench.print_ns("parked_create", begin.elapsed(), n);
    bench.print_bytes("parked_bytes", resident_bytes() as i64 - before as i64, n);

    let begin = Instant::now();
    DONE.notify_waiters();
    for handle in handles {
        handle.await.expect("a task failed");
    }
    bench.print_ns("parked_cancel", begin.elapsed(), n);
}

async fn run(bench: Bench) -> Result<(), String> {
    let n = bench.n;
    let name = bench.workload.as_str();
    let (elapsed, ops) = match name {
        "spawn_join" => (spawn_measured(n, false).await, n),
        "spawn_yield_join" => (spawn_measured(n, true).await, n),
        "yield_1000" => yield_measured(YIELDING_MANY, n).await,
        "yield_2" => yield_measured(2, n).await,
        "timer_insert" => (timers_measured(n, true, 0, false).await, n),
        "timer_new" => (timers_measured(n, false, 0, false).await, n),
        "timer_churn_in_order" => (timers_measured(n, true, n, false).await, n),
        "timer_churn" => (timers_measured(n, true, n, true).await, n),
        "parked_million" => {
            parked_million(&bench).await;
            return Ok(());
        }
        "serve_echo" => return echo::serve().await.map_err(|error| error.to_string()),
        _ => match flow::run(&bench).await {
            Some(measured) => measured,
            None => return Err(format!("no workload '{name}'")),
        },
    };
    bench.print_ns(name, elapsed, ops);
    Ok(())
}

fn runtime(workers: usize) -> Runtime {
    let mut builder = if workers == 1 {
        Builder::new_current_thread()
    } else {
        Builder::new_multi_thread()
    };
    if workers > 1 {
        builder.worker_threads(workers);
    }
    builder.enable_all().build().expect("build the runtime")
}

fn parse() -> Result<Bench, String> {
    let mut args = std::env::args().skip(1);
    let workload = args.next().ok_or("usage: bench-tokio WORKLOAD [N]")?;
    let n = match args.next() {
        Some(text) => text
            .parse()
            .map_err(|_| format!("'{text}' is not a count"))?,
        None => match workload.as_str() {
            "yield_1000" | "yield_2" => 10_000_000,
            _ => 1_000_000,
        },
    };
    if n == 0 {
        return Err("N must be at least 1".into());
    }
    let workers = match std::env::var("BENCH_WORKERS") {
        Ok(text) => text
            .parse()
            .map_err(|_| format!("BENCH_WORKERS='{text}' is not a count"))?,
        Err(_) => 1,
    };
    if workers == 0 {
        return Err("BENCH_WORKERS must be at least 1".into());
    }
    Ok(Bench {
        workload,
        workers,
        n,
        rayon: std::env::var("BENCH_POOL").is_ok_and(|name| name == "rayon"),
    })
}

fn main() -> std::process::ExitCode {
    let result = parse().and_then(|bench| {
        let runtime = runtime(bench.workers);
        // As #[tokio::main] does it: the measuring code runs in block_on. On two
        // workers that measured faster than running it as a task. Unconstrained,
        // so that the cooperative budget cuts short no loop over timers or joins.
        runtime.block_on(unconstrained(run(bench)))
    });
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("bench-tokio: {sentence}");
            std::process::ExitCode::from(2)
        }
    }
}
