// Where everything of the map lies. A superslab is a strip, one unit wide for each page; strips
// stand in columns. World coordinates are units; the view turns them into pixels.
const STRIP_GAP = 0.55;
const COLUMN_GAP = 3;
const PAGE_HEIGHTS = [5, 4, 3, 2.4, 1.8, 1.4, 1.1];

class Scene {
  constructor(map, runs) {
    this.map = map;
    this.runs = runs;
    this.strips = map.starts.length;
    this.pages = map.superslab_pages;
    this.pageBytes = map.page_bytes;
    this.grids = new Map();
    // The run that each page belongs to, plus one; 0 for a page that is in no run.
    this.runOf = new Uint32Array(this.strips * this.pages);
    for (let run = 0; run < map.runs.count; run++) {
      this.runOf.fill(run + 1, runs.page[run], runs.page[run] + runs.pages[run]);
    }
    this.arrange(1160, 480);
  }

  // Chooses the height of a page and the number of columns so that a map of this size is well used.
  arrange(width, height) {
    let best = null;
    for (const tall of PAGE_HEIGHTS) {
      for (let columns = 1; columns <= Math.min(this.strips, 64); columns++) {
        const rows = Math.ceil(this.strips / columns);
        const wide = columns * (this.pages + COLUMN_GAP) - COLUMN_GAP;
        const high = rows * (tall + STRIP_GAP) + STRIP_GAP;
        const scale = Math.min(width / wide, height / high);
        // The area of a page, less when it is far from a square.
        const worth = scale * scale * Math.min(tall, 2.4);
        if (!best || worth > best.worth) best = { tall, columns, rows, wide, high, scale, worth };
      }
    }
    Object.assign(this, best);
  }

  // The corner of a page's rectangle.
  place(page) {
    const strip = Math.floor(page / this.pages);
    const column = Math.floor(strip / this.rows);
    return {
      x: column * (this.pages + COLUMN_GAP) + (page % this.pages),
      y: (strip % this.rows) * (this.tall + STRIP_GAP) + STRIP_GAP,
    };
  }

  // The page at a point of the world, or -1.
  pageAt(x, y) {
    const column = Math.floor(x / (this.pages + COLUMN_GAP));
    const inColumn = x - column * (this.pages + COLUMN_GAP);
    const row = Math.floor((y - STRIP_GAP) / (this.tall + STRIP_GAP));
    const inRow = y - STRIP_GAP - row * (this.tall + STRIP_GAP);
    const strip = column * this.rows + row;
    if (x < 0 || inColumn >= this.pages || row < 0 || row >= this.rows || inRow >= this.tall
        || column >= this.columns || strip >= this.strips) return -1;
    return strip * this.pages + Math.floor(inColumn);
  }

  address(page) {
    return this.map.starts[Math.floor(page / this.pages)] + (page % this.pages) * this.pageBytes;
  }

  // The page at an address of the process, or -1.
  pageOf(address) {
    const bytes = this.pages * this.pageBytes;
    const strip = this.map.starts.findIndex((start) => address >= start && address < start + bytes);
    return strip < 0 ? -1 : strip * this.pages
      + Math.floor((address - this.map.starts[strip]) / this.pageBytes);
  }

  // What a page outside all runs is: "dirty" (free, may be resident) or "purged".
  pageState(page) {
    const mask = this.map.dirty[Math.floor(page / this.pages)];
    const bit = page % this.pages;
    const digit = parseInt(mask[mask.length - 1 - (bit >> 2)] ?? "0", 16);
    return (digit >> (bit & 3)) & 1 ? "dirty" : "purged";
  }

