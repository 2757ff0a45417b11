// Orders as text: read from CSV with streams, hashed, packed with gzip, and put together again.
'use strict';
const crypto = require('crypto');
const zlib = require('zlib');
const { promisify } = require('util');
let seed = 3;
const random = (limit) => (seed = (Math.imul(seed, 1103515245) + 12345) >>> 0) % limit;
const pack = promisify(zlib.gzip);
const unpack = promisify(zlib.gunzip);

async function main(count) {
    const kept = [];
    let total = 0;
    for (let first = 0; first < count; first += 500) {
        const lines = Array.from({ length: 500 }, (_, place) =>
            `${first + place},customer ${random(500)},${random(90000)},${'x'.repeat(random(80))}`);
        const packed = await Promise.all([1, 3, 5].map((level) => pack(lines.join('\n'), { level })));
        kept.push(...packed);
        if (kept.length > 200) {
            const old = kept.splice(0, 60);
            const texts = await Promise.all(old.map((each) => unpack(each)));
            for (const text of texts) {
                total += crypto.createHash('sha256').update(text).digest()[0];
            }
        }
    }
    console.log(total, kept.length);
}

main(Number(process.argv[2]));
