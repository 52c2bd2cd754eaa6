package main

import (
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// The group `flow`: channels, select, mutexes, a pool of goroutines.

const (
	channelCapacity = 128
	// jobSteps are steps of the generator: a job of about 1 µs.
	jobSteps    = 700
	poolCallers = 64
	poolThreads = 2
	randomSeed  = 88172645463325252
)

func channelMeasured(n, pairs int) (time.Duration, int) {
	items := make(chan uint64, channelCapacity)
	each := n / pairs
	var group sync.WaitGroup
	begin := time.Now()
	for i := 0; i < pairs; i++ {
		group.Add(2)
		go func() {
			for k := 0; k < each; k++ {
				items <- uint64(k)
			}
			group.Done()
		}()
		go func() {
			for k := 0; k < each; k++ {
				<-items
			}
			group.Done()
		}()
	}
	group.Wait()
	return time.Since(begin), each * pairs
}

func pingPong(n int) time.Duration {
	there, back := make(chan uint64), make(chan uint64)
	var group sync.WaitGroup
	group.Add(2)
	begin := time.Now()
	go func() {
		for i := 0; i < n; i++ {
			there <- uint64(i)
			<-back
		}
		group.Done()
	}()
	go func() {
		for i := 0; i < n; i++ {
			back <- <-there
		}
		group.Done()
	}()
	group.Wait()
	return time.Since(begin)
}

func selectMeasured(n, capacity int) (time.Duration, int) {
	var items [4]chan uint64
	var group sync.WaitGroup
	each := n / 4
	begin := time.Now()
	for i := range items {
		items[i] = make(chan uint64, capacity)
		group.Add(1)
		go func(to chan uint64) {
			for k := 0; k < each; k++ {
				to <- uint64(k)
			}
			group.Done()
		}(items[i])
	}
	group.Add(1)
	go func() {
		for k := 0; k < each*4; k++ {
			select {
			case <-items[0]:
			case <-items[1]:
			case <-items[2]:
			case <-items[3]:
			}
		}
		group.Done()
	}()
	group.Wait()
	return time.Since(begin), each * 4
}

func mutexMeasured(n, tasks int, yields bool) (time.Duration, int) {
	var mutex sync.Mutex
	var group sync.WaitGroup
	each := n / tasks
	begin := time.Now()
	for i := 0; i < tasks; i++ {
		group.Add(1)
		go func() {
			for k := 0; k < each; k++ {
				mutex.Lock()
				if yields {
					runtime.Gosched()
				}
				mutex.Unlock()
			}
			group.Done()
		}()
	}
	group.Wait()
	return time.Since(begin), each * tasks
}

//go:noinline
func runJob(steps int) uint64 {
	state := random(randomSeed)
	for i := 0; i < steps; i++ {
		state.next()
	}
	return uint64(state)
}

func processorTime() time.Duration {
	const clockProcess = 2 // CLOCK_PROCESS_CPUTIME_ID
	var spent syscall.Timespec
	_, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockProcess,
		uintptr(unsafe.Pointer(&spent)), 0)
	if failed != 0 {
		panic(failed)
	}
	return time.Duration(spent.Nano())
}

var jobResult uint64

func jobTime() time.Duration {
	const rounds, jobs = 20, 20000
	best := time.Hour
	for round := 0; round < rounds; round++ {
		begin := processorTime()
		for i := 0; i < jobs; i++ {
			jobResult += runJob(jobSteps)
		}
		if each := processorTime() - begin; each < best {
			best = each
		}
	}
	return best / jobs
}

type job struct {
	steps  int
	result uint64
	done   chan struct{}
}

// poolMeasured is the pool that a Go program would write: goroutines that
// receive from a channel. What it returns is the processor time beyond the jobs'.
func poolMeasured(n int) (time.Duration, int) {
	jobs := make(chan *job, poolCallers)
	var callers, workers sync.WaitGroup
	each := n / poolCallers
	alone := jobTime()
	begin := processorTime()
	for i := 0; i < poolThreads; i++ {
		workers.Add(1)
		go func() {
			for work := range jobs {
				work.result = runJob(work.steps)
				work.done <- struct{}{}
			}
			workers.Done()
		}()
	}
	for i := 0; i < poolCallers; i++ {
		callers.Add(1)
		go func() {
			work := &job{steps: jobSteps, done: make(chan struct{}, 1)}
			for k := 0; k < each; k++ {
				jobs <- work
				<-work.done
			}
			callers.Done()
		}()
	}
	callers.Wait()
	close(jobs)
	workers.Wait()
	total := each * poolCallers
	return processorTime() - begin - time.Duration(total)*alone, total
}

// runFlow runs a workload of the group; ok says whether it is one.
func runFlow(b *bench) (elapsed time.Duration, ops int, ok bool) {
	ops = b.n
	switch b.workload {
	case "ping_pong":
		elapsed = pingPong(b.n)
	case "channel_1_1":
		elapsed, ops = channelMeasured(b.n, 1)
	case "channel_4_4":
		elapsed, ops = channelMeasured(b.n, 4)
	case "select_4_0":
		elapsed, ops = selectMeasured(b.n, 0)
	case "select_4_128":
		elapsed, ops = selectMeasured(b.n, channelCapacity)
	case "mutex":
		elapsed, ops = mutexMeasured(b.n, 1, false)
	case "mutex_1000":
		elapsed, ops = mutexMeasured(b.n, yieldingMany, true)
	case "pool":
		elapsed, ops = poolMeasured(b.n)
	default:
		return 0, 0, false
	}
	return elapsed, ops, true
}
