// The pictures: time by address.

// Picture is the plan, or what was recorded.
class Picture extends Plot {
  constructor(canvas, which) {
    super(canvas, 330, which === "recorded" ? 26 : 8, 24);
    this.which = which;
  }

  draw(app, instants) {
    const { device: d, theme, view } = app, c = this.fit(theme);
    const width = Math.round(this.inner * this.scale), height = Math.round(this.innerHeight * this.scale);
    const pixels = this.pixels(width, height);
    pixels.fill(pixel(rgb(theme.ground)));
    const frame = new Frame(view, width, height, instants(width));
    this.frameOf = frame;
    this.ground(app, pixels, frame);
    paintBuffers(pixels, frame, d, this.addresses(d), this.ends(d), app.colours, app.patterns, app.matches);
    c.putImageData(this.image, Math.round(this.left * this.scale), Math.round(this.top * this.scale));
    this.outline(app);
    this.decorate(app);
  }

  addresses(d) {
    return this.which === "plan" ? d.place : d.recorded;
  }

  ends(d) {
    return this.which === "plan" && d.plan_end === "requested" ? d.freed : d.reusable;
  }

  pixels(width, height) {
    if (!this.image || this.image.width !== width || this.image.height !== height) {
      this.image = new ImageData(width, height);
      this.words = new Uint32Array(this.image.data.buffer);
    }
    return this.words;
  }

  // ground paints what was reserved, before the buffers in it.
  ground(app, pixels, frame) {
    const { device: d, theme } = app, fill = pixel(rgb(theme.free)), hatch = pixel(rgb(theme.hatch));
    if (this.which === "plan") {
      const arena = pixel(rgb(theme.arena));
      paintRange(pixels, frame, 0, d.events, 0, d.arena_units, arena, arena);
      return;
    }
    const s = d.segments;
    for (let i = 0; i < s.start.length && s.start[i] <= frame.last; i++) {
      if (s.end[i] > frame.first) paintRange(pixels, frame, s.start[i], s.end[i], s.place[i], s.units[i], fill, hatch);
    }
  }

  y(a, view) {
    return this.top + this.innerHeight * (1 - (a - view.a0) / (view.a1 - view.a0));
  }

  address(y, view) {
    return view.a0 + (1 - (y - this.top) / this.innerHeight) * (view.a1 - view.a0);
  }

  // outline draws a frame around the buffer that is pointed at and the one that is chosen.
  outline(app) {
    for (const [i, colour] of [[app.hover ? app.hover.buffer : -1, app.theme.text], [app.chosen, app.theme.focus]]) {
      if (i >= 0) this.box(app, i, colour);
    }
  }

  box(app, i, colour) {
    const { device: d, view } = app, a = this.addresses(d)[i], c = this.context;
    if (a === nowhere) return;
    const x0 = Math.max(this.left - 2, this.x(d.start[i], view)), x1 = Math.min(this.left + this.inner + 2, this.x(this.ends(d)[i], view));
    const y0 = Math.max(this.top - 2, this.y(a + d.units[i], view)), y1 = Math.min(this.top + this.innerHeight + 2, this.y(a, view));
    if (x1 < this.left || x0 > this.left + this.inner || y1 < this.top || y0 > this.top + this.innerHeight) return;
    c.lineWidth = 4;
    c.strokeStyle = app.theme.ground;
    c.strokeRect(x0, y0, Math.max(2, x1 - x0), Math.max(2, y1 - y0));
    c.lineWidth = 2;
    c.strokeStyle = colour;
    c.strokeRect(x0, y0, Math.max(2, x1 - x0), Math.max(2, y1 - y0));
  }

  decorate(app) {
    const { device: d, theme, view } = app, c = this.context;
    this.blank(theme);
    c.fillStyle = theme.text;
    c.font = `600 ${font}`;
    c.textAlign = "left";
    c.textBaseline = "top";
    c.fillText(this.title(app), this.left, 5);
    c.font = font;
    for (const t of d.iteration_starts) this.upright(theme, view, t, theme.soft, [2, 4]);
    for (const t of d.out_of_memory_events.slice(-20)) this.upright(theme, view, t, theme.mark, []);
    this.upright(theme, view, d.bound.event, theme.focus, [4, 3]);
    this.level(app);
    if (app.hover) this.upright(theme, view, app.hover.event, theme.text, [1, 2]);
    if (app.box) this.selection(app);
    this.yAxis(theme, view.a0 * unitBytes, view.a1 * unitBytes);
    if (this.which === "recorded" || app.panels === "plan") this.xAxis(theme, view, "event of the recording");
    this.frame(theme);
  }

  // blank clears what an outline left of the margins.
  blank(theme) {
    const c = this.context, right = this.left + this.inner, floor = this.top + this.innerHeight;
    c.fillStyle = theme.ground;
    c.fillRect(0, 0, this.width, this.top);
    c.fillRect(0, floor, this.width, this.height - floor);
    c.fillRect(0, 0, this.left, this.height);
    c.fillRect(right, 0, this.width - right, this.height);
  }

  title(app) {
    const diff = app.figures.diff;
    if (this.which === "plan") return `Plan: ${bytes(diff.plan.plan_bytes)}, address by time`;
    return `Recorded (${diff.recorded.settings}): ${bytes(diff.recorded.peak_reserved_bytes)} reserved at the peak, segments by time; hatched is reserved and free`;
  }

