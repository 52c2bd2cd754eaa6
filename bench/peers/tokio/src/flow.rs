//! The group `flow`: channels, select, mutexes, spawn_blocking, pipelines, a fan-out.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, Mutex, Semaphore};
use tokio::task::yield_now;

use crate::{Bench, Random, YIELDING_MANY};

const CAPACITY: usize = 128;
/// Steps of the generator: a job of about 1 µs.
const JOB_STEPS: usize = 700;
const POOL_CALLERS: usize = 64;
const POOL_THREADS: usize = 2;
const RANDOM_SEED: u64 = 88172645463325252;
/// Those of one input of the fan-out, about 20 µs.
const FAN_STEPS: usize = 14000;
const FAN_IN_FLIGHT: usize = 8;

async fn channel_1_1(n: usize) -> (Duration, usize) {
    let (tx, mut rx) = mpsc::channel::<u64>(CAPACITY);
    let begin = Instant::now();
    let sender = tokio::spawn(async move {
        for i in 0..n {
            tx.send(i as u64).await.expect("send");
        }
    });
    let receiver = tokio::spawn(async move { while rx.recv().await.is_some() {} });
    sender.await.expect("sender");
    receiver.await.expect("receiver");
    (begin.elapsed(), n)
}

/// tokio's channels have one receiver; async-channel is what is used with it for many.
async fn channel_4_4(n: usize) -> (Duration, usize) {
    let (tx, rx) = async_channel::bounded::<u64>(CAPACITY);
    let each = n / 4;
    let mut tasks = Vec::new();
    let begin = Instant::now();
    for _ in 0..4 {
        let (tx, rx) = (tx.clone(), rx.clone());
        tasks.push(tokio::spawn(async move {
            for i in 0..each {
                tx.send(i as u64).await.expect("send");
            }
        }));
        tasks.push(tokio::spawn(async move {
            for _ in 0..each {
                rx.recv().await.expect("receive");
            }
        }));
    }
    for task in tasks {
        task.await.expect("a task failed");
    }
    (begin.elapsed(), each * 4)
}

/// tokio has no rendezvous: a channel of one is the nearest.
async fn ping_pong(n: usize) -> (Duration, usize) {
    let (there_tx, mut there_rx) = mpsc::channel::<u64>(1);
    let (back_tx, mut back_rx) = mpsc::channel::<u64>(1);
    let begin = Instant::now();
    let ping = tokio::spawn(async move {
        for i in 0..n {
            there_tx.send(i as u64).await.expect("send");
            back_rx.recv().await.expect("receive");
        }
    });
    let pong = tokio::spawn(async move {
        while let Some(ball) = there_rx.recv().await {
            back_tx.send(ball).await.expect("send");
        }
    });
    ping.await.expect("ping");
    pong.await.expect("pong");
    (begin.elapsed(), n)
}

async fn select_4(n: usize, capacity: usize) -> (Duration, usize) {
    let each = n / 4;
    let mut receivers = Vec::new();
    let mut tasks = Vec::new();
    let begin = Instant::now();
    for _ in 0..4 {
        let (tx, rx) = mpsc::channel::<u64>(capacity);
        receivers.push(rx);
        tasks.push(tokio::spawn(async move {
            for i in 0..each {
                tx.send(i as u64).await.expect("send");
            }
        }));
    }
    tasks.push(tokio::spawn(async move {
        let [mut a, mut b, mut c, mut d]: [mpsc::Receiver<u64>; 4] =
            receivers.try_into().expect("four");
        for _ in 0..each * 4 {
            tokio::select! {
                Some(_) = a.recv() => {}
                Some(_) = b.recv() => {}
                Some(_) = c.recv() => {}
                Some(_) = d.recv() => {}
            }
        }
    }));
    for task in tasks {
        task.await.expect("a task failed");
    }
    (begin.elapsed(), each * 4)
}

async fn mutex(n: usize, tasks: usize, yields: bool) -> (Duration, usize) {
    let mutex = Arc::new(Mutex::new(()));
    let each = n / tasks;
    let mut handles = Vec::new();
    let begin = Instant::now();
    for _ in 0..tasks {
        let mutex = mutex.clone();
        handles.push(tokio::spawn(async move {
            for _ in 0..each {
                let _inside = mutex.lock().await;
                if yields {
                    yield_now().await;
                }
            }
        }));
    }
    for handle in handles {
        handle.await.expect("a task failed");
    }
    (begin.elapsed(), each * tasks)
}

#[inline(never)]
fn run_job(steps: usize) -> u64 {
    let mut random = Random(RANDOM_SEED);
    for _ in 0..steps {
        random.next();
    }
    random.0
}

/// The whole process's, from /proc: std has no call for it.
fn processor_time() -> Duration {
    let schedstat = |path: std::path::PathBuf| -> u64 {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let first = text.split_whitespace().next().unwrap_or("0");
        first.parse().unwrap_or(0)
    };
    let tasks = std::fs::read_dir("/proc/self/task").expect("read /proc/self/task");
    let total = tasks
        .map(|task| schedstat(task.expect("entry").path().join("schedstat")))
        .sum();
    Duration::from_nanos(total)
}

fn job_time() -> Duration {
    const ROUNDS: usize = 20;
    const JOBS: usize = 2000;
    let best = (0..ROUNDS)
        .map(|_| {
            let begin = processor_time();
            for _ in 0..JOBS {
                std::hint::black_box(run_job(std::hint::black_box(JOB_STEPS)));
            }
            processor_time() - begin
        })
        .min()
        .expect("rounds");
    best / JOBS as u32
}

