// The page: its state, and what the reader does with it.

class App {
  constructor(all, index, device, theme) {
    Object.assign(this, { all, index, device, figures: all.devices[index].figures, hover: null, chosen: -1, matches: null, found: null, box: null, panels: "both", by: "category", patterns: matchMedia("(prefers-contrast: more)").matches });
    this.view = new View(device.events, Math.max(device.arena_units, device.recorded_units) * 1.02);
    this.shownCurves = new Set(device.curves.map((c) => c.key));
    const peakOf = (key) => device.curves.find((c) => c.key === key)?.peak_bytes;
    if (this.figures.diff.recorded.settings === "native" && peakOf("recorded") === peakOf("native")) this.shownCurves.delete("native"); // mostly the same curve
    this.setTheme(theme);
  }

  setTheme(name) {
    this.themeName = name;
    this.theme = themes[name];
    document.documentElement.dataset.theme = name;
    byId("theme").textContent = name === "dark" ? "Light" : "Dark";
    this.colours = new Colours(this.device, this.by, this.theme);
    if (this.chart) this.refresh();
  }

  start(plots) {
    Object.assign(this, plots);
    this.refresh();
  }

  refresh() {
    legend(this);
    this.invalidate();
  }

  invalidate() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.draw();
    });
  }

  draw() {
    const known = new Map();
    const instants = (columns) => {
      if (!known.has(columns)) known.set(columns, this.view.instants(columns, this.device.highest));
      return known.get(columns);
    };
    this.chart.draw(this);
    this.overview.draw(this);
    for (const p of this.pictures) if (!p.canvas.hidden) p.draw(this, instants);
  }

  point(plot, p, e) {
    const tip = byId("tip");
    if (!(plot instanceof Picture)) {
      const t = Math.floor(plot.t(p.x, this.view));
      this.hover = t >= 0 && t < this.view.events && plot === this.chart && p.x >= plot.left ? { event: t, buffer: -1 } : null;
      if (this.hover) placeTip(tip, chartTip(this, plot, p), e);
      else tip.hidden = true;
    } else {
      this.hover = plot.at(p.x, p.y, this);
      if (this.hover) placeTip(tip, tipFor(this, this.hover), e);
      else tip.hidden = true;
    }
    this.invalidate();
  }

  leave() {
    byId("tip").hidden = true;
    if (this.hover) this.invalidate();
    this.hover = null;
  }

  choose(plot, p) {
    if (plot === this.overview) return this.move(plot.t(p.x, { t0: 0, t1: this.view.events }));
    if (!(plot instanceof Picture)) return;
    const hit = plot.at(p.x, p.y, this);
    this.select(hit ? hit.buffer : -1);
  }

  select(i) {
    this.chosen = i;
    showDetails(this, i);
    this.invalidate();
  }

  move(t) {
    this.view.show(t, this.view.t1 - this.view.t0);
    this.invalidate();
  }

  // visit shows an event from near.
  visit(t) {
    this.view.show(t, Math.max(200, this.view.events / 20));
    this.invalidate();
  }

  // goTo zooms to a buffer: in time, and in address too if near says so.
  goTo(i, near) {
    const d = this.device, v = this.view, life = Math.max(8, d.freed[i] - d.start[i]), around = life * (near ? 0.25 : 2);
    Object.assign(v, { t0: d.start[i] - around, t1: d.freed[i] + around });
    const a = d.place[i] === nowhere ? d.recorded[i] : d.place[i], inView = a === nowhere || (a >= v.a0 && a + d.units[i] <= v.a1);
    if (near && a !== nowhere) Object.assign(v, { a0: a - d.units[i] * 4, a1: a + d.units[i] * 5 });
    else if (!inView) Object.assign(v, { a0: 0, a1: v.height });
    v.clamp();
    this.select(i);
  }

  wheel(plot, p, e) {
    const free = e.ctrlKey || e.metaKey || document.activeElement === plot.canvas;
    if (!free || plot === this.overview) return;
    e.preventDefault();
    const move = e.deltaMode === 1 ? 16 : 1;
    if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      this.view.pan(((e.deltaX * move) / plot.inner) * (this.view.t1 - this.view.t0), 0);
      return this.invalidate();
    }
    const factor = Math.exp(Math.max(-120, Math.min(120, e.deltaY * move)) * 0.0025);
    if (e.shiftKey && plot instanceof Picture) this.view.zoomAddress(factor, plot.address(p.y, this.view));
    else this.view.zoom(factor, plot.t(p.x, this.view));
    this.invalidate();
  }

  zoomAt(plot, p, factor) {
    if (plot === this.overview) return;
    this.view.zoom(factor, plot.t(p.x, this.view));
    this.invalidate();
  }

  zoomInto(plot, b) {
    const v = this.view, t = [plot.t(b.x0, v), plot.t(b.x1, v)].sort((x, y) => x - y), a = [plot.address(b.y0, v), plot.address(b.y1, v)].sort((x, y) => x - y);
    Object.assign(v, { t0: t[0], t1: t[1], a0: a[0], a1: a[1] });
    v.clamp();
  }

  // act does what a button or a key says.
  act(name, far) {
    const v = this.view, middle = (v.t0 + v.t1) / 2, step = far ? 0.5 : 0.1;
    const acts = {
      in: () => v.zoom(0.7, middle), out: () => v.zoom(1 / 0.7, middle), all: () => v.all(),
      inAddress: () => v.zoomAddress(0.7, (v.a0 + v.a1) / 2), outAddress: () => v.zoomAddress(1 / 0.7, (v.a0 + v.a1) / 2),
      left: () => v.pan(-step * (v.t1 - v.t0), 0), right: () => v.pan(step * (v.t1 - v.t0), 0),
      up: () => v.pan(0, step * (v.a1 - v.a0)), down: () => v.pan(0, -step * (v.a1 - v.a0)),
      peak: () => this.visit(this.device.peak.event), bound: () => this.visit(this.device.bound.event),
    };
    acts[name]();
    this.invalidate();
  }

  find(text) {
    const found = search(this.device, text);
    this.found = found;
    this.matches = found && found.matches;
    byId("found").textContent = found ? (found.found.length ? `${plural(found.found.length, "buffer")}, the largest ${bytes(this.device.units[found.found[0]] * unitBytes)}` : "nothing found") : "";
    this.invalidate();
  }

  // next goes to the next match by size, or to the one before.
  next(step) {
    const f = this.found;
    if (!f || f.found.length === 0) return;
    f.at = (f.at + step + f.found.length) % f.found.length;
    byId("found").textContent = `${count(f.at + 1)} of ${plural(f.found.length, "buffer")}`;
    this.goTo(f.found[f.at], false);
  }

  setPanels(which) {
    this.panels = which;
    for (const p of this.pictures) {
      p.canvas.hidden = which !== "both" && which !== p.which || p.which === "recorded" && !this.device.recorded_units;
      p.cssHeight = which === "both" && this.device.recorded_units ? 330 : 560;
      p.canvas.style.height = `${p.cssHeight}px`;
      p.bottom = p.which === "recorded" || which === "plan" || !this.device.recorded_units ? 26 : 8;
    }
    this.invalidate();
  }

  setColour(by) {
    this.by = by;
    byId("colour").value = by;
    this.colours = new Colours(this.device, by, this.theme);
    this.refresh();
  }

  setPatterns(on) {
    this.patterns = on;
    byId("patterns").checked = on;
    this.refresh();
  }
}

