// Reading the page's data: a gzip stream with JSON and columns of numbers.

const unitBytes = 512; // of a size or an address in a column
const nowhere = 0xffffffff; // the place of a buffer that has none
const chunkBuffers = 1024; // buffers that are skipped together

const kind = {
  category: (k) => k & 15,
  sure: (k) => (k >> 4) & 1,
  initial: (k) => (k >> 5) & 1,
  resident: (k) => (k >> 6) & 1,
  binds: (k) => (k >> 7) & 1,
  part: (k) => (k >> 8) & 15,
  stream: (k) => (k >> 12) & 255,
};

function figures() {
  return JSON.parse(byId("figures").textContent);
}

async function readDevice(index) {
  const text = byId(`device-${index}`).textContent;
  const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
  return decodeDevice(new Uint8Array(await new Response(stream).arrayBuffer()));
}

function decodeDevice(data) {
  const length = new DataView(data.buffer, data.byteOffset).getUint32(0, true);
  const d = JSON.parse(new TextDecoder().decode(data.subarray(4, 4 + length)));
  let at = 4 + length;
  const columns = {};
  for (const c of d.columns) {
    columns[c.name] = decodeColumn(data, at, c.count, c.form === "rising");
    at += 4 * c.count;
  }
  return arrange(d, columns);
}

function decodeColumn(data, at, n, rising) {
  const out = new Uint32Array(n);
  const p1 = at + n, p2 = at + 2 * n, p3 = at + 3 * n;
  let before = 0;
  for (let i = 0; i < n; i++) {
    let v = data[at + i] | (data[p1 + i] << 8) | (data[p2 + i] << 16) | (data[p3 + i] << 24);
    if (rising) before = v = (v + before) | 0;
    out[i] = v;
  }
  return out;
}

// arrange makes what is drawn of the columns.
function arrange(d, c) {
  const n = c.start.length;
  d.n = n;
  Object.assign(d, { start: c.start, units: c.units, spare: c.spare, place: c.place, recorded: c.recorded, stack: c.stack, kind: c.kind, iteration: c.iteration });
  d.freed = new Uint32Array(n);
  d.reusable = new Uint32Array(n);
  for (let i = 0; i < n; i++) {
    d.freed[i] = c.start[i] + c.life[i];
    d.reusable[i] = d.freed[i] + c.late[i];
  }
  d.lastEnd = new Uint32Array(Math.ceil(n / chunkBuffers)); // of each chunk
  for (let i = 0; i < n; i++) {
    const k = (i / chunkBuffers) | 0;
    if (d.reusable[i] > d.lastEnd[k]) d.lastEnd[k] = d.reusable[i];
  }
  d.segments = { start: c.segment_start, end: c.segment_start.map((s, i) => s + c.segment_life[i]), place: c.segment_place, units: c.segment_units };
  d.flames = { category: c.flame_category, stack: c.flame_stack, bytes: Float64Array.from(c.flame_low, (v, i) => (v + c.flame_high[i] * 4294967296) * unitBytes) };
  let from = 0;
  for (const curve of d.curves) {
    curve.at = new Uint32Array(curve.points);
    curve.units = c.curve_units.subarray(from, from + curve.points);
    let t = 0;
    for (let i = 0; i < curve.points; i++) curve.at[i] = t += c.curve_step[from + i];
    from += curve.points;
  }
  d.allocated = d.curves.find((x) => x.key === "allocated");
  d.highest = new Highest(d.allocated);
  return d;
}

// pointAt is the index of the last point at t or before, -1 if there is none.
function pointAt(at, t) {
  let low = 0, high = at.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (at[mid] <= t) low = mid + 1;
    else high = mid;
  }
  return low - 1;
}

// Highest finds when a curve is highest within a range of events: a tree of maxima.
class Highest {
  constructor(curve) {
    this.curve = curve;
    let size = 1;
    while (size < Math.max(1, curve.at.length)) size *= 2;
    this.size = size;
    this.tree = new Int32Array(2 * size).fill(-1);
    for (let i = 0; i < curve.at.length; i++) this.tree[size + i] = i;
    for (let k = size - 1; k > 0; k--) this.tree[k] = this.better(this.tree[2 * k], this.tree[2 * k + 1]);
  }

  // better is the point with the larger value, the first of equals.
  better(a, b) {
    if (a < 0 || b < 0) return a < 0 ? b : a;
    return this.curve.units[b] > this.curve.units[a] ? b : a;
  }

  // within is the first event from low to high, both included, with the largest value.
  within(low, high) {
    const first = pointAt(this.curve.at, low), last = pointAt(this.curve.at, high);
    if (last < 0) return low;
    let best = -1;
    for (let l = first + 1 + this.size, r = last + 1 + this.size; l < r; l >>= 1, r >>= 1) {
      if (l & 1) best = this.better(best, this.tree[l++]);
      if (r & 1) best = this.better(best, this.tree[--r]);
    }
    if (best < 0) return low;
    const before = first < 0 ? 0 : this.curve.units[first];
    return this.curve.units[best] > before ? this.curve.at[best] : low;
  }
}