/// Processor time of each job beyond the job itself. No thread ends meanwhile.
async fn pool(n: usize) -> (Duration, usize) {
    let each = n / POOL_CALLERS;
    let alone = job_time();
    let begin = processor_time();
    let mut callers = Vec::new();
    for _ in 0..POOL_CALLERS {
        callers.push(tokio::spawn(async move {
            for _ in 0..each {
                let job = tokio::task::spawn_blocking(|| run_job(std::hint::black_box(JOB_STEPS)));
                std::hint::black_box(job.await.expect("job"));
            }
        }));
    }
    for caller in callers {
        caller.await.expect("a task failed");
    }
    let total = each * POOL_CALLERS;
    let spent = processor_time() - begin;
    // The processor may have been slower before than it was in between.
    let alone = alone.min(job_time());
    (spent.saturating_sub(alone * total as u32), total)
}

/// The same by rayon: a scope for as many jobs as the pool has callers, on two threads.
fn pool_rayon(n: usize) -> (Duration, usize) {
    let threads = rayon_core::ThreadPoolBuilder::new()
        .num_threads(POOL_THREADS)
        .build()
        .expect("build the pool");
    let rounds = n / POOL_CALLERS;
    let alone = job_time();
    let begin = processor_time();
    for _ in 0..rounds {
        threads.scope(|scope| {
            for _ in 0..POOL_CALLERS {
                scope.spawn(|_| {
                    std::hint::black_box(run_job(std::hint::black_box(JOB_STEPS)));
                });
            }
        });
    }
    let total = rounds * POOL_CALLERS;
    let spent = processor_time() - begin;
    let alone = alone.min(job_time());
    (spent.saturating_sub(alone * total as u32), total)
}

type Items = mpsc::Receiver<u64>;

/// A task that passes on what it receives.
fn stage(mut from: Items) -> Items {
    let (tx, rx) = mpsc::channel::<u64>(CAPACITY);
    tokio::spawn(async move {
        while let Some(item) = from.recv().await {
            tx.send(item).await.expect("send");
        }
    });
    rx
}

/// The same by spawn_blocking, with as many items at a time as the pool has callers.
fn stage_blocking(mut from: Items) -> Items {
    let (tx, rx) = mpsc::channel::<u64>(CAPACITY);
    let permits = Arc::new(Semaphore::new(POOL_CALLERS));
    tokio::spawn(async move {
        while let Some(item) = from.recv().await {
            let permit = permits.clone().acquire_owned().await.expect("permit");
            let tx = tx.clone();
            tokio::task::spawn_blocking(move || {
                tx.blocking_send(item).expect("send");
                drop(permit);
            });
        }
    });
    rx
}

/// Streams n items through three empty stages.
async fn pipeline(n: usize, blocking: bool) -> (Duration, usize) {
    let (tx, first) = mpsc::channel::<u64>(CAPACITY);
    let second = stage(first);
    let third = if blocking {
        stage_blocking(second)
    } else {
        stage(second)
    };
    let mut last = stage(third);
    let begin = Instant::now();
    tokio::spawn(async move {
        for i in 0..n {
            tx.send(i as u64).await.expect("send");
        }
    });
    let sink = tokio::spawn(async move {
        let mut received = 0;
        while last.recv().await.is_some() {
            received += 1;
        }
        received
    });
    let received = sink.await.expect("sink");
    (begin.elapsed(), received)
}

#[inline(never)]
fn fan_run(seed: u64) -> u64 {
    let mut random = Random(seed);
    for _ in 0..FAN_STEPS {
        random.next();
    }
    random.0
}

/// Maps all inputs in FAN_IN_FLIGHT tasks, each of which takes the next one.
async fn fan_out(bench: &Bench) -> (Duration, usize) {
    let n = bench.n;
    let seeds: Arc<Vec<u64>> = Arc::new((0..n as u64).map(|i| RANDOM_SEED + i).collect());
    let results: Arc<Vec<AtomicU64>> = Arc::new((0..n).map(|_| AtomicU64::new(0)).collect());
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    let begin = Instant::now();
    for _ in 0..FAN_IN_FLIGHT {
        let (seeds, results, next) = (seeds.clone(), results.clone(), next.clone());
        tasks.push(tokio::spawn(async move {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= seeds.len() {
                    break;
                }
                results[index].store(fan_run(seeds[index]), Ordering::Relaxed);
            }
        }));
    }
    for task in tasks {
        task.await.expect("a task failed");
    }
    let elapsed = begin.elapsed();
    let sum = results.iter().fold(0u64, |sum, result| {
        sum.wrapping_add(result.load(Ordering::Relaxed))
    });
    bench.print_checksum(sum);
    (elapsed, n)
}

/// A workload of the group, or None.
pub async fn run(bench: &Bench) -> Option<(Duration, usize)> {
    let n = bench.n;
    Some(match bench.workload.as_str() {
        "ping_pong" => ping_pong(n).await,
        "channel_1_1" => channel_1_1(n).await,
        "channel_4_4" => channel_4_4(n).await,
        "select_4_0" => select_4(n, 1).await,
        "select_4_128" => select_4(n, CAPACITY).await,
        "mutex" => mutex(n, 1, false).await,
        "mutex_1000" => mutex(n, YIELDING_MANY, true).await,
        "pool" if bench.rayon => pool_rayon(n),
        "pool" => pool(n).await,
        "pipeline_item" => pipeline(n, false).await,
        "pipeline_pool" => pipeline(n, true).await,
        "fan_out" => fan_out(bench).await,
        _ => return None,
    })
}