// chartTip is the value of each curve under the pointer.
function chartTip(app, plot, p) {
  const step = (app.view.t1 - app.view.t0) / plot.inner, from = Math.floor(plot.t(p.x, app.view)), to = Math.ceil(from + step);
  const rows = app.device.curves.filter((c) => app.shownCurves.has(c.key)).map((c) => {
    let k = pointAt(c.at, from), most = k < 0 ? 0 : c.units[k];
    for (k++; k < c.at.length && c.at[k] < to; k++) most = Math.max(most, c.units[k]);
    return [c.title, bytes(most * unitBytes)];
  });
  const when = to - from > 1 ? `events ${count(from)} to ${count(to - 1)}, the most of each` : `event ${count(from)}`;
  return [el("p", { class: "at" }, when), rowsTable(rows)];
}

// legend says what colours and lines mean.
function legend(app) {
  const css = (word) => `#${[word & 255, (word >> 8) & 255, (word >> 16) & 255].map((v) => v.toString(16).padStart(2, "0")).join("")}`;
  const entries = app.colours.entries.map((e, g) => ({ ...e, g })).filter((e) => e.used);
  const items = entries.map((e) => el("span", {}, swatch(e.colour, app.patterns && e.g > 0 ? patterns[e.g % patterns.length] : null, css(app.colours.inks[e.g])), e.name));
  const hatch = [128, 64, 32, 16, 8, 4, 2, 1];
  if (app.device.recorded_units) items.push(el("span", {}, swatch(app.theme.free, hatch, app.theme.hatch), "reserved and free"));
  items.push(el("span", {}, swatch(app.theme.arena), "free in the plan"));
  byId("legend").replaceChildren(...items);
  byId("curves").replaceChildren(...app.device.curves.map((c) => curveItem(app, c)), boundItem(app));
}

