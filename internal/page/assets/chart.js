// Plots: a canvas with margins and axes, and the chart of memory over time.

const margin = { left: 76, right: 14, top: 8, bottom: 22 };
const font = "12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";

// Plot is a canvas whose size follows the page's.
class Plot {
  constructor(canvas, height, bottom = margin.bottom, top = margin.top) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.cssHeight = height;
    this.bottom = bottom;
    this.top = top;
    canvas.style.height = `${height}px`;
  }

  // fit sizes the canvas to the screen's own pixels and clears it.
  fit(theme) {
    const scale = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth, height = this.cssHeight;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
    }
    Object.assign(this, { scale, width, height, left: margin.left, inner: Math.max(8, width - margin.left - margin.right), innerHeight: height - this.top - this.bottom });
    const c = this.context;
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.fillStyle = theme.ground;
    c.fillRect(0, 0, width, height);
    c.font = font;
    return c;
  }

  x(t, view) {
    return this.left + ((t - view.t0) / (view.t1 - view.t0)) * this.inner;
  }

  t(x, view) {
    return view.t0 + ((x - this.left) / this.inner) * (view.t1 - view.t0);
  }

  // yAxis draws labels and lines for values from low to high.
  yAxis(theme, low, high) {
    const c = this.context;
    c.textAlign = "right";
    c.textBaseline = "middle";
    for (const tick of byteTicks(low, high, Math.max(2, Math.floor(this.innerHeight / 34)))) {
      const y = Math.round(this.top + this.innerHeight * (1 - (tick.value - low) / (high - low))) + 0.5;
      c.fillStyle = theme.soft;
      c.fillText(tick.label, this.left - 8, Math.min(Math.max(y, this.top + 6), this.top + this.innerHeight - 5));
      c.strokeStyle = theme.grid;
      c.beginPath();
      c.moveTo(this.left - 4, y);
      c.lineTo(this.left, y);
      c.stroke();
    }
  }

  gridY(theme, low, high) {
    const c = this.context;
    c.strokeStyle = theme.grid;
    c.lineWidth = 1;
    c.beginPath();
    for (const tick of byteTicks(low, high, Math.max(2, Math.floor(this.innerHeight / 34)))) {
      const y = Math.round(this.top + this.innerHeight * (1 - (tick.value - low) / (high - low))) + 0.5;
      c.moveTo(this.left, y);
      c.lineTo(this.left + this.inner, y);
    }
    c.stroke();
  }

  // xAxis draws the events. The last label that would run into the title is left out.
  xAxis(theme, view, title) {
    const c = this.context, y = this.top + this.innerHeight;
    c.textBaseline = "top";
    c.fillStyle = theme.soft;
    c.strokeStyle = theme.soft;
    c.textAlign = "right";
    const titleFrom = this.left + this.inner - c.measureText(title).width;
    c.fillText(title, this.left + this.inner, y + 7);
    for (const t of ticks(view.t0, view.t1, Math.max(2, Math.floor(this.inner / 110)))) {
      if (t % 1 !== 0) continue;
      const x = Math.round(this.x(t, view)) + 0.5, label = count(t), half = c.measureText(label).width / 2;
      c.beginPath();
      c.moveTo(x, y);
      c.lineTo(x, y + 4);
      c.stroke();
      if (x + half > titleFrom - 10) continue;
      c.textAlign = x - half < this.left ? "left" : "center";
      c.fillText(label, Math.max(x, this.left), y + 7);
    }
  }

  frame(theme) {
    const c = this.context;
    c.strokeStyle = theme.soft;
    c.lineWidth = 1;
    c.strokeRect(this.left + 0.5, this.top + 0.5, this.inner - 1, this.innerHeight - 1);
  }

  // upright draws a vertical line at an event, with a label beside it if there is one.
  upright(theme, view, t, colour, dash, label, row = 0) {
    const at = this.x(t, view), c = this.context;
    if (at < this.left || at > this.left + this.inner) return;
    const x = Math.min(Math.round(at), Math.floor(this.left + this.inner) - 1) + 0.5;
    c.strokeStyle = colour;
    c.lineWidth = 1;
    c.setLineDash(dash);
    c.beginPath();
    c.moveTo(x, this.top);
    c.lineTo(x, this.top + this.innerHeight);
    c.stroke();
    c.setLineDash([]);
    if (label) this.tag(theme, x, this.top + 4 + 17 * row, label, colour);
  }

  // tag writes a label beside x, on the side where there is room.
  tag(theme, x, y, label, colour) {
    const c = this.context, width = c.measureText(label).width + 8;
    const at = x + width + 4 > this.left + this.inner ? x - width - 3 : x + 3;
    c.fillStyle = theme.ground;
    c.globalAlpha = 0.88;
    c.fillRect(at, y, width, 16);
    c.globalAlpha = 1;
    c.fillStyle = colour;
    c.textAlign = "left";
    c.textBaseline = "top";
    c.fillText(label, at + 4, y + 2);
  }
}

