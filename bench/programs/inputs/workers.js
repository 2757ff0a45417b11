// Worker threads that allocate outside the JavaScript heap: buffers, compression, shared memory.
'use strict';
const crypto = require('crypto');
const zlib = require('zlib');
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

function work(seed, turns) {
    const kept = new Map();
    let checksum = 0;
    for (let turn = 1; turn <= turns; turn++) {
        for (let i = 0; i < 40; i++) {
            seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
            const slot = (seed >>> 8) % 300;
            const before = kept.get(slot);
            if (before !== undefined) {
                checksum = (checksum + before[before.length >> 1] + before.length) >>> 0;
            }
            kept.set(slot, Buffer.allocUnsafeSlow(1 + ((seed >>> 12) % 9000)).fill(seed & 255));
        }
        if (turn % 20 === 0) {
            const all = Buffer.concat([...kept.keys()].sort((a, b) => a - b).map((k) => kept.get(k)));
            const packed = zlib.deflateSync(all, { level: 1 });
            const digest = crypto.createHash('sha256').update(zlib.inflateSync(packed)).digest();
            checksum = (checksum + digest.readUInt32LE(0)) >>> 0;
        }
    }
    return checksum;
}

if (isMainThread) {
    const turns = Number(process.argv[2]);
    const generations = Number(process.argv[3]);
    const shared = new SharedArrayBuffer(1 << 20);
    const start = (name) => new Promise((resolve, reject) => {
        const worker = new Worker(__filename, { workerData: { name, turns, shared } });
        worker.on('message', resolve);
        worker.on('error', reject);
    });
    (async () => {
        for (let generation = 0; generation < generations; generation++) {
            const names = [0, 1, 2, 3].map((index) => generation * 4 + index);
            for (const answer of await Promise.all(names.map(start))) {
                console.log(`worker ${answer.name} ${answer.checksum} ${answer.moved.length}`);
            }
        }
        console.log(`main ${work(99, turns)}`);
        console.log(`shared ${Atomics.load(new Int32Array(shared), 0)}`);
    })();
} else {
    const checksum = work(workerData.name + 1, workerData.turns);
    Atomics.add(new Int32Array(workerData.shared), 0, 1);
    const moved = new Uint8Array(3000000).fill(7);
    parentPort.postMessage({ name: workerData.name, checksum, moved }, [moved.buffer]);
}