function curveItem(app, curve) {
  const box = el("input", { type: "checkbox", checked: app.shownCurves.has(curve.key), onchange: () => {
    if (box.checked) app.shownCurves.add(curve.key);
    else app.shownCurves.delete(curve.key);
    app.invalidate();
  } });
  return el("label", { class: "curve" }, box, strokeSample(curveStyle(curve.key)), el("span", { class: "name" }, curve.title), el("span", { class: "number", "data-curve": curve.key, title: `${count(curve.peak_bytes)} B` }, bytes(curve.peak_bytes)));
}

function boundItem(app) {
  return el("div", { class: "curve" }, el("input", { type: "checkbox", checked: true, disabled: true, "aria-hidden": "true" }), strokeSample({ colour: app.theme.text, dash: [1, 3] }), el("span", { class: "name" }, "lower bound"), el("span", { class: "number" }, bytes(app.device.bound.bytes)));
}

// strokeSample is a piece of a curve for the legend.
function strokeSample(style) {
  const s = el("canvas", { class: "stroke", width: "56", height: "24", "aria-hidden": "true" }), c = s.getContext("2d");
  c.scale(2, 2);
  c.strokeStyle = c.fillStyle = style.colour;
  if (style.area) {
    c.globalAlpha = 0.45;
    c.fillRect(0, 1, 28, 11);
    return s;
  }
  c.lineWidth = style.width || 1.6;
  c.setLineDash(style.dash);
  c.beginPath();
  c.moveTo(0, 6);
  c.lineTo(28, 6);
  c.stroke();
  return s;
}

const keys = {
  "+": "in", "=": "in", "-": "out", "−": "out", _: "outAddress", 0: "all", p: "peak", b: "bound",
  ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down",
};

function bindKeys(get) {
  addEventListener("keydown", (e) => {
    const app = get(), typing = e.target.matches && e.target.matches("input[type=search], select");
    if (e.key === "Escape") {
      app.leave();
      app.select(-1);
      document.activeElement.blur();
      return;
    }
    if (typing || e.ctrlKey || e.metaKey || e.altKey || e.target.closest && e.target.closest("#flame")) return;
    const picture = e.target.matches && e.target.matches("canvas");
    let name = keys[e.key];
    if (name && name.length > 2 && e.key.startsWith("Arrow") && !picture) return; // arrows scroll the page
    if (e.shiftKey && (e.key === "+" || e.key === "*") && picture) name = "inAddress";
    if (name) {
      e.preventDefault();
      return app.act(name, e.shiftKey);
    }
    const others = {
      "/": () => byId("search").focus(), c: () => app.setColour({ category: "line", line: "stream", stream: "category" }[app.by]),
      t: () => app.setPatterns(!app.patterns), d: () => app.setTheme(app.themeName === "dark" ? "light" : "dark"),
    };
    if (!others[e.key]) return;
    e.preventDefault();
    others[e.key]();
  });
}