// curveStyles tell the curves apart by colour and by dashes.
const curveStyles = {
  allocated: { colour: "#009e73", dash: [], area: true },
  recorded: { colour: "#d55e00", dash: [] },
  native: { colour: "#e69f00", dash: [7, 3] },
  expandable: { colour: "#cc79a7", dash: [2, 3] },
  pool: { colour: "#56b4e9", dash: [10, 3, 2, 3] },
  plan: { colour: "#0072b2", dash: [], width: 2.5 },
};
const anyCurve = { colour: "#7a5cc7", dash: [4, 2, 1, 2] };

function curveStyle(key) {
  return curveStyles[key] || anyCurve;
}

// Chart draws the curves. top is the largest value that it has room for, in units.
class Chart extends Plot {
  constructor(canvas) {
    super(canvas, 264, 26);
  }

  draw(app) {
    const { device: d, theme, view } = app, c = this.fit(theme);
    const shown = d.curves.filter((x) => app.shownCurves.has(x.key));
    const most = Math.max(1, d.bound.bytes, ...shown.map((x) => x.peak_bytes)) * 1.2;
    this.gridY(theme, 0, most);
    this.iterations(app);
    for (const curve of shown.filter((x) => curveStyle(x.key).area)) this.area(curve, view, most);
    for (const curve of shown.filter((x) => !curveStyle(x.key).area)) this.line(curve, view, most);
    this.bound(app, most);
    this.yAxis(theme, 0, most);
    this.xAxis(theme, view, "event of the recording");
    this.marks(app);
    this.frame(theme);
  }

  y(bytesShown, most) {
    return this.top + this.innerHeight * (1 - bytesShown / most);
  }

  // columns calls each with every column of pixels and the largest value in it.
  columns(curve, view, each) {
    const n = Math.ceil(this.inner), step = (view.t1 - view.t0) / n;
    let k = Math.max(0, pointAt(curve.at, view.t0));
    let now = curve.at.length > 0 && curve.at[k] <= view.t0 ? curve.units[k] : 0;
    for (let c = 0; c < n; c++) {
      const end = view.t0 + (c + 1) * step;
      let most = now;
      while (k < curve.at.length && curve.at[k] < end) {
        now = curve.units[k++];
        if (now > most) most = now;
      }
      each(c, most * unitBytes);
    }
  }

  area(curve, view, most) {
    const c = this.context, floor = this.top + this.innerHeight;
    c.fillStyle = curveStyle(curve.key).colour;
    c.globalAlpha = 0.35;
    c.beginPath();
    c.moveTo(this.left, floor);
    this.columns(curve, view, (x, v) => {
      c.lineTo(this.left + x, this.y(v, most));
      c.lineTo(this.left + x + 1, this.y(v, most));
    });
    c.lineTo(this.left + this.inner, floor);
    c.fill();
    c.globalAlpha = 1;
  }

  line(curve, view, most) {
    const c = this.context, style = curveStyle(curve.key);
    c.strokeStyle = style.colour;
    c.lineWidth = style.width || 1.6;
    c.setLineDash(style.dash);
    c.beginPath();
    let before = -1;
    this.columns(curve, view, (x, v) => {
      const y = this.y(v, most);
      if (before < 0) c.moveTo(this.left + x, y);
      else if (y !== before) {
        c.lineTo(this.left + x, before);
        c.lineTo(this.left + x, y);
      }
      before = y;
    });
    c.lineTo(this.left + this.inner, before);
    c.stroke();
    c.setLineDash([]);
  }

