// Moving in the map: zoom, drag, keys, a search for an address, and what is under the pointer.
const SCALE_MOST = 40_000;
const ZOOM_STEP = 1.6;

class View {
  constructor(scene, canvas) {
    Object.assign(this, { scene, canvas, scale: 1, x: 0, y: 0 });
  }

  toX(x) { return (x - this.x) * this.scale; }
  toY(y) { return (y - this.y) * this.scale; }
  fromX(x) { return x / this.scale + this.x; }
  fromY(y) { return y / this.scale + this.y; }

  fitScale() {
    return Math.min(this.canvas.clientWidth / this.scene.wide,
      this.canvas.clientHeight / this.scene.high);
  }

  fit() {
    this.scale = this.fitScale();
    this.bound();
  }

  // Keeps the map in the window; centred where it is smaller.
  bound() {
    const width = this.canvas.clientWidth / this.scale;
    const height = this.canvas.clientHeight / this.scale;
    const hold = (at, room, whole) =>
      (room >= whole ? (whole - room) / 2 : Math.min(Math.max(at, 0), whole - room));
    this.x = hold(this.x, width, this.scene.wide);
    this.y = hold(this.y, height, this.scene.high);
  }

  // Zooms so that the point of the canvas stays where it is.
  zoom(factor, x, y) {
    const [worldX, worldY] = [this.fromX(x), this.fromY(y)];
    this.scale = Math.min(Math.max(this.scale * factor, this.fitScale()), SCALE_MOST);
    this.x = worldX - x / this.scale;
    this.y = worldY - y / this.scale;
    this.bound();
  }

  // Brings a rectangle of the world into the middle, as large as it fits.
  show(x, y, width, height) {
    const room = Math.min(this.canvas.clientWidth / width, this.canvas.clientHeight / height);
    this.scale = Math.min(Math.max(room * 0.9, this.fitScale()), SCALE_MOST);
    this.x = x + width / 2 - this.canvas.clientWidth / this.scale / 2;
    this.y = y + height / 2 - this.canvas.clientHeight / this.scale / 2;
    this.bound();
  }

  // Moves as little as needed to have a point of the world in the window.
  reveal(x, y) {
    const [width, height] = [this.canvas.clientWidth / this.scale, this.canvas.clientHeight / this.scale];
    const hold = (at, room, point) =>
      Math.min(Math.max(at, point - room * 0.92), point - room * 0.08);
    this.x = hold(this.x, width, x);
    this.y = hold(this.y, height, y);
    this.bound();
  }
}

