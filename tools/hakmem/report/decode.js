// The page's data: JSON in a script element, with columns of figures as deflated bytes in base64.
const DATA = JSON.parse(document.getElementById("data").textContent);

const TYPES = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array };

async function inflate(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// {name: [type, ...]} one behind the other, each with `count` figures, the widest first.
async function columns(of) {
  const bytes = await inflate(of.data);
  const found = {};
  let at = 0;
  for (const [name, type] of of.columns) {
    found[name] = new TYPES[type](bytes.buffer, at, of.count);
    at += found[name].byteLength;
  }
  return found;
}

function bytesText(count) {
  let value = count;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024 || unit === "GiB") {
      return unit === "B" ? `${count} B` : `${value.toFixed(1)} ${unit}`;
    }
    value /= 1024;
  }
  return "";
}

const hex = (address) => `0x${address.toString(16)}`;
const counted = (count, word) => `${count.toLocaleString("en-US")} ${word}${count === 1 ? "" : "s"}`;
