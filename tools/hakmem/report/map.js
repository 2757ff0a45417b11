// Draws the map: pages as rectangles, and, where there is room for them, the blocks of their slabs.
const BLOCK_STATES = ["live", "cached", "remote", "quarantined", "free", "fresh"];
// Pixels: of a slab that shows its shares, of one that shows its blocks, and of a block with an
// outline of its own.
const SHARES_FROM = 5;
const BLOCKS_FROM = 14;
const OUTLINES_FROM = 7;
const LABELS_FROM = 15;
// Strips closer than this have no gap between them: it would be one or two pixels in turn.
const GAPS_FROM = 9;
const PICTURES_MOST = 3000;

class Palette {
  constructor() {
    const style = getComputedStyle(document.documentElement);
    const names = ["ink", "soft", "paper", "card", "line", "faint", "focus", "large", "dirty",
      "purged", ...BLOCK_STATES];
    for (const name of names) this[name] = style.getPropertyValue(`--${name}`).trim();
    this.isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    this.memo = new Map();
  }

  // A hue for each of many; neighbours differ (golden angle).
  owner(number) {
    return `hsl(${Math.round(number * 137.508) % 360} 58% ${this.isDark ? 58 : 47}%)`;
  }

  // From the smallest class, violet, to the largest, yellow, through blue and green.
  sizeClass(index, count) {
    const share = index / Math.max(1, count - 1);
    return `hsl(${Math.round(285 - 235 * share)} 55% ${Math.round((this.isDark ? 52 : 42) + 14 * share)}%)`;
  }

  // [red, green, blue] of any CSS colour.
  rgb(colour) {
    if (!this.memo.has(colour)) {
      const dot = new OffscreenCanvas(1, 1).getContext("2d");
      dot.fillStyle = colour;
      dot.fillRect(0, 0, 1, 1);
      this.memo.set(colour, dot.getImageData(0, 0, 1, 1).data);
    }
    return this.memo.get(colour);
  }

  mix(parts) {
    const sum = [0, 0, 0];
    let all = 0;
    for (const [colour, weight] of parts) {
      all += weight;
      this.rgb(colour).slice(0, 3).forEach((value, at) => { sum[at] += value * weight; });
    }
    return `rgb(${sum.map((value) => Math.round(value / (all || 1))).join(" ")})`;
  }
}

class Painter {
  constructor(canvas, scene, blocks) {
    Object.assign(this, { canvas, scene, blocks, mode: "state", cursor: null });
    this.context = canvas.getContext("2d");
    this.pictures = new Map();
    this.recolour();
  }

  recolour() {
    this.palette = new Palette();
    this.forget();
  }

  // Colours are others from now on.
  forget() {
    this.pictures.clear();
    this.shades = new Map();
    this.shadeOf = new Array(this.scene.map.runs.count);
  }

  setMode(mode) {
    this.mode = mode;
    this.forget();
  }

  // The colour that stands for the whole run in the modes that do not look at its blocks.
  identity(run) {
    const { scene, palette } = this;
    if (this.mode === "owner") {
      return scene.isSlab(run) ? palette.owner(scene.runs.heap[run]) : palette.large;
    }
    if (this.mode === "class") {
      return scene.isSlab(run)
        ? palette.sizeClass(scene.runs.class[run], scene.map.classes.length) : palette.large;
    }
    return scene.isSlab(run) ? palette.live : palette.large;
  }

  // Colours of a slab's blocks with their counts, in the order in which they are stacked.
  shares(run) {
    const { runs } = this.scene;
    if (!this.scene.isSlab(run)) return [[this.identity(run), 1]];
    if (this.mode === "state") {
      return BLOCK_STATES.map((state) => [this.palette[state], this.scene.stateCount(run, state)]);
    }
    const held = runs.blocks[run] - runs.free[run];
    return [[this.identity(run), held], [this.palette.purged, runs.free[run]]];
  }

  // One colour for a slab too small to show more.
  shade(run) {
    this.shadeOf[run] ??= this.mixed(run);
    return this.shadeOf[run];
  }

  mixed(run) {
    if (!this.scene.isSlab(run)) return this.identity(run);
    const tenths = this.shares(run).map(([, count]) =>
      Math.round((count / Math.max(1, this.scene.runs.blocks[run])) * 24));
    const key = `${this.mode === "state" ? "" : this.identity(run)} ${tenths}`;
    if (!this.shades.has(key)) {
      this.shades.set(key, this.palette.mix(this.shares(run)));
    }
    return this.shades.get(key);
  }

  draw(view) {
    const { context, scene, canvas } = this;
    const ratio = canvas.width / canvas.clientWidth;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    const scale = view.scale;
    // Narrow gaps would only make patterns.
    const gap = scale < 4 ? 0 : Math.min(Math.max(1, scale * 0.012), scale * 0.08);
    for (let strip = 0; strip < scene.strips; strip++) {
      const corner = scene.place(strip * scene.pages);
      const y = view.toY(corner.y);
      const x = view.toX(corner.x);
      if (y > canvas.clientHeight || y + scene.tall * scale < 0
          || x > canvas.clientWidth || x + scene.pages * scale < 0) continue;
      this.drawStrip(view, strip, x, y, gap);
    }
    if (this.cursor) this.drawCursor(view);
  }

