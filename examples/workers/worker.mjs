// worker.mjs - a worker in Node (18 or later), by plain HTTP.
//
//     WEIR_SERVER=http://127.0.0.1:7411 node examples/workers/worker.mjs [QUEUE]
const server = process.env.WEIR_SERVER ?? "http://127.0.0.1:7411";
const worker = `node-${process.pid}`;
const lease_ms = 30000;
const again_ms = 2000; // after a request that nobody has answered
const pause = () => new Promise((resolve) => setTimeout(resolve, again_ms));

async function ask(path, body) {
    const headers = {"content-type": "application/json"};
    if (process.env.WEIR_TOKEN) headers.authorization = `Bearer ${process.env.WEIR_TOKEN}`;
    const answer = await fetch(server + path, {
        method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(30000)});
    if (!answer.ok) {
        const error = new Error(`${answer.status} ${await answer.text()}`);
        error.final = answer.status < 500 && answer.status !== 429;
        throw error;
    }
    return answer.json();
}

// One that takes long looks at `cancelled.aborted` now and then, and gives up.
async function work(payload, cancelled) {
    return `hello ${payload}`;
}

async function run(job) {
    const {id, token} = job;
    const cancel = new AbortController();
    // Without it the lease runs out, and the job is given to another.
    const beat = setInterval(() => ask(`/v1/jobs/${id}/extend`, {token, worker, lease_ms})
        .then(({orders}) => orders.includes("cancelled") && cancel.abort())
        .catch((error) => console.error(`job ${id}: ${error.message}`)), lease_ms / 3);
    try {
        let result;
        try {
            result = await work(job.payload, cancel.signal);
        } catch (error) {
            await ask(`/v1/jobs/${id}/fail`,
                {token, error_class: error.name, error_message: error.message});
            return;
        }
        await ask(`/v1/jobs/${id}/ack`, {token, result});
    } catch (error) {
        console.error(`job ${id}: ${error.message}`);
    } finally {
        clearInterval(beat);
    }
}

const queue = process.argv[2] ?? "greet";
let orders = [];
while (!orders.includes("end")) {
    // One that is to be quiet is given no more jobs: it only asks whether it is to go on, or to end.
    if (orders.includes("quiet")) await pause();
    let answer;
    try {
        answer = await ask(`/v1/queues/${queue}/lease`, {worker, lease_ms, wait_ms: 20000});
    } catch (error) {
        console.error(`lease: ${error.message}`);
        if (error.final) process.exit(1);
        await pause(); // the server is being started again, perhaps
        continue;
    }
    ({orders} = answer);
    for (const job of answer.jobs) await run(job);
}