  // bound draws the lower bound, which no plan can be under.
  bound(app, most) {
    const c = this.context, y = Math.round(this.y(app.device.bound.bytes, most)) + 0.5;
    c.strokeStyle = app.theme.text;
    c.lineWidth = 1;
    c.setLineDash([1, 3]);
    c.beginPath();
    c.moveTo(this.left, y);
    c.lineTo(this.left + this.inner, y);
    c.stroke();
    c.setLineDash([]);
  }

  iterations(app) {
    const { device: d, theme, view } = app, starts = d.iteration_starts;
    const c = this.context;
    c.textBaseline = "bottom";
    for (let k = 0; k < starts.length; k++) {
      const x0 = Math.max(this.left, this.x(starts[k], view)), x1 = Math.min(this.left + this.inner, this.x(k + 1 < starts.length ? starts[k + 1] : d.events, view));
      if (x1 <= this.left || x0 >= this.left + this.inner) continue;
      this.upright(theme, view, starts[k], theme.soft, [2, 4]);
      const label = k + 1 < starts.length ? `iteration ${k + 1}` : "after";
      if (c.measureText(label).width + 10 > x1 - x0) continue;
      c.fillStyle = theme.soft;
      c.textAlign = "left";
      c.textBaseline = "bottom";
      c.fillText(label, x0 + 5, this.top + this.innerHeight - 3);
    }
  }

  marks(app) {
    const { device: d, theme, view } = app;
    for (const t of d.out_of_memory_events.slice(-20)) this.upright(theme, view, t, theme.mark, [], t === d.peak.event ? "out of memory" : "");
    if (d.peak.why === "peak") this.upright(theme, view, d.peak.event, theme.text, [], "peak");
    const near = Math.abs(this.x(d.peak.event, view) - this.x(d.bound.event, view)) < 140;
    this.upright(theme, view, d.bound.event, theme.focus, [4, 3], "the bound binds", near ? 1 : 0);
    if (app.hover) this.upright(theme, view, app.hover.event, theme.text, [1, 2]);
  }
}

// Overview is the whole recording in a strip, with a frame around what is shown.
class Overview extends Plot {
  constructor(canvas) {
    super(canvas, 40, 4, 4);
  }

  // columns is the largest value in each column of pixels. It changes with the width only.
  columns(curve, events) {
    const n = Math.ceil(this.inner);
    if (this.of === curve && this.kept.length === n) return this.kept;
    const out = new Uint32Array(n), step = events / n;
    let k = 0, now = 0;
    for (let x = 0; x < n; x++) {
      out[x] = now;
      while (k < curve.at.length && curve.at[k] < (x + 1) * step) out[x] = Math.max(out[x], (now = curve.units[k++]));
    }
    this.of = curve;
    return (this.kept = out);
  }

  draw(app) {
    const { device: d, theme } = app, c = this.fit(theme), whole = { t0: 0, t1: app.view.events };
    const most = Math.max(1, d.allocated.peak_bytes), floor = this.top + this.innerHeight;
    c.fillStyle = theme.soft;
    c.globalAlpha = 0.5;
    c.beginPath();
    c.moveTo(this.left, floor);
    this.columns(d.allocated, whole.t1).forEach((v, x) => {
      const y = this.top + this.innerHeight * (1 - (v * unitBytes) / most);
      c.lineTo(this.left + x, y);
      c.lineTo(this.left + x + 1, y);
    });
    c.lineTo(this.left + this.inner, floor);
    c.fill();
    c.globalAlpha = 1;
    const x0 = this.x(app.view.t0, whole), x1 = Math.max(x0 + 3, this.x(app.view.t1, whole));
    c.fillStyle = theme.ground;
    c.globalAlpha = 0.6;
    c.fillRect(this.left, this.top, x0 - this.left, this.innerHeight);
    c.fillRect(x1, this.top, this.left + this.inner - x1, this.innerHeight);
    c.globalAlpha = 1;
    c.strokeStyle = theme.focus;
    c.lineWidth = 2;
    c.strokeRect(x0, this.top + 1, x1 - x0, this.innerHeight - 2);
    c.fillStyle = theme.soft;
    c.textAlign = "right";
    c.textBaseline = "middle";
    c.fillText("whole", this.left - 8, this.top + this.innerHeight / 2);
  }
}
