// Drawing up to a million rectangles into an image. Each column of pixels shows one event,
// and at one event no two buffers overlap, so no pixel is painted twice: the work is one
// look at each buffer, and one write for each pixel.

// Frame maps events and addresses to the pixels of an image.
class Frame {
  constructor(view, width, height, instants) {
    this.width = width;
    this.height = height;
    this.instants = instants;
    this.t0 = view.t0;
    this.perEvent = width / (view.t1 - view.t0);
    this.a0 = view.a0;
    this.perUnit = height / (view.a1 - view.a0);
    this.first = instants[0];
    this.last = instants[width - 1];
  }

  // column is the first column that shows event t or a later one.
  column(t) {
    if (t <= this.first) return 0;
    if (t > this.last) return this.width;
    let c = Math.min(this.width - 1, Math.max(0, Math.floor((t - this.t0) * this.perEvent)));
    while (c > 0 && this.instants[c - 1] >= t) c--;
    while (this.instants[c] < t) c++;
    return c;
  }

  // row is the first row, from the top, whose middle is not above an address.
  row(a) {
    const r = Math.ceil(this.height - (a - this.a0) * this.perUnit - 0.5);
    return r < 0 ? 0 : r > this.height ? this.height : r;
  }
}

// paintBuffers paints buffers at their addresses, each until its end. matches, unless null,
// has 1 for those that are not dimmed.
function paintBuffers(pixels, frame, d, addresses, ends, colours, patterned, matches) {
  const { width, height, first, last, a0, perUnit } = frame;
  const { fills, edges, inks, dims, groups } = colours;
  const { start, units, n } = d;
  for (let chunk = 0; chunk * chunkBuffers < n; chunk++) {
    const from = chunk * chunkBuffers;
    if (start[from] > last) break;
    if (d.lastEnd[chunk] <= first) continue;
    for (let i = from, to = Math.min(n, from + chunkBuffers); i < to; i++) {
      const s = start[i], e = ends[i], a = addresses[i];
      if (s > last || e <= first || a === nowhere) continue;
      // Of a million buffers most are lower than a row: that is the cheaper question.
      const top = Math.ceil(height - (a + units[i] - a0) * perUnit - 0.5), bottom = Math.ceil(height - (a - a0) * perUnit - 0.5);
      if (top >= bottom || bottom <= 0 || top >= height) continue;
      const c0 = frame.column(s), c1 = frame.column(e);
      if (c0 >= c1) continue;
      const r0 = top < 0 ? 0 : top, r1 = bottom > height ? height : bottom;
      const g = groups[i], dim = matches !== null && matches[i] === 0;
      const fill = dim ? dims[g] : fills[g];
      paintSolid(pixels, width, c0, c1, r0, r1, fill);
      if (dim) continue;
      if (patterned && g > 0) paintPattern(pixels, width, c0, c1, r0, r1, patterns[g % patterns.length], inks[g]);
      if (r1 - r0 >= 4 && c1 - c0 >= 4) paintEdge(pixels, width, c0, c1, r0, r1, edges[g]);
    }
  }
}

function paintSolid(pixels, width, c0, c1, top, bottom, fill) {
  const narrow = 12; // columns up to which a loop is faster than a call
  for (let r = top; r < bottom; r++) {
    const from = r * width + c0, to = r * width + c1;
    if (c1 - c0 > narrow) pixels.fill(fill, from, to);
    else for (let k = from; k < to; k++) pixels[k] = fill;
  }
}

function paintPattern(pixels, width, c0, c1, top, bottom, pattern, ink) {
  for (let r = top; r < bottom; r++) {
    const bits = pattern[r & 7];
    if (bits === 0) continue;
    for (let c = c0, at = r * width + c0; c < c1; c++, at++) if ((bits >> (c & 7)) & 1) pixels[at] = ink;
  }
}

// paintEdge tells a buffer from neighbours of its colour.
function paintEdge(pixels, width, c0, c1, top, bottom, edge) {
  pixels.fill(edge, top * width + c0, top * width + c1);
  for (let r = top, at = top * width + c0; r < bottom; r++, at += width) pixels[at] = edge;
}

// paintRange fills what was reserved from start to end at an address: hatched, so that it
// is seen without colour.
function paintRange(pixels, frame, start, end, address, size, fill, hatch) {
  const c0 = frame.column(start), c1 = frame.column(end), { width } = frame;
  for (let r = frame.row(address + size), bottom = frame.row(address); r < bottom; r++) {
    pixels.fill(fill, r * width + c0, r * width + c1);
    if (hatch === fill) continue;
    for (let c = c0 + ((8 - ((c0 + r) & 7)) & 7); c < c1; c += 8) pixels[r * width + c] = hatch;
  }
}
