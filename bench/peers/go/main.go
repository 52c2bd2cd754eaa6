// Go's side of `bench runtime`; that of `bench echo` is in echo.go.
//
// Usage: bench-go WORKLOAD [N]; prints one line of JSON for each metric.
// GOMAXPROCS decides how many threads run goroutines; with more than one the
// peer calls itself go2, go3 and so on.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// alive is how many tasks live at a time in the spawn workloads.
	alive        = 10_000
	yieldingMany = 1_000
	// Deadlines lie between these, so that no timer fires while it is measured.
	deadlineMsMin    = 60_000
	deadlineMsSpread = 540_000
)

type bench struct {
	workload string
	peer     string
	n        int
}

func (b *bench) printNs(workload string, elapsed time.Duration, ops int) {
	fmt.Printf("{\"workload\":%q,\"peer\":%q,\"n\":%d,\"ns_per_op\":%.3f}\n",
		workload, b.peer, ops, float64(elapsed.Nanoseconds())/float64(ops))
}

func (b *bench) printBytes(workload string, bytes, tasks int) {
	fmt.Printf("{\"workload\":%q,\"peer\":%q,\"n\":%d,\"bytes_per_task\":%.1f}\n",
		workload, b.peer, tasks, float64(bytes)/float64(tasks))
}

// printChecksum shows what was computed: the runner compares it with the other peers'.
func (b *bench) printChecksum(sum uint64) {
	fmt.Printf("{\"workload\":%q,\"peer\":%q,\"n\":%d,\"checksum\":\"%016x\"}\n",
		b.workload, b.peer, b.n, sum)
}

// random is the same generator as in every peer, so that all see the same
// deadlines and the same order of victims.
type random uint64

func (r *random) next() uint64 {
	x := uint64(*r)
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	*r = random(x)
	return x
}

func (r *random) delay() time.Duration {
	return time.Duration(deadlineMsMin+r.next()%deadlineMsSpread) * time.Millisecond
}

func residentBytes() (int, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	total := 0
	for _, name := range []string{"VmRSS:", "VmPTE:"} {
		_, rest, found := strings.Cut(string(status), name)
		if !found {
			return 0, fmt.Errorf("/proc/self/status has no %s", name)
		}
		kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			return 0, err
		}
		total += kilobytes * 1024
	}
	return total, nil
}

// spawnRounds spawns alive goroutines, joins them by a WaitGroup, and so on
// until n are done.
func spawnRounds(n int, body func(*sync.WaitGroup)) {
	var group sync.WaitGroup
	for left := n; left > 0; {
		batch := alive
		if left < batch {
			batch = left
		}
		group.Add(batch)
		for i := 0; i < batch; i++ {
			go body(&group)
		}
		group.Wait()
		left -= batch
	}
}

func returnAtOnce(group *sync.WaitGroup) {
	group.Done()
}

func yieldOnce(group *sync.WaitGroup) {
	runtime.Gosched()
	group.Done()
}

func spawnMeasured(n int, body func(*sync.WaitGroup)) time.Duration {
	spawnRounds(alive, body)
	runtime.GC()
	begin := time.Now()
	spawnRounds(n, body)
	return time.Since(begin)
}

func yieldMeasured(tasks, n int) (time.Duration, int) {
	each := n / tasks
	if each == 0 {
		each = 1
	}
	var group sync.WaitGroup
	group.Add(tasks)
	begin := time.Now()
	for i := 0; i < tasks; i++ {
		go func() {
			for j := 0; j < each; j++ {
				runtime.Gosched()
			}
			group.Done()
		}()
	}
	group.Wait()
	return time.Since(begin), tasks * each
}

func fired() {}

// timersMeasured inserts n timers, and with churn > 0 measures that many pairs
// of cancel and insert instead, in order or at random. A pair is Stop and Reset of the same timer,
// which saves Go the allocation that a second AfterFunc would cost.
func timersMeasured(n, churn int, atRandom bool) time.Duration {
	random := random(88172645463325252)
	timers := make([]*time.Timer, n)
	runtime.GC()
	begin := time.Now()
	for i := range timers {
		timers[i] = time.AfterFunc(random.delay(), fired)
	}
	elapsed := time.Since(begin)
	if churn > 0 {
		runtime.GC()
		begin = time.Now()
		for i := 0; i < churn; i++ {
			victim := uint64(i)
			if atRandom {
				victim = random.next() % uint64(n)
			}
			timer := timers[victim]
			timer.Stop()
			timer.Reset(random.delay())
		}
		elapsed = time.Since(begin)
	}
	runtime.KeepAlive(timers)
	return elapsed
}

func parkedMillion(b *bench) error {
	var parked atomic.Int64
	var group sync.WaitGroup
	done := make(chan struct{})
	runtime.GC()
	before, err := residentBytes()
	if err != nil {
		return err
	}

	begin := time.Now()
	group.Add(b.n)
	for i := 0; i < b.n; i++ {
		go func() {
			parked.Add(1)
			<-done
			group.Done()
		}()
	}
	for parked.Load() < int64(b.n) {
		runtime.Gosched()
	}
	runtime.Gosched()
	b.printNs("parked_create", time.Since(begin), b.n)

	after, err := residentBytes()
	if err != nil {
		return err
	}
	b.printBytes("parked_bytes", after-before, b.n)

	begin = time.Now()
	close(done)
	group.Wait()
	b.printNs("parked_cancel", time.Since(begin), b.n)
	return nil
}

func run(b *bench) error {
	var elapsed time.Duration
	ops := b.n
	switch b.workload {
	case "spawn_join":
		elapsed = spawnMeasured(b.n, returnAtOnce)
	case "spawn_yield_join":
		elapsed = spawnMeasured(b.n, yieldOnce)
	case "yield_1000":
		elapsed, ops = yieldMeasured(yieldingMany, b.n)
	case "yield_2":
		elapsed, ops = yieldMeasured(2, b.n)
	case "timer_insert", "timer_new":
		// One and the same: Go has no timer without an allocation.
		elapsed = timersMeasured(b.n, 0, false)
	case "timer_churn_in_order":
		elapsed = timersMeasured(b.n, b.n, false)
	case "timer_churn":
		elapsed = timersMeasured(b.n, b.n, true)
	case "parked_million":
		return parkedMillion(b)
	case "serve_echo":
		return serveEcho()
	default:
		var ok bool
		if elapsed, ops, ok = runFlow(b); !ok {
			return fmt.Errorf("no workload '%s'", b.workload)
		}
	}
	b.printNs(b.workload, elapsed, ops)
	return nil
}

func parse(args []string) (*bench, error) {
	if len(args) < 1 || len(args) > 2 {
		return nil, errors.New("usage: bench-go WORKLOAD [N]")
	}
	b := &bench{workload: args[0], peer: "go", n: 1_000_000}
	if strings.HasPrefix(b.workload, "yield_") {
		b.n = 10_000_000
	}
	if len(args) == 2 {
		n, err := strconv.Atoi(args[1])
		if err != nil || n < 1 {
			return nil, fmt.Errorf("'%s' is not a count of at least 1", args[1])
		}
		b.n = n
	}
	if workers := runtime.GOMAXPROCS(0); workers > 1 {
		b.peer += strconv.Itoa(workers)
	}
	return b, nil
}

func main() {
	b, err := parse(os.Args[1:])
	if err == nil {
		err = run(b)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-go: %v\n", err)
		os.Exit(2)
	}
}