function bindControls(get) {
  byId("theme").addEventListener("click", () => get().setTheme(get().themeName === "dark" ? "light" : "dark"));
  byId("colour").addEventListener("change", (e) => get().setColour(e.target.value));
  byId("panels").addEventListener("change", (e) => get().setPanels(e.target.value));
  byId("patterns").addEventListener("change", (e) => get().setPatterns(e.target.checked));
  for (const b of document.querySelectorAll("[data-act]")) b.addEventListener("click", () => get().act(b.dataset.act));
  let later = 0;
  byId("search").addEventListener("input", (e) => {
    clearTimeout(later);
    later = setTimeout(() => get().find(e.target.value), 120); // ms: typing goes on without a search for each letter
  });
  byId("search").addEventListener("keydown", (e) => {
    if (e.key !== "Enter") return;
    clearTimeout(later);
    if (!get().found || get().searched !== e.target.value) get().find(e.target.value);
    get().searched = e.target.value;
    get().next(e.shiftKey ? -1 : 1);
  });
  addEventListener("resize", () => get().invalidate());
}

// show puts a device on the page.
async function show(all, index, theme) {
  const device = await readDevice(index);
  const app = new App(all, index, device, theme);
  const plots = state.plots || (state.plots = makePlots());
  app.start(plots);
  byId("patterns").checked = app.patterns;
  byId("colour").value = app.by;
  const parts = [`${plural(device.counts.buffers, "buffer")}, ${plural(device.events, "event")}`, all.plan, `device ${device.device}`, all.producer];
  byId("subtitle").textContent = parts.join(" · ");
  byId("title").textContent = all.trace.split("/").pop();
  byId("panels").disabled = !device.recorded_units;
  tiles(app);
  compare(app);
  peakTables(app);
  help();
  for (const n of device.notes) byId("help").append(el("p", {}, n));
  if (device.counts.off_plan) byId("help").append(el("p", {}, `${plural(device.counts.off_plan, "buffer has", "buffers have")} no place in the plan and ${device.counts.off_plan === 1 ? "is" : "are"} not in its picture.`));
  showDetails(app, -1);
  app.setPanels(device.recorded_units ? "both" : "plan");
  app.flame = new Flame(app, byId("flame"), byId("flame-line"));
  app.draw();
  return app;
}

function makePlots() {
  const pictures = [new Picture(byId("plan"), "plan"), new Picture(byId("recorded"), "recorded")];
  const plots = { chart: new Chart(byId("chart")), overview: new Overview(byId("overview")), pictures };
  const proxy = new Proxy({}, { get: (_, name) => (typeof state.app[name] === "function" ? state.app[name].bind(state.app) : state.app[name]), set: (_, name, v) => ((state.app[name] = v), true) });
  for (const p of [plots.chart, plots.overview, ...pictures]) bindPointer(proxy, p);
  return plots;
}

const state = { app: null, plots: null };

async function main() {
  const all = figures();
  const theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const choice = byId("device");
  all.devices.forEach((d, i) => choice.append(el("option", { value: i }, String(d.device))));
  byId("device-choice").hidden = all.devices.length < 2;
  choice.addEventListener("change", async () => (state.app = await show(all, Number(choice.value), state.app.themeName)));
  state.app = await show(all, 0, theme);
  bindKeys(() => state.app);
  bindControls(() => state.app);
  document.documentElement.dataset.ready = String(Math.round(performance.now())); // ms from the start of loading
}

main().catch((problem) => {
  byId("alarm").hidden = false;
  byId("alarm").textContent = `This page cannot be shown: ${problem.message}. It needs a browser of 2023 or later.`;
  document.documentElement.dataset.failed = problem.message;
});