class Explorer {
  constructor(scene, blocks, painter, elements) {
    Object.assign(this, { scene, blocks, painter, ...elements });
    this.view = new View(scene, this.canvas);
    this.isPending = false;
    this.resize();
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    addEventListener("beforeprint", () => this.resize());
    this.listenToPointer();
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => this.point(null));
  }

  recolour() {
    this.painter.recolour();
    this.draw();
  }

  resize() {
    const width = this.canvas.clientWidth;
    if (!width || width === this.drawnWidth) return;
    this.drawnWidth = width;
    const room = Math.min(560, innerHeight * 0.72);
    this.scene.arrange(width, room);
    const height = Math.max(150, Math.min(room, Math.ceil((width / this.scene.wide) * this.scene.high)));
    this.canvas.style.height = `${height}px`;
    this.canvas.width = width * devicePixelRatio;
    this.canvas.height = height * devicePixelRatio;
    this.view.fit();
    this.paint();
  }

  // Draws with the next frame, once for however many changes.
  draw() {
    if (this.isPending) return;
    this.isPending = true;
    requestAnimationFrame(() => this.paint());
  }

  paint() {
    this.isPending = false;
    this.painter.draw(this.view);
  }

  showsBlocks(run) {
    const { scene, view } = this;
    return run >= 0 && scene.isSlab(run) && this.blocks.isKept(run)
      && (scene.runs.pages[run] * view.scale) / scene.grid(run).wide >= 2;
  }

  // What is at a point of the canvas: page, run (or -1), block (or -1); null beside everything.
  at(x, y) {
    const [worldX, worldY] = [this.view.fromX(x), this.view.fromY(y)];
    const page = this.scene.pageAt(worldX, worldY);
    if (page < 0) return null;
    const run = this.scene.runOf[page] - 1;
    const block = this.showsBlocks(run) ? this.scene.blockAt(run, worldX, worldY) : -1;
    return { page, run, block };
  }

  // Lines about a place.
  describe({ page, run, block }) {
    const { scene } = this;
    const { runs } = scene;
    if (run < 0) {
      const what = scene.pageState(page) === "dirty"
        ? "free page, may still be resident (dirty)" : "free page, given back to the system";
      return [hex(scene.address(page)), what];
    }
    const start = scene.address(runs.page[run]);
    const pages = counted(runs.pages[run], "page");
    const notes = runs.settled[run] ? [] : ["a thread was at work in its heap"];
    if (scene.map.residency) notes.unshift(`${bytesText(runs.resident[run])} resident`);
    if (!scene.isSlab(run)) {
      return [hex(start), `large block of ${bytesText(runs.large[run])}, ${pages}`, ...notes];
    }
    const owner = scene.map.heaps[runs.heap[run]] ?? `heap ${runs.heap[run]}`;
    const size = `${scene.sizeClass(run).toLocaleString("en-US")} B`;
    if (block >= 0) {
      const state = this.blocks.states(run)?.(block) ?? "being unpacked";
      const words = state === "fresh" ? "free, never handed out" : state;
      return [hex(scene.blockAddress(run, block)), `block ${block} of class ${size}: ${words}`,
        `owner: ${owner}`, `slab ${hex(start)}, ${pages}`, ...notes];
    }
    const counts = ["live", "cached", "remote", "quarantined", "free"]
      .filter((state) => runs[state][run])
      .map((state) => `${runs[state][run].toLocaleString("en-US")} ${state}`);
    return [hex(start), `slab of class ${size}, ${pages}`, `owner: ${owner}`,
      `${counts.join(", ")} of ${counted(runs.blocks[run], "block")}`, ...notes];
  }

  // Makes a place the one that is looked at; `x`, `y` say where its words go.
  point(place, x = 0, y = 0) {
    this.painter.cursor = place;
    this.pointed = [x, y];
    this.tip.hidden = !place;
    if (place) {
      const lines = this.describe(place);
      this.tip.textContent = lines.join("\n");
      this.where.textContent = lines.join(" · ");
      const left = Math.min(x + 16, this.canvas.clientWidth - this.tip.offsetWidth - 6);
      const isBelow = y + 20 + this.tip.offsetHeight < this.canvas.clientHeight;
      this.tip.style.left = `${Math.max(0, left)}px`;
      this.tip.style.top = `${this.canvas.offsetTop
        + (isBelow ? y + 18 : y - this.tip.offsetHeight - 12)}px`;
    }
    this.draw();
  }

  // States of blocks have arrived: what is looked at may have been one of them.
  refresh() {
    if (this.painter.cursor) this.point(this.painter.cursor, ...this.pointed);
    this.draw();
  }

  listenToPointer() {
    const { canvas, view } = this;
    const pointers = new Map();
    let moved = 0;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
      moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = [event.offsetX, event.offsetY];
      const before = pointers.get(event.pointerId);
      if (!before) {
        this.point(this.at(x, y), x, y);
        return;
      }
      const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
      if (other) {
        const far = (from) => Math.hypot(from[0] - other[0], from[1] - other[1]) || 1;
        view.zoom(far([x, y]) / far(before), (x + other[0]) / 2, (y + other[1]) / 2);
      } else {
        view.x -= (x - before[0]) / view.scale;
        view.y -= (y - before[1]) / view.scale;
        view.bound();
      }
      moved += Math.hypot(x - before[0], y - before[1]);
      pointers.set(event.pointerId, [x, y]);
      canvas.classList.toggle("moving", moved > 4);
      this.tip.hidden = true;
      this.draw();
    });
    const release = (event) => {
      pointers.delete(event.pointerId);
      canvas.classList.remove("moving");
      if (event.type === "pointerup" && moved <= 4) {
        this.point(this.at(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
      }
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", () => { if (!pointers.size) this.point(null); });
    canvas.addEventListener("dblclick", (event) => {
      this.enter(this.at(event.offsetX, event.offsetY));
    });
    // The wheel scrolls the page until the map has the focus.
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return;
      event.preventDefault();
      view.zoom(Math.exp(-event.deltaY * 0.0018), event.offsetX, event.offsetY);
      this.point(this.at(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
    }, { passive: false });
  }

  // Zooms to the run of a place.
  enter(place) {
    if (!place) return;
    const { scene, view } = this;
    const page = place.run < 0 ? place.page : scene.runs.page[place.run];
    const { x, y } = scene.place(page);
    view.show(x, y, place.run < 0 ? 1 : scene.runs.pages[place.run], scene.tall);
    this.point(place.run >= 0 && scene.isSlab(place.run) && this.showsBlocks(place.run)
      ? { ...place, block: Math.max(0, place.block) } : place, view.toX(x), view.toY(y));
  }

  zoomBy(factor) {
    this.view.zoom(factor, this.canvas.clientWidth / 2, this.canvas.clientHeight / 2);
    this.draw();
  }

  fit() {
    this.view.fit();
    this.point(null);
  }

  // Goes to an address; false when the map has no such page.
  find(text) {
    const address = /^(0x)?[0-9a-f]+$/i.test(text.trim()) ? parseInt(text.trim(), 16) : NaN;
    const { scene } = this;
    const page = scene.pageOf(address);
    if (page < 0) return false;
    const run = scene.runOf[page] - 1;
    this.enter({ page, run, block: -1 });
    if (this.showsBlocks(run)) {
      const inSlab = address - scene.address(scene.runs.page[run]);
      const block = Math.min(Math.floor(inSlab / scene.sizeClass(run)), scene.blockCount(run) - 1);
      this.step({ page, run, block });
    }
    return true;
  }

  // Makes a place the cursor, and moves the window to it.
  step(place) {
    const { scene, view } = this;
    const corner = scene.place(place.run < 0 ? place.page : scene.runs.page[place.run]);
    const point = place.block >= 0 ? scene.blockCentre(place.run, place.block)
      : { x: corner.x + 0.5, y: corner.y + scene.tall / 2 };
    view.reveal(point.x, point.y);
    this.point(place, view.toX(point.x), view.toY(point.y));
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const { scene, view, canvas } = this;
    const now = this.painter.cursor;
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key in moves) {
      this.step(now ? this.neighbour(now, ...moves[event.key]) : this.middle());
    } else if (event.key === "Enter") {
      this.enter(now ?? this.middle());
    } else if ("+=-".includes(event.key)) {
      const at = now ? scene.place(now.page) : null;
      const [x, y] = at ? [view.toX(at.x + 0.5), view.toY(at.y + scene.tall / 2)]
        : [canvas.clientWidth / 2, canvas.clientHeight / 2];
      view.zoom(event.key === "-" ? 1 / ZOOM_STEP : ZOOM_STEP, x, y);
      if (now) this.step(now);
      this.draw();
    } else if (event.key === "0" || event.key === "Home") {
      this.fit();
    } else if (event.key === "Escape") {
      this.fit();
      canvas.blur();
    } else {
      return;
    }
    event.preventDefault();
  }

  middle() {
    const { canvas } = this;
    return this.at(canvas.clientWidth / 2, canvas.clientHeight / 2)
      ?? { page: 0, run: this.scene.runOf[0] - 1, block: -1 };
  }

  // The block, run or page beside a place.
  neighbour({ page, run, block }, right, down) {
    const { scene } = this;
    if (block >= 0) {
      const { wide, count } = scene.grid(run);
      const next = block + right + down * wide;
      if (next >= 0 && next < count) return { page, run, block: next };
    }
    let next = run >= 0 && right > 0 ? scene.runs.page[run] + scene.runs.pages[run]
      : run >= 0 && right < 0 ? scene.runs.page[run] - 1 : page + right;
    next += down * scene.pages;
    next = Math.min(Math.max(next, 0), scene.strips * scene.pages - 1);
    const other = scene.runOf[next] - 1;
    return { page: next, run: other, block: this.showsBlocks(other) && block >= 0 ? 0 : -1 };
  }
}

