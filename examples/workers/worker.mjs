// worker.mjs - a worker in Node (18 or later), by plain HTTP.
//
//     WEIR_SERVER=http://127.0.0.1:7411 node examples/workers/worker.mjs [QUEUE]
const server = process.env.WEIR_SERVER ?? "http://127.0.0.1:7411";
const worker = `node-${process.pid}`;
const lease_ms = 30000;

async function ask(path, body) {
    const headers = {"content-type": "application/json"};
    if (process.env.WEIR_TOKEN) headers.authorization = `Bearer ${process.env.WEIR_TOKEN}`;
    const answer = await fetch(server + path, {
        method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(30000)});
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
    return answer.json();
}

async function work(payload) {
    return `hello ${payload}`;
}

async function run(job) {
    const {id, token} = job;
    // Without it the lease runs out, and the job is given to another.
    const beat = setInterval(() => ask(`/v1/jobs/${id}/extend`, {token, worker, lease_ms})
        .catch((error) => console.error(`job ${id}: ${error.message}`)), lease_ms / 3);
    try {
        let result;
        try {
            result = await work(job.payload);
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
for (;;) {
    const {jobs} = await ask(`/v1/queues/${queue}/lease`, {worker, lease_ms, wait_ms: 20000});
    for (const job of jobs) await run(job);
}