  // level draws the bound in the plan, and the plan in what was recorded.
  level(app) {
    const { device: d, theme, view } = app;
    const [units, label] = this.which === "plan" ? [d.bound.bytes / unitBytes, "lower bound"] : [d.arena_units, "height of the plan"];
    const y = Math.round(this.y(units, view)) + 0.5, c = this.context;
    if (y < this.top + 2 || y > this.top + this.innerHeight - 2) return;
    c.strokeStyle = theme.text;
    c.lineWidth = 1;
    c.setLineDash(this.which === "plan" ? [1, 3] : [6, 3]);
    c.beginPath();
    c.moveTo(this.left, y);
    c.lineTo(this.left + this.inner, y);
    c.stroke();
    c.setLineDash([]);
    const above = y - 18 > this.top;
    this.tag(theme, this.left + 3, above ? y - 18 : y + 2, label, theme.text);
  }

  selection(app) {
    const c = this.context, { x0, y0, x1, y1 } = app.box;
    c.strokeStyle = app.theme.focus;
    c.lineWidth = 1;
    c.setLineDash([4, 2]);
    c.strokeRect(Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0), Math.abs(y1 - y0));
    c.setLineDash([]);
  }

  // at finds what is at a point of the canvas: the event that its column shows, and the
  // buffer at its address.
  at(x, y, app) {
    if (!this.frameOf || x < this.left || x >= this.left + this.inner || y < this.top || y >= this.top + this.innerHeight) return null;
    const { view, device: d } = app, f = this.frameOf;
    const column = Math.min(f.width - 1, Math.floor((x - this.left) * this.scale));
    const event = f.instants[column], address = this.address(y, view);
    return { event, address, buffer: this.find(d, event, address, (view.a1 - view.a0) / this.innerHeight), picture: this };
  }

  // find is the buffer at an address at an event, or the nearest one within one pixel.
  find(d, event, address, tolerance) {
    const addresses = this.addresses(d), ends = this.ends(d);
    let best = -1, distance = tolerance;
    for (let chunk = 0; chunk * chunkBuffers < d.n; chunk++) {
      const from = chunk * chunkBuffers;
      if (d.start[from] > event) break;
      if (d.lastEnd[chunk] <= event) continue;
      for (let i = from, to = Math.min(d.n, from + chunkBuffers); i < to; i++) {
        const a = addresses[i];
        if (a === nowhere || d.start[i] > event || ends[i] <= event) continue;
        const off = Math.max(a - address, address - a - d.units[i], 0);
        if (off < distance || (off === 0 && distance > 0)) {
          best = i;
          distance = off;
        }
      }
    }
    return best;
  }

  // gap is the free piece around an address that no buffer has, null if nothing is reserved
  // there.
  gap(d, event, address) {
    let low = 0, high = d.arena_units;
    if (this.which === "recorded") {
      const s = d.segments;
      const k = s.start.findIndex((from, i) => from <= event && s.end[i] > event && s.place[i] <= address && address < s.place[i] + s.units[i]);
      if (k < 0) return null;
      [low, high] = [s.place[k], s.place[k] + s.units[k]];
    }
    if (address < low || address >= high) return null;
    const addresses = this.addresses(d), ends = this.ends(d);
    for (let i = 0; i < d.n && d.start[i] <= event; i++) {
      const a = addresses[i];
      if (a === nowhere || ends[i] <= event) continue;
      if (a + d.units[i] <= address) low = Math.max(low, a + d.units[i]);
      else if (a > address) high = Math.min(high, a);
    }
    return high - low;
  }
}

// bindKeys and the pointer move the view.
function bindPointer(app, plot) {
  const canvas = plot.canvas;
  let drag = null;
  const point = (e) => {
    const r = canvas.getBoundingClientRect();
    return { x: e.clientX - r.left, y: e.clientY - r.top };
  };
  canvas.addEventListener("pointerdown", (e) => {
    if (e.button !== 0) return;
    const p = point(e);
    drag = { ...p, moved: false, box: e.shiftKey && plot instanceof Picture };
    canvas.setPointerCapture(e.pointerId);
    if (drag.box) app.box = { plot, x0: p.x, y0: p.y, x1: p.x, y1: p.y };
  });
  canvas.addEventListener("pointermove", (e) => {
    const p = point(e);
    if (!drag) return app.point(plot, p, e);
    const dx = p.x - drag.x, dy = p.y - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag.moved = true;
    app.leave();
    if (drag.box) {
      Object.assign(app.box, { x1: p.x, y1: p.y });
    } else {
      const v = app.view;
      v.pan((-dx / plot.inner) * (v.t1 - v.t0), plot instanceof Picture ? (dy / plot.innerHeight) * (v.a1 - v.a0) : 0);
      drag.x = p.x;
      drag.y = p.y;
    }
    app.invalidate();
  });
  const end = (e) => {
    if (drag && drag.box && drag.moved) app.zoomInto(plot, app.box);
    else if (drag && !drag.moved && e.type === "pointerup") app.choose(plot, point(e));
    drag = null;
    app.box = null;
    app.invalidate();
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => drag || app.leave());
  canvas.addEventListener("wheel", (e) => app.wheel(plot, point(e), e), { passive: false });
  canvas.addEventListener("dblclick", (e) => app.zoomAt(plot, point(e), e.shiftKey ? 2 : 0.5));
}