// For the browser's console, and for tests.
let EXPLORER = null;

async function startMap() {
  const canvas = document.getElementById("map");
  if (!canvas || !DATA.map) return;
  const byId = (name) => document.getElementById(name);
  const scene = new Scene(DATA.map, await columns(DATA.map.runs));
  const blocks = new Blocks(scene, () => explorer.refresh());
  const painter = new Painter(canvas, scene, blocks);
  const explorer = new Explorer(scene, blocks, painter,
    { canvas, tip: byId("tip"), where: byId("where") });
  byId("zoom-in").addEventListener("click", () => explorer.zoomBy(ZOOM_STEP));
  byId("zoom-out").addEventListener("click", () => explorer.zoomBy(1 / ZOOM_STEP));
  byId("zoom-fit").addEventListener("click", () => explorer.fit());
  byId("colour").addEventListener("change", (event) => {
    painter.setMode(event.target.value);
    for (const legend of document.querySelectorAll("[data-legend]")) {
      legend.hidden = legend.dataset.legend !== event.target.value;
    }
    explorer.draw();
  });
  byId("go").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = byId("address").value;
    if (!explorer.find(text)) byId("where").textContent = `${text}: not in a superslab of this heap`;
  });
  EXPLORER = explorer;
  document.documentElement.dataset.map = "ready";
}

startMap().catch((error) => {
  const where = document.getElementById("where");
  if (where) where.textContent = `The map cannot be drawn here: ${error.message}`;
});
