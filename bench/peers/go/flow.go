package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// The group `flow`: channels, select, mutexes, a pool of goroutines, pipelines, a fan-out.

const (
	channelCapacity = 128
	// jobSteps are steps of the generator: a job of about 1 µs.
	jobSteps    = 700
	poolCallers = 64
	poolThreads = 2
	randomSeed  = 88172645463325252
	// fanSteps are those of one input of the fan-out, about 20 µs.
	fanSteps    = 14000
	fanInFlight = 8
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
	spent := processorTime() - begin
	// The processor may have been slower before than it was in between.
	if after := jobTime(); after < alone {
		alone = after
	}
	return spent - time.Duration(total)*alone, total
}

// stage passes on what it receives, in as many goroutines as are asked for; the
// last one that ends closes what comes after it.
func stage(from <-chan uint64, goroutines int) <-chan uint64 {
	to := make(chan uint64, channelCapacity)
	var left atomic.Int32
	left.Store(int32(goroutines))
	for i := 0; i < goroutines; i++ {
		go func() {
			for item := range from {
				to <- item
			}
			if left.Add(-1) == 0 {
				close(to)
			}
		}()
	}
	return to
}

// pipelineMeasured streams n items through three empty stages, the second of
// which has as many goroutines as asked for.
func pipelineMeasured(n, goroutines int) (time.Duration, int) {
	first := make(chan uint64, channelCapacity)
	last := stage(stage(stage(first, 1), goroutines), 1)
	begin := time.Now()
	go func() {
		for i := 0; i < n; i++ {
			first <- uint64(i)
		}
		close(first)
	}()
	received := 0
	for range last {
		received++
	}
	return time.Since(begin), received
}

//go:noinline
func fanRun(seed uint64) uint64 {
	state := random(seed)
	for i := 0; i < fanSteps; i++ {
		state.next()
	}
	return uint64(state)
}

// fanOut maps all inputs in fanInFlight goroutines, each of which takes the next one.
func fanOut(b *bench) (time.Duration, int) {
	seeds, results := make([]uint64, b.n), make([]uint64, b.n)
	for i := range seeds {
		seeds[i] = randomSeed + uint64(i)
	}
	var next atomic.Int64
	var group sync.WaitGroup
	begin := time.Now()
	for i := 0; i < fanInFlight; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				index := int(next.Add(1)) - 1
				if index >= len(seeds) {
					return
				}
				results[index] = fanRun(seeds[index])
			}
		}()
	}
	group.Wait()
	elapsed := time.Since(begin)
	sum := uint64(0)
	for _, result := range results {
		sum += result
	}
	b.printChecksum(sum)
	return elapsed, b.n
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
	case "pipeline_item":
		elapsed, ops = pipelineMeasured(b.n, 1)
	case "pipeline_pool":
		elapsed, ops = pipelineMeasured(b.n, poolThreads)
	case "fan_out":
		elapsed, ops = fanOut(b)
	default:
		return 0, 0, false
	}
	return elapsed, ops, true
}
