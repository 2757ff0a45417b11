// A server and its clients in one process: records are sent, kept for a while as they came, and asked for.
'use strict';
const http = require('http');
let seed = 11;
const random = (limit) => (seed = (Math.imul(seed, 1103515245) + 12345) >>> 0) % limit;
const records = new Map();
const agent = new http.Agent({ keepAlive: true, maxSockets: 16 });

const server = http.createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
        if (request.method === 'PUT') {
            records.set(request.url, Buffer.concat(parts));
            response.end();
        } else {
            response.end(records.get(request.url) || '');
        }
    });
});

const call = (method, path, body) => new Promise((resolve, reject) => {
    const options = { port: server.address().port, method, path, agent };
    const request = http.request(options, (response) => {
        let bytes = 0;
        response.on('data', (part) => { bytes += part.length; });
        response.on('end', () => resolve(bytes));
    });
    request.on('error', reject);
    request.end(body);
});

async function client(calls) {
    let total = 0;
    for (let turn = 0; turn < calls; turn++) {
        const path = `/${random(500)}`;
        const body = turn % 2 ? Buffer.alloc(1 + random(60000), 'record ') : undefined;
        total += await call(body ? 'PUT' : 'GET', path, body);
    }
    return total;
}

server.listen(0, '127.0.0.1', async () => {
    const calls = Number(process.argv[2]) / 16;
    await Promise.all(Array.from({ length: 16 }, () => client(calls)));
    console.log(records.size);
    agent.destroy();
    server.close();
});