  // How the blocks of a slab are laid out in its rectangle: row by row, in cells that are nearly
  // square, with as few cells to spare as can be.
  grid(run) {
    const count = this.blockCount(run);
    const key = `${count} ${this.runs.pages[run]} ${this.tall}`;
    if (!this.grids.has(key)) {
      const ideal = Math.sqrt((count * this.runs.pages[run]) / this.tall);
      let best = null;
      for (let wide = Math.max(1, Math.floor(ideal * 0.7)); wide <= Math.ceil(ideal * 1.4); wide++) {
        const high = Math.ceil(count / wide);
        const worth = (wide * high - count) / count + 0.15 * Math.abs(Math.log(wide / ideal));
        if (!best || worth < best.worth) best = { count, wide, high, worth };
      }
      this.grids.set(key, best);
    }
    return this.grids.get(key);
  }

  sizeClass(run) {
    return this.map.classes[this.runs.class[run]];
  }

  isSlab(run) {
    return this.map.kinds[this.runs.kind[run]] === "slab";
  }

  blockCount(run) {
    return this.runs.blocks[run];
  }

  // Blocks of a slab in a state.
  stateCount(run, state) {
    const fresh = Math.max(0, this.runs.blocks[run] - this.runs.fresh[run]);
    if (state === "fresh") return Math.min(fresh, this.runs.free[run]);
    return state === "free" ? Math.max(0, this.runs.free[run] - fresh) : this.runs[state][run];
  }

  blockAt(run, x, y) {
    const corner = this.place(this.runs.page[run]);
    const { count, wide, high } = this.grid(run);
    const column = Math.floor(((x - corner.x) / this.runs.pages[run]) * wide);
    const row = Math.floor(((y - corner.y) / this.tall) * high);
    const block = Math.min(high - 1, Math.max(0, row)) * wide
      + Math.min(wide - 1, Math.max(0, column));
    return block < count ? block : -1;
  }

  blockCentre(run, block) {
    const corner = this.place(this.runs.page[run]);
    const { wide, high } = this.grid(run);
    return {
      x: corner.x + ((block % wide + 0.5) / wide) * this.runs.pages[run],
      y: corner.y + ((Math.floor(block / wide) + 0.5) / high) * this.tall,
    };
  }

  blockAddress(run, block) {
    return this.address(this.runs.page[run]) + block * this.sizeClass(run);
  }
}

// What each block is: bit planes of one superslab at a time, inflated when first looked at. A block
// in no plane is live; a free one that was never handed out is "fresh".
class Blocks {
  constructor(scene, arrived) {
    this.scene = scene;
    this.arrived = arrived;
    this.strips = new Map();
    // Words of a plane of each superslab, and where those of each run begin.
    this.words = new Uint32Array(scene.strips);
    this.first = new Uint32Array(scene.map.runs.count);
    for (let run = 0; run < this.first.length; run++) {
      const strip = this.strip(run);
      this.first[run] = this.words[strip];
      if (scene.isSlab(run)) this.words[strip] += Math.ceil(scene.runs.blocks[run] / 64);
    }
  }

  strip(run) {
    return Math.floor(this.scene.runs.page[run] / this.scene.pages);
  }

  isKept(run) {
    return this.scene.isSlab(run) && Boolean(this.scene.map.blocks[this.strip(run)]);
  }

  // The planes of the run's superslab one behind the other; undefined until they are inflated.
  planes(run) {
    const strip = this.strip(run);
    if (!this.strips.has(strip)) {
      this.strips.set(strip, undefined);
      inflate(this.scene.map.blocks[strip]).then((bytes) => {
        this.strips.set(strip, bytes);
        this.arrived();
      });
    }
    return this.strips.get(strip);
  }

  // A function from a block of the run to its state; undefined while that is not known.
  states(run) {
    const bytes = this.isKept(run) ? this.planes(run) : undefined;
    if (!bytes) return undefined;
    const names = this.scene.map.planes;
    const planeBytes = this.words[this.strip(run)] * 8;
    const first = this.first[run] * 8;
    const fresh = this.scene.runs.fresh[run];
    return (block) => {
      for (let plane = 0; plane < names.length; plane++) {
        const byte = bytes[plane * planeBytes + first + (block >> 3)];
        if ((byte >> (block & 7)) & 1) {
          return names[plane] === "free" && block >= fresh ? "fresh" : names[plane];
        }
      }
      return "live";
    };
  }
}