  drawStrip(view, strip, x, y, gap) {
    const { context, scene, palette } = this;
    const scale = view.scale;
    const pitch = (scene.tall + STRIP_GAP) * scale;
    const height = pitch < GAPS_FROM ? pitch : scene.tall * scale;
    const first = strip * scene.pages;
    const from = Math.max(0, Math.floor(-x / scale));
    const to = Math.min(scene.pages, Math.ceil((this.canvas.clientWidth - x) / scale));
    if (STRIP_GAP * scale >= LABELS_FROM - 5) {
      context.fillStyle = palette.soft;
      context.font = "11px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
      context.textBaseline = "bottom";
      context.fillText(hex(scene.map.starts[strip]), Math.max(4, x), y - 2);
    }
    for (let page = from; page < to; page++) {
      const run = scene.runOf[first + page] - 1;
      if (run < 0) {
        context.fillStyle = palette[scene.pageState(first + page)];
        this.fill(x + page * scale, y, scale - gap, height - gap);
        continue;
      }
      const begin = scene.runs.page[run] - first;
      this.drawRun(run, x + begin * scale, y, scene.runs.pages[run] * scale - gap, height - gap);
      page = begin + scene.runs.pages[run] - 1;
    }
  }

  // A rectangle with its edges on whole pixels, so that neighbours meet.
  fill(x, y, width, height) {
    const [left, top] = [Math.round(x), Math.round(y)];
    this.context.fillRect(left, top, Math.max(1, Math.round(x + width) - left),
      Math.max(1, Math.round(y + height) - top));
  }

  drawRun(run, x, y, width, height) {
    const { context, scene } = this;
    const isSmall = width < SHARES_FROM || height < SHARES_FROM;
    if (!scene.isSlab(run) || isSmall) {
      context.fillStyle = this.shade(run);
      this.fill(x, y, width, height);
      return;
    }
    if (width >= BLOCKS_FROM && height >= BLOCKS_FROM) {
      const picture = this.picture(run);
      if (picture) {
        this.drawBlocks(run, picture, x, y, width, height);
        return;
      }
    }
    let bottom = y + height;
    for (const [colour, count] of this.shares(run)) {
      const part = (height * count) / Math.max(1, scene.runs.blocks[run]);
      if (part <= 0) continue;
      context.fillStyle = colour;
      context.fillRect(x, bottom - part, width, part);
      bottom -= part;
    }
  }

  drawBlocks(run, picture, x, y, width, height) {
    const { context, palette } = this;
    const { wide, high } = this.scene.grid(run);
    const [stepX, stepY] = [width / wide, height / high];
    context.imageSmoothingEnabled = stepX < 1.5 || stepY < 1.5;
    context.drawImage(picture, x, y, width, height);
    if (stepX < OUTLINES_FROM || stepY < OUTLINES_FROM) return;
    context.strokeStyle = palette.paper;
    context.lineWidth = Math.min(1.5, Math.min(stepX, stepY) * 0.1);
    context.beginPath();
    const right = Math.min(x + width, this.canvas.clientWidth);
    const bottom = Math.min(y + height, this.canvas.clientHeight);
    for (let column = Math.max(1, Math.floor(-x / stepX)); column < wide; column++) {
      const at = x + column * stepX;
      if (at > right) break;
      context.moveTo(at, Math.max(0, y));
      context.lineTo(at, bottom);
    }
    for (let row = Math.max(1, Math.floor(-y / stepY)); row < high; row++) {
      const at = y + row * stepY;
      if (at > bottom) break;
      context.moveTo(Math.max(0, x), at);
      context.lineTo(right, at);
    }
    context.stroke();
  }

  // The blocks of a slab as a picture of one dot each; undefined until their states are known.
  picture(run) {
    if (this.pictures.has(run)) return this.pictures.get(run);
    const stateOf = this.blocks.states(run);
    if (!stateOf) return undefined;
    const { count, wide, high } = this.scene.grid(run);
    const picture = new OffscreenCanvas(wide, high);
    const image = new ImageData(wide, high);
    const colours = {};
    for (const state of BLOCK_STATES) {
      const own = this.mode === "state" ? this.palette[state]
        : state === "free" || state === "fresh" ? this.palette.purged : this.identity(run);
      colours[state] = this.palette.rgb(own);
    }
    const outside = this.palette.rgb(this.palette.faint);
    for (let block = 0; block < wide * high; block++) {
      image.data.set(block < count ? colours[stateOf(block)] : outside, block * 4);
    }
    picture.getContext("2d").putImageData(image, 0, 0);
    if (this.pictures.size >= PICTURES_MOST) {
      this.pictures.delete(this.pictures.keys().next().value);
    }
    this.pictures.set(run, picture);
    return picture;
  }

  drawCursor(view) {
    const { context, scene, palette } = this;
    const { page, run, block } = this.cursor;
    let place = { ...scene.place(page), width: 1, height: scene.tall };
    if (run >= 0) {
      place = { ...scene.place(scene.runs.page[run]), width: scene.runs.pages[run],
        height: scene.tall };
    }
    if (block >= 0) {
      const { wide, high } = scene.grid(run);
      const [width, height] = [place.width / wide, place.height / high];
      place = { x: place.x + (block % wide) * width, y: place.y + Math.floor(block / wide) * height,
        width, height };
    }
    const [x, y] = [view.toX(place.x) - 1.5, view.toY(place.y) - 1.5];
    const [width, height] = [place.width * view.scale + 3, place.height * view.scale + 3];
    context.lineWidth = 4;
    context.strokeStyle = palette.card;
    context.strokeRect(x, y, width, height);
    context.lineWidth = 2;
    context.strokeStyle = palette.ink;
    context.strokeRect(x, y, width, height);
  }
}
