// Parsed JSON, maps of buffers, and brotli, in the main thread.
'use strict';
const zlib = require('zlib');
let seed = 5;
const random = (limit) => (seed = (Math.imul(seed, 1103515245) + 12345) >>> 0) % limit;
const kept = new Map();
let total = 0;
for (let turn = 0; turn < Number(process.argv[2]); turn++) {
    const record = { turn, tags: Array.from({ length: random(40) }, () => `tag${random(500)}`) };
    const text = JSON.stringify(record).repeat(1 + random(30));
    kept.set(random(800), Buffer.from(text));
    if (turn % 200 === 0) {
        const all = Buffer.concat([...kept.values()]);
        const quality = { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 1 } };
        total += zlib.brotliDecompressSync(zlib.brotliCompressSync(all, quality)).length;
    }
}
console.log(total);
